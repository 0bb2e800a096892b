/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executable graphs: each is mirrored from the moment it is instantiated, and follows what the
 * application changes in it. A call that the driver refuses changes nothing; an exec is closed
 * before it is destroyed, as its handle may come back at once.
 *
 * Any thread.
 */
#include "arena/scan.h"
#include "shim/coverage.h"
#include "shim/cupti.h"
#include "shim/record.h"
#include "shim/walk.h"

/* ---- what is behind parameters ---- */

static void scan(CUgraphExec exec)
{
	struct scan_result result;

	if (__builtin_expect(!scan_wanted, 1))
		return;
	result = scan_exec((uint64_t)exec);
	if (result.skipped)
		coverage_count(SCAN_SKIPPED);
	if (result.cut)
		coverage_count(SCAN_CUT);
}

/* ---- instantiate ---- */

static void opened(CUgraphExec exec, CUgraph graph, uint64_t flags)
{
	CUcontext context = NULL;
	struct exec_builder *b;

	shim_inside++;
	REAL(cuCtxGetCurrent)(&context);
	shim_inside--;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		coverage_count(DEVICE_LAUNCH);
	b = walk_template(graph);
	cupti_compare(exec, graph, b);
	exec_open((uint64_t)exec, (uint64_t)context, b);
	scan(exec);
}

#define INSTANTIATE(symbol, flags, params, args)                         \
	CUresult symbol params                                           \
	{                                                                \
		bool on = record_on(symbol);                             \
		CUresult rc;                                             \
                                                                         \
		if (on)                                                  \
			cupti_instantiating(true);                       \
		rc = REAL(symbol) args;                                  \
		if (on && rc == CUDA_SUCCESS && phGraphExec)             \
			ERRNO_KEPT(opened(*phGraphExec, hGraph, flags)); \
		if (on)                                                  \
			cupti_instantiating(false);                      \
		return rc;                                               \
	}

/* clang-format off */
INSTANTIATE(cuGraphInstantiate, 0,
	    (CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
	     size_t bufferSize),
	    (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))
INSTANTIATE(cuGraphInstantiate_v2, 0,
	    (CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
	     size_t bufferSize),
	    (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))
INSTANTIATE(cuGraphInstantiateWithFlags, flags,
	    (CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags),
	    (phGraphExec, hGraph, flags))
INSTANTIATE(cuGraphInstantiateWithParams, instantiateParams->flags,
	    (CUgraphExec *phGraphExec, CUgraph hGraph,
	     CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
	    (phGraphExec, hGraph, instantiateParams))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz, instantiateParams->flags,
	    (CUgraphExec *phGraphExec, CUgraph hGraph,
	     CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
	    (phGraphExec, hGraph, instantiateParams))
/* clang-format on */

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	if (record_on(cuGraphExecDestroy))
		ERRNO_KEPT(exec_close((uint64_t)hGraphExec));
	return REAL(cuGraphExecDestroy)(hGraphExec);
}

/* ---- changes ---- */

static void updated(CUgraphExec exec, CUgraph graph)
{
	struct exec_builder *b = walk_template(graph);

	cupti_compare(NULL, graph, b);
	if (!exec_update((uint64_t)exec, b))
		coverage_count(UPDATE_PAIRING);
	scan(exec);
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
			   CUgraphExecUpdateResult *updateResult_out)
{
	bool on = record_on(cuGraphExecUpdate);
	CUresult rc = REAL(cuGraphExecUpdate)(hGraphExec, hGraph, hErrorNode_out, updateResult_out);

	if (on && rc == CUDA_SUCCESS)
		ERRNO_KEPT(updated(hGraphExec, hGraph));
	return rc;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
			      CUgraphExecUpdateResultInfo *resultInfo)
{
	bool on = record_on(cuGraphExecUpdate_v2);
	CUresult rc = REAL(cuGraphExecUpdate_v2)(hGraphExec, hGraph, resultInfo);

	if (on && rc == CUDA_SUCCESS)
		ERRNO_KEPT(updated(hGraphExec, hGraph));
	return rc;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
	bool on = record_on(cuGraphNodeSetEnabled);
	CUresult rc = REAL(cuGraphNodeSetEnabled)(hGraphExec, hNode, isEnabled);

	if (on && rc == CUDA_SUCCESS)
		ERRNO_KEPT(exec_set_enabled((uint64_t)hGraphExec, (uint64_t)hNode, isEnabled != 0));
	return rc;
}

static void set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *p)
{
	ERRNO_KEPT(walk_exec_node(exec, node, p));
}

static void set_kernel(CUgraphExec exec, CUgraphNode node, CUfunction func, CUkernel kern,
		       void *const params[2])
{
	set(exec, node,
	    &(CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_KERNEL,
				  .kernel = { .func = func,
					      .kern = kern,
					      .kernelParams = params[0],
					      .extra = params[1] } });
}

/* @after: what follows on success, with the parameters that the driver accepted. */
#define SET(symbol, after, params, args)         \
	CUresult symbol params                   \
	{                                        \
		bool on = record_on(symbol);     \
		CUresult rc = REAL(symbol) args; \
                                                 \
		if (on && rc == CUDA_SUCCESS)    \
			after;                   \
		return rc;                       \
	}

#define SET_AS(kind, ...)      \
	set(hGraphExec, hNode, \
	    &(CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_##kind, __VA_ARGS__ })

SET(cuGraphExecKernelNodeSetParams,
    set_kernel(hGraphExec, hNode, nodeParams->func, NULL,
	       (void *[]){ nodeParams->kernelParams, nodeParams->extra }),
    (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams),
    (hGraphExec, hNode, nodeParams))
SET(cuGraphExecKernelNodeSetParams_v2,
    set_kernel(hGraphExec, hNode, nodeParams->func, nodeParams->kern,
	       (void *[]){ nodeParams->kernelParams, nodeParams->extra }),
    (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams),
    (hGraphExec, hNode, nodeParams))
SET(cuGraphExecMemcpyNodeSetParams, SET_AS(MEMCPY, .memcpy = { .copyParams = *copyParams }),
    (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams, CUcontext ctx),
    (hGraphExec, hNode, copyParams, ctx))
SET(cuGraphExecMemsetNodeSetParams,
    SET_AS(MEMSET, .memset = { .dst = memsetParams->dst,
			       .pitch = memsetParams->pitch,
			       .elementSize = memsetParams->elementSize,
			       .width = memsetParams->width,
			       .height = memsetParams->height }),
    (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
     CUcontext ctx),
    (hGraphExec, hNode, memsetParams, ctx))
SET(cuGraphExecBatchMemOpNodeSetParams,
    SET_AS(BATCH_MEM_OP,
	   .memOp = { .count = nodeParams->count, .paramArray = nodeParams->paramArray }),
    (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams),
    (hGraphExec, hNode, nodeParams))
SET(cuGraphExecChildGraphNodeSetParams, SET_AS(GRAPH, .graph = { .graph = childGraph }),
    (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph),
    (hGraphExec, hNode, childGraph))
SET(cuGraphExecNodeSetParams, set(hGraphExec, hNode, nodeParams),
    (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams),
    (hGraphExec, hNode, nodeParams))
