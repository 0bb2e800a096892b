/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the empty driver that answers: addresses, contexts, and graphs of kernel nodes
 * whose parameters are made up on the spot. A handle says what it stands for: a graph is its
 * number of nodes, a node its place. Nothing is kept, so that nothing has to be found.
 *
 * Threads: any; addresses and parameters are thread-local.
 */
#include "shim/hooks.h"
#include "tests/bench/driver.h"

#define EXPORT	  __attribute__((visibility("default")))
#define CONTEXT	  ((CUcontext)0x1000)
#define NODE_BASE 0x100000000ull

static _Atomic uint64_t threads_seen, execs_made;
static _Thread_local uint64_t thread_base, depth;

/* Addresses are handed out as from a stack: a free gives the last one back. */
static CUdeviceptr take(void)
{
	if (thread_base == 0)
		thread_base = BENCH_MEMORY + add_relaxed(&threads_seen, 1) * BENCH_THREAD_BYTES;
	return thread_base + depth++ * BENCH_RANGE_BYTES;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	*dptr = take();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	depth--;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	*dptr = take();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	depth--;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	*ctx = CONTEXT;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	*pfn = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
				    CUdriverProcAddressQueryResult *status)
{
	*pfn = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	size_t have = (uint64_t)graph & BENCH_NODES_MASK,
	       first = (uint64_t)graph >> BENCH_NODES_BITS;

	if (nodes != NULL)
		for (size_t i = 0; i < have && i < *count; i++)
			nodes[i] = (CUgraphNode)(NODE_BASE + first + i);
	*count = have;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	*type = CU_GRAPH_NODE_TYPE_KERNEL;
	return CUDA_SUCCESS;
}

static uint64_t pointer(uint64_t place, unsigned i)
{
	uint64_t n = place * BENCH_POINTERS + i;
	uint64_t ranges = place & BENCH_SPREAD ? BENCH_RANGES : BENCH_SEGMENTS;

	return BENCH_MEMORY + n % ranges * BENCH_RANGE_BYTES + n / ranges * 512 % BENCH_RANGE_BYTES;
}

/* Four pointers into memory that was handed out, two integers: an elementwise kernel. */
EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
	static _Thread_local uint64_t values[BENCH_PARAMS];
	static _Thread_local void *params[BENCH_PARAMS];
	uint64_t place = (uint64_t)node - NODE_BASE;

	for (unsigned i = 0; i < BENCH_PARAMS; i++) {
		values[i] = i < BENCH_POINTERS ? pointer(place, i) : 1024 + i;
		params[i] = &values[i];
	}
	*p = (CUDA_KERNEL_NODE_PARAMS_v2){
		.func = (CUfunction)(0x2000 + place % BENCH_KERNELS * 16),
		.kernelParams = params,
	};
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction f, size_t i, size_t *offset, size_t *size)
{
	if (i >= BENCH_PARAMS)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = i < BENCH_POINTERS ? 8 * i : 8 * BENCH_POINTERS + 4 * (i - BENCH_POINTERS);
	*size = i < BENCH_POINTERS ? 8 : 4;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction f)
{
	*name = "bench_kernel";
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
					    unsigned long long flags)
{
	*exec = (CUgraphExec)(0x5500000000ull + add_relaxed(&execs_made, 1) * 256);
	return CUDA_SUCCESS;
}
