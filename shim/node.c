/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's getters, one for each kind of node, behind one function.
 *
 * Any thread; no state. Called with shim_inside raised.
 */
#include "shim/node.h"

enum node_kind node_kind_of(CUgraphNodeType type)
{
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return NODE_KERNEL;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return NODE_MEMCPY;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return NODE_MEMSET;
	case CU_GRAPH_NODE_TYPE_HOST:
		return NODE_HOST;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return NODE_CHILD;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return NODE_ALLOC;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return NODE_FREE;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return NODE_BATCH;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return NODE_CONDITIONAL;
	default:
		return NODE_OTHER;
	}
}

static CUresult get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v3 *out)
{
	CUDA_KERNEL_NODE_PARAMS_v2 v2 = { 0 };
	CUDA_KERNEL_NODE_PARAMS_v1 v1 = { 0 };
	CUresult rc = REAL(cuGraphKernelNodeGetParams_v2)(node, &v2);

	if (rc == CUDA_ERROR_NOT_FOUND) { /* a driver before 12.0 */
		rc = REAL(cuGraphKernelNodeGetParams)(node, &v1);
		v2.func = v1.func;
		v2.kernelParams = v1.kernelParams;
		v2.extra = v1.extra;
	}
	out->func = v2.func;
	out->kern = v2.kern;
	out->kernelParams = v2.kernelParams;
	out->extra = v2.extra;
	return rc;
}

static CUresult get_memset(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS_v2 *out)
{
	CUDA_MEMSET_NODE_PARAMS_v1 v1 = { 0 };
	CUresult rc = REAL(cuGraphMemsetNodeGetParams)(node, &v1);

	out->dst = v1.dst;
	out->pitch = v1.pitch;
	out->elementSize = v1.elementSize;
	out->width = v1.width;
	out->height = v1.height;
	return rc;
}

static CUresult get_batch(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *out)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 v1 = { 0 };
	CUresult rc = REAL(cuGraphBatchMemOpNodeGetParams)(node, &v1);

	out->count = v1.count;
	out->paramArray = v1.paramArray;
	return rc;
}

static CUresult get_alloc(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS_v2 *out)
{
	CUDA_MEM_ALLOC_NODE_PARAMS_v1 v1 = { 0 };
	CUresult rc = REAL(cuGraphMemAllocNodeGetParams)(node, &v1);

	out->dptr = v1.dptr;
	out->bytesize = v1.bytesize;
	return rc;
}

CUresult node_describe(CUgraphNode node, CUgraphNodeParams *out)
{
	CUresult rc = REAL(cuGraphNodeGetType)(node, &out->type);

	if (rc != CUDA_SUCCESS)
		return rc;
	switch (out->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return get_kernel(node, &out->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return REAL(cuGraphMemcpyNodeGetParams)(node, &out->memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return get_memset(node, &out->memset);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return get_batch(node, &out->memOp);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return get_alloc(node, &out->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return REAL(cuGraphMemFreeNodeGetParams)(node, &out->free.dptr);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return REAL(cuGraphChildGraphNodeGetGraph)(node, &out->graph.graph);
	default:
		return CUDA_SUCCESS;
	}
}
