/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of script_driver.h that hand something out. Like a real driver, they write nothing
 * when they fail; what they would have written is poison for the wrapper. One thread.
 */
#include <errno.h>

#include "tests/shim/script_driver.h"

#define EXPORT __attribute__((visibility("default")))

/* A call that writes its results with @write. */
#define HANDS_OUT(symbol, params, write)          \
	EXPORT CUresult symbol params             \
	{                                         \
		script_calls[HOOK_##symbol]++;    \
		if (script.set_errno != 0)        \
			errno = script.set_errno; \
		if (script.rc == CUDA_SUCCESS) {  \
			write;                    \
		}                                 \
		return script.rc;                 \
	}

#define GIVE(p)		(*(p) = (__typeof__(*(p)))script.address)
#define GIVE_SIZE(p)	(*(p) = (__typeof__(*(p)))script.size_bytes)
#define GIVE_IF(p)	((p) ? (void)GIVE(p) : (void)0)
#define GIVE_SIZE_IF(p) ((p) ? (void)GIVE_SIZE(p) : (void)0)

/* clang-format off */
HANDS_OUT(cuMemAlloc, (CUdeviceptr_v1 *p, unsigned int n), GIVE(p))
HANDS_OUT(cuMemAlloc_v2, (CUdeviceptr *p, size_t n), GIVE(p))
HANDS_OUT(cuMemAllocPitch,
	  (CUdeviceptr_v1 *p, unsigned int *pitch, unsigned int w, unsigned int h, unsigned int e),
	  GIVE(p); GIVE_SIZE(pitch))
HANDS_OUT(cuMemAllocPitch_v2, (CUdeviceptr *p, size_t *pitch, size_t w, size_t h, unsigned int e),
	  GIVE(p); GIVE_SIZE(pitch))
HANDS_OUT(cuMemAllocManaged, (CUdeviceptr *p, size_t n, unsigned int flags), GIVE(p))
HANDS_OUT(cuMemAllocAsync, (CUdeviceptr *p, size_t n, CUstream s), GIVE(p))
HANDS_OUT(cuMemAllocAsync_ptsz, (CUdeviceptr *p, size_t n, CUstream s), GIVE(p))
HANDS_OUT(cuMemAllocFromPoolAsync, (CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream s),
	  GIVE(p))
HANDS_OUT(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream s),
	  GIVE(p))
HANDS_OUT(cuMemPoolImportPointer, (CUdeviceptr *p, CUmemoryPool pool, CUmemPoolPtrExportData *d),
	  GIVE(p))
HANDS_OUT(cuMemAllocHost, (void **p, unsigned int n), GIVE(p))
HANDS_OUT(cuMemAllocHost_v2, (void **p, size_t n), GIVE(p))
HANDS_OUT(cuMemHostAlloc, (void **p, size_t n, unsigned int flags), GIVE(p))
HANDS_OUT(cuMemHostGetDevicePointer, (CUdeviceptr_v1 *d, void *p, unsigned int flags), GIVE(d))
HANDS_OUT(cuMemHostGetDevicePointer_v2, (CUdeviceptr *d, void *p, unsigned int flags), GIVE(d))
HANDS_OUT(cuMemAddressReserve,
	  (CUdeviceptr *p, size_t n, size_t align, CUdeviceptr addr, unsigned long long flags),
	  GIVE(p))
HANDS_OUT(cuIpcOpenMemHandle, (CUdeviceptr *p, CUipcMemHandle h, unsigned int flags), GIVE(p))
HANDS_OUT(cuIpcOpenMemHandle_v2, (CUdeviceptr *p, CUipcMemHandle h, unsigned int flags), GIVE(p))
HANDS_OUT(cuExternalMemoryGetMappedBuffer,
	  (CUdeviceptr *p, CUexternalMemory m, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *d), GIVE(p))
HANDS_OUT(cuModuleGetGlobal, (CUdeviceptr_v1 *p, unsigned int *n, CUmodule m, const char *name),
	  GIVE_IF(p); GIVE_SIZE_IF(n))
HANDS_OUT(cuModuleGetGlobal_v2, (CUdeviceptr *p, size_t *n, CUmodule m, const char *name),
	  GIVE_IF(p); GIVE_SIZE_IF(n))
HANDS_OUT(cuLibraryGetGlobal, (CUdeviceptr *p, size_t *n, CUlibrary l, const char *name),
	  GIVE_IF(p); GIVE_SIZE_IF(n))
HANDS_OUT(cuLibraryGetManaged, (CUdeviceptr *p, size_t *n, CUlibrary l, const char *name),
	  GIVE_IF(p); GIVE_SIZE_IF(n))
HANDS_OUT(cuDevicePrimaryCtxRetain, (CUcontext *ctx, CUdevice dev),
	  *ctx = (CUcontext)script.context)
HANDS_OUT(cuGraphInstantiateWithFlags,
	  (CUgraphExec *exec, CUgraph graph, unsigned long long flags), GIVE(exec))
HANDS_OUT(cuStreamEndCapture, (CUstream s, CUgraph *graph), *graph = SCRIPT_GRAPH)
/* clang-format on */

EXPORT CUresult cuStreamQuery(CUstream s)
{
	script_calls[HOOK_cuStreamQuery]++;
	if (script.set_errno != 0)
		errno = script.set_errno;
	return script.stream_query != CUDA_SUCCESS ? script.stream_query : script.rc;
}

EXPORT CUresult cuEventQuery(CUevent e)
{
	script_calls[HOOK_cuEventQuery]++;
	if (script.set_errno != 0)
		errno = script.set_errno;
	return script.event_query != CUDA_SUCCESS ? script.event_query : script.rc;
}

/* ---- asked by the shim ---- */

EXPORT CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	*ctx = (CUcontext)script.context;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	*active = script.primary_active;
	return script.state_rc;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
	*base = p;
	*size = script.size_bytes;
	return script.extent_rc;
}

EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id,
					  CUgraph *graph, const CUgraphNode **deps,
					  const CUgraphEdgeData **edges, size_t *count)
{
	static CUgraphNode node = SCRIPT_NODE;

	*status =
		script.capture_id ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	*id = script.capture_id;
	*graph = SCRIPT_GRAPH;
	*deps = &node;
	*count = 1;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	if (nodes)
		nodes[0] = SCRIPT_NODE;
	*count = 1;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	*type = script.node_type;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
	static void *params[2] = { &script.words[0], &script.words[1] };

	*p = (CUDA_KERNEL_NODE_PARAMS_v2){ .func = (CUfunction)0xf000, .kernelParams = params };
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction f, size_t i, size_t *offset, size_t *size)
{
	*offset = 8 * i;
	*size = 8;
	script_layouts += i == 0;
	return i < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction f)
{
	*name = "kernel";
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *p)
{
	*p = (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = script.words[0],
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = script.words[1],
		.WidthInBytes = 8,
		.Height = 1,
		.Depth = 1,
	};
	return CUDA_SUCCESS;
}
