/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates: nodes that are made, changed, copied and destroyed one by one.
 *
 * A node is read from the driver right after it was made or changed, so that all generations of a
 * call share one reader (walk.c). What is destroyed is detached before the driver is asked, as
 * its handles may come back at once, and put back if it is refused. Out-parameters are looked at
 * only if they are there: what a driver takes NULL for is its own affair.
 *
 * Any thread.
 */
#include "shim/cupti.h"
#include "shim/nested.h"
#include "shim/record.h"
#include "shim/walk.h"

/* ---- nodes that are made ---- */

#define ADD(symbol, params, args)                            \
	CUresult symbol params                               \
	{                                                    \
		bool on = template_on(symbol);               \
		CUresult rc = REAL(symbol) args;             \
                                                             \
		if (on && rc == CUDA_SUCCESS && phGraphNode) \
			walk_birth(hGraph, *phGraphNode);    \
		return rc;                                   \
	}

#define ADD_PLACE                                                                  \
	CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, \
		size_t numDependencies
#define ADD_PLACE_ARGS phGraphNode, hGraph, dependencies, numDependencies

ADD(cuGraphAddKernelNode, (ADD_PLACE, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams),
    (ADD_PLACE_ARGS, nodeParams))
ADD(cuGraphAddKernelNode_v2, (ADD_PLACE, const CUDA_KERNEL_NODE_PARAMS *nodeParams),
    (ADD_PLACE_ARGS, nodeParams))
ADD(cuGraphAddMemcpyNode, (ADD_PLACE, const CUDA_MEMCPY3D *copyParams, CUcontext ctx),
    (ADD_PLACE_ARGS, copyParams, ctx))
ADD(cuGraphAddMemsetNode, (ADD_PLACE, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx),
    (ADD_PLACE_ARGS, memsetParams, ctx))
ADD(cuGraphAddBatchMemOpNode, (ADD_PLACE, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams),
    (ADD_PLACE_ARGS, nodeParams))
ADD(cuGraphAddMemAllocNode, (ADD_PLACE, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams),
    (ADD_PLACE_ARGS, nodeParams))

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				  const CUgraphNode *dependencies, size_t numDependencies,
				  CUgraph childGraph)
{
	bool on = template_on(cuGraphAddChildGraphNode);
	CUresult rc = REAL(cuGraphAddChildGraphNode)(ADD_PLACE_ARGS, childGraph);

	if (on && rc == CUDA_SUCCESS && phGraphNode)
		walk_child_births(hGraph, *phGraphNode, childGraph);
	return rc;
}

/* The child that the generic call is asked to take in: it may come back as the node's own. */
static CUgraph child_of(const CUgraphNodeParams *p)
{
	return p && p->type == CU_GRAPH_NODE_TYPE_GRAPH ? p->graph.graph : NULL;
}

static void added(CUgraph graph, CUgraphNode node, const CUgraphNodeParams *p, CUgraph child)
{
	if (child) {
		walk_child_births(graph, node, child);
		return;
	}
	if (p->type != CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		walk_birth(graph, node);
		return;
	}
	/* The only moment at which the driver tells the bodies. */
	for (unsigned i = 0; p->conditional.phGraph_out && i < p->conditional.size; i++)
		nested_add((uint64_t)graph, (uint64_t)node,
			   (uint64_t)p->conditional.phGraph_out[i]);
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	bool on = template_on(cuGraphAddNode);
	CUgraph child = child_of(nodeParams);
	CUresult rc = REAL(cuGraphAddNode)(ADD_PLACE_ARGS, nodeParams);

	if (on && rc == CUDA_SUCCESS && phGraphNode)
		added(hGraph, *phGraphNode, nodeParams, child);
	return rc;
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
			   const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
			   size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	bool on = template_on(cuGraphAddNode_v2);
	CUgraph child = child_of(nodeParams);
	CUresult rc = REAL(cuGraphAddNode_v2)(phGraphNode, hGraph, dependencies, dependencyData,
					      numDependencies, nodeParams);

	if (on && rc == CUDA_SUCCESS && phGraphNode)
		added(hGraph, *phGraphNode, nodeParams, child);
	return rc;
}

/* ---- nodes that change ---- */

#define SET(symbol, type)                                      \
	CUresult symbol(CUgraphNode hNode, type nodeParams)    \
	{                                                      \
		bool on = template_on(symbol);                 \
		CUresult rc = REAL(symbol)(hNode, nodeParams); \
                                                               \
		if (rc == CUDA_SUCCESS)                        \
			cupti_changed(hNode);                  \
		if (on && rc == CUDA_SUCCESS)                  \
			walk_birth(NULL, hNode);               \
		return rc;                                     \
	}

SET(cuGraphKernelNodeSetParams, const CUDA_KERNEL_NODE_PARAMS_v1 *)
SET(cuGraphKernelNodeSetParams_v2, const CUDA_KERNEL_NODE_PARAMS *)
SET(cuGraphMemcpyNodeSetParams, const CUDA_MEMCPY3D *)
SET(cuGraphMemsetNodeSetParams, const CUDA_MEMSET_NODE_PARAMS *)
SET(cuGraphBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS *)
SET(cuGraphNodeSetParams, CUgraphNodeParams *)

/* ---- whole templates ---- */

/* Nothing is recorded of an empty one: it is where a window begins. */
CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	CUresult rc;

	if (record_on(cuGraphCreate))
		cupti_begin();
	cupti_expect_graph(true);
	rc = REAL(cuGraphCreate)(phGraph, flags);
	cupti_expect_graph(false);
	return rc;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	bool on = record_on(cuGraphClone);
	CUresult rc;

	if (on)
		cupti_begin();
	rc = REAL(cuGraphClone)(phGraphClone, originalGraph);
	on &= !cupti_is_alone();
	if (on && rc == CUDA_SUCCESS && phGraphClone)
		walk_copy_births(originalGraph, *phGraphClone, true);
	return rc;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
	bool on = record_on(cuGraphDestroyNode);
	struct nested_gone gone = { .records = NULL };
	CUresult rc;

	if (on)
		ERRNO_KEPT(nested_detach_node((uint64_t)hNode, &gone));
	rc = REAL(cuGraphDestroyNode)(hNode);
	if (on)
		ERRNO_KEPT(nested_settle(&gone, rc == CUDA_SUCCESS));
	return rc;
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
	bool on = record_on(cuGraphDestroy);
	struct nested_gone gone = { .records = NULL };
	CUresult rc;

	if (on)
		ERRNO_KEPT(nested_detach_graph((uint64_t)hGraph, &gone));
	rc = REAL(cuGraphDestroy)(hGraph);
	if (on)
		ERRNO_KEPT(nested_settle(&gone, rc == CUDA_SUCCESS));
	return rc;
}
