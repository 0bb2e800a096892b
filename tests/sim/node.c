/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes: the Add, GetParams and SetParams of each kind. All of them speak CUgraphNodeParams inside.
 * Under sim_lock.
 *
 * What GetParams returns points into the node: "the params will remain valid until the node's
 * parameters are modified or it is destroyed".
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* The typed node parameters lead with the fields that every version of the struct has. */
#define PARAMS(kind, member, from)                                                            \
	({                                                                                    \
		CUgraphNodeParams p_ = { .type = CU_GRAPH_NODE_TYPE_##kind };                 \
		memcpy(&p_.member, from, sizeof(*(from)));                                    \
		p_;                                                                           \
	})

static CUresult add(CUgraphNode *out, CUgraph h, const CUgraphNode *deps, size_t n,
		    CUgraphNodeParams *p)
{
	struct graph *g = obj_get(h, OBJ_GRAPH);
	struct node *node;
	struct op *op;
	CUresult rc;

	if (!g || !out)
		return CUDA_ERROR_INVALID_VALUE;
	rc = op_new(p, &op);
	if (!rc)
		rc = graph_add(g, op, deps, n, &node);
	if (rc)
		return rc;
	*out = (CUgraphNode)node;
	/* What the call fills in: the address, the body graphs. */
	if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		p->alloc.dptr = op->p.alloc.dptr;
	else if (p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		p->conditional.phGraph_out = op->p.conditional.phGraph_out;
	return CUDA_SUCCESS;
}

/* The parameters of a node of this type; NULL: another type, or no node. */
static const CUgraphNodeParams *get(CUgraphNode h, CUgraphNodeType type)
{
	struct node *node = obj_get(h, OBJ_NODE);

	return node && node->op->p.type == type ? &node->op->p : NULL;
}

static CUresult set(CUgraphNode h, const CUgraphNodeParams *p)
{
	struct node *node = obj_get(h, OBJ_NODE);
	struct op *op;
	CUresult rc;

	if (!node || node->op->p.type != p->type)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || p->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
	    p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL || p->type == CU_GRAPH_NODE_TYPE_GRAPH)
		return CUDA_ERROR_NOT_SUPPORTED;
	rc = op_new(p, &op);
	if (rc)
		return rc;
	op_put(node->op);
	node->op = op;
	return CUDA_SUCCESS;
}

/* ---- generic ---- */

CUresult do_cuGraphAddNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
			   CUgraphNodeParams *p)
{
	return p ? add(out, g, deps, n, p) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphAddNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *deps,
			      const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *p)
{
	return do_cuGraphAddNode(out, g, deps, n, p);
}

CUresult do_cuGraphNodeSetParams(CUgraphNode h, CUgraphNodeParams *p)
{
	return p ? set(h, p) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphNodeGetType(CUgraphNode h, CUgraphNodeType *type)
{
	struct node *node = obj_get(h, OBJ_NODE);

	if (!node)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node->op->p.type;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphAddEmptyNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_EMPTY };

	return add(out, g, deps, n, &p);
}

/* ---- kernels ---- */

CUresult do_cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
				    const CUDA_KERNEL_NODE_PARAMS *k)
{
	CUgraphNodeParams p = PARAMS(KERNEL, kernel, k);

	return add(out, g, deps, n, &p);
}

CUresult do_cuGraphAddKernelNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
				 const CUDA_KERNEL_NODE_PARAMS_v1 *k)
{
	CUgraphNodeParams p = PARAMS(KERNEL, kernel, k);

	return add(out, g, deps, n, &p);
}

CUresult do_cuGraphKernelNodeGetParams_v2(CUgraphNode h, CUDA_KERNEL_NODE_PARAMS_v2 *k)
{
	const CUgraphNodeParams *p = get(h, CU_GRAPH_NODE_TYPE_KERNEL);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(k, &p->kernel, sizeof(*k));
	return CUDA_SUCCESS;
}

CUresult do_cuGraphKernelNodeGetParams(CUgraphNode h, CUDA_KERNEL_NODE_PARAMS_v1 *k)
{
	const CUgraphNodeParams *p = get(h, CU_GRAPH_NODE_TYPE_KERNEL);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(k, &p->kernel, sizeof(*k));
	return CUDA_SUCCESS;
}

CUresult do_cuGraphKernelNodeSetParams_v2(CUgraphNode h, const CUDA_KERNEL_NODE_PARAMS *k)
{
	CUgraphNodeParams p = PARAMS(KERNEL, kernel, k);

	return set(h, &p);
}

CUresult do_cuGraphKernelNodeSetParams(CUgraphNode h, const CUDA_KERNEL_NODE_PARAMS_v1 *k)
{
	CUgraphNodeParams p = PARAMS(KERNEL, kernel, k);

	return set(h, &p);
}

CUresult do_cuGraphKernelNodeSetAttribute(CUgraphNode h, CUkernelNodeAttrID id,
					  const CUkernelNodeAttrValue *value)
{
	return get(h, CU_GRAPH_NODE_TYPE_KERNEL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphKernelNodeGetAttribute(CUgraphNode h, CUkernelNodeAttrID id,
					  CUkernelNodeAttrValue *value)
{
	memset(value, 0, sizeof(*value));
	return get(h, CU_GRAPH_NODE_TYPE_KERNEL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	return get(dst, CU_GRAPH_NODE_TYPE_KERNEL) && get(src, CU_GRAPH_NODE_TYPE_KERNEL)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

/* ---- copies and fills ---- */

CUresult do_cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
				 const CUDA_MEMCPY3D *c, CUcontext ctx)
{
	CUgraphNodeParams p;

	params_memcpy(&p, c, ctx);
	return add(out, g, deps, n, &p);
}

CUresult do_cuGraphMemcpyNodeGetParams(CUgraphNode h, CUDA_MEMCPY3D *c)
{
	const CUgraphNodeParams *p = get(h, CU_GRAPH_NODE_TYPE_MEMCPY);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	*c = p->memcpy.copyParams;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphMemcpyNodeSetParams(CUgraphNode h, const CUDA_MEMCPY3D *c)
{
	CUgraphNodeParams p;

	params_memcpy(&p, c, NULL);
	return set(h, &p);
}

CUresult do_cuGraphAddMemsetNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
				 const CUDA_MEMSET_NODE_PARAMS *m, CUcontext ctx)
{
	CUgraphNodeParams p = PARAMS(MEMSET, memset, m);

	p.memset.ctx = ctx;
	return add(out, g, deps, n, &p);
}

CUresult do_cuGraphMemsetNodeGetParams(CUgraphNode h, CUDA_MEMSET_NODE_PARAMS *m)
{
	const CUgraphNodeParams *p = get(h, CU_GRAPH_NODE_TYPE_MEMSET);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(m, &p->memset, sizeof(*m));
	return CUDA_SUCCESS;
}

CUresult do_cuGraphMemsetNodeSetParams(CUgraphNode h, const CUDA_MEMSET_NODE_PARAMS *m)
{
	CUgraphNodeParams p = PARAMS(MEMSET, memset, m);

	return set(h, &p);
}

/* ---- host functions, child graphs, events ---- */

CUresult do_cuGraphAddHostNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
			       const CUDA_HOST_NODE_PARAMS *host)
{
	CUgraphNodeParams p = PARAMS(HOST, host, host);

	return add(out, g, deps, n, &p);
}

CUresult do_cuGraphHostNodeGetParams(CUgraphNode h, CUDA_HOST_NODE_PARAMS *host)
{
	const CUgraphNodeParams *p = get(h, CU_GRAPH_NODE_TYPE_HOST);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(host, &p->host, sizeof(*host));
	return CUDA_SUCCESS;
}

CUresult do_cuGraphHostNodeSetParams(CUgraphNode h, const CUDA_HOST_NODE_PARAMS *host)
{
	CUgraphNodeParams p = PARAMS(HOST, host, host);

	return set(h, &p);
}

CUresult do_cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
				     CUgraph child)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = { .graph = child } };

	return add(out, g, deps, n, &p);
}

CUresult do_cuGraphChildGraphNodeGetGraph(CUgraphNode h, CUgraph *child)
{
	const CUgraphNodeParams *p = get(h, CU_GRAPH_NODE_TYPE_GRAPH);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	*child = p->graph.graph;
	return CUDA_SUCCESS;
}

#define EVENT_NODE(Name, KIND, member)                                                        \
	CUresult do_cuGraphAdd##Name##Node(CUgraphNode *out, CUgraph g,                       \
					   const CUgraphNode *deps, size_t n, CUevent event)  \
	{                                                                                     \
		CUgraphNodeParams p = { .type = KIND, .member = { event } };                  \
                                                                                              \
		return add(out, g, deps, n, &p);                                              \
	}                                                                                     \
	CUresult do_cuGraph##Name##NodeGetEvent(CUgraphNode h, CUevent *event)                \
	{                                                                                     \
		const CUgraphNodeParams *p = get(h, KIND);                                    \
                                                                                              \
		if (!p)                                                                       \
			return CUDA_ERROR_INVALID_VALUE;                                      \
		*event = p->member.event;                                                     \
		return CUDA_SUCCESS;                                                          \
	}                                                                                     \
	CUresult do_cuGraph##Name##NodeSetEvent(CUgraphNode h, CUevent event)                 \
	{                                                                                     \
		CUgraphNodeParams p = { .type = KIND, .member = { event } };                  \
                                                                                              \
		return set(h, &p);                                                            \
	}
EVENT_NODE(EventRecord, CU_GRAPH_NODE_TYPE_EVENT_RECORD, eventRecord)
EVENT_NODE(EventWait, CU_GRAPH_NODE_TYPE_WAIT_EVENT, eventWait)

/* ---- external semaphores ---- */

#define SEMAPHORE_NODE(Name, KIND, member, type)                                              \
	CUresult do_cuGraphAddExternalSemaphores##Name##Node(                                 \
		CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,               \
		const type *s)                                                                \
	{                                                                                     \
		CUgraphNodeParams p = PARAMS(KIND, member, s);                                \
                                                                                              \
		return add(out, g, deps, n, &p);                                              \
	}                                                                                     \
	CUresult do_cuGraphExternalSemaphores##Name##NodeGetParams(CUgraphNode h, type *s)    \
	{                                                                                     \
		const CUgraphNodeParams *p = get(h, CU_GRAPH_NODE_TYPE_##KIND);               \
                                                                                              \
		if (!p)                                                                       \
			return CUDA_ERROR_INVALID_VALUE;                                      \
		memcpy(s, &p->member, sizeof(*s));                                            \
		return CUDA_SUCCESS;                                                          \
	}                                                                                     \
	CUresult do_cuGraphExternalSemaphores##Name##NodeSetParams(CUgraphNode h,             \
								   const type *s)             \
	{                                                                                     \
		CUgraphNodeParams p = PARAMS(KIND, member, s);                                \
                                                                                              \
		return set(h, &p);                                                            \
	}
SEMAPHORE_NODE(Signal, EXT_SEMAS_SIGNAL, extSemSignal, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS)
SEMAPHORE_NODE(Wait, EXT_SEMAS_WAIT, extSemWait, CUDA_EXT_SEM_WAIT_NODE_PARAMS)

/* ---- memory ---- */

CUresult do_cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
				   CUDA_MEM_ALLOC_NODE_PARAMS *a)
{
	CUgraphNodeParams p = PARAMS(MEM_ALLOC, alloc, a);
	CUresult rc = add(out, g, deps, n, &p);

	if (!rc)
		a->dptr = p.alloc.dptr;
	return rc;
}

CUresult do_cuGraphMemAllocNodeGetParams(CUgraphNode h, CUDA_MEM_ALLOC_NODE_PARAMS *a)
{
	const CUgraphNodeParams *p = get(h, CU_GRAPH_NODE_TYPE_MEM_ALLOC);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(a, &p->alloc, sizeof(*a));
	return CUDA_SUCCESS;
}

CUresult do_cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
				  CUdeviceptr dptr)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = { dptr } };

	return add(out, g, deps, n, &p);
}

CUresult do_cuGraphMemFreeNodeGetParams(CUgraphNode h, CUdeviceptr *dptr)
{
	const CUgraphNodeParams *p = get(h, CU_GRAPH_NODE_TYPE_MEM_FREE);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	*dptr = p->free.dptr;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphAddBatchMemOpNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
				     const CUDA_BATCH_MEM_OP_NODE_PARAMS *b)
{
	CUgraphNodeParams p = PARAMS(BATCH_MEM_OP, memOp, b);

	return add(out, g, deps, n, &p);
}

CUresult do_cuGraphBatchMemOpNodeGetParams(CUgraphNode h, CUDA_BATCH_MEM_OP_NODE_PARAMS *b)
{
	const CUgraphNodeParams *p = get(h, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(b, &p->memOp, sizeof(*b));
	return CUDA_SUCCESS;
}

CUresult do_cuGraphBatchMemOpNodeSetParams(CUgraphNode h, const CUDA_BATCH_MEM_OP_NODE_PARAMS *b)
{
	CUgraphNodeParams p = PARAMS(BATCH_MEM_OP, memOp, b);

	return set(h, &p);
}
