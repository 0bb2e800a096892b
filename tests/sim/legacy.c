/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first ABI, with addresses of 32 bits. Under sim_lock.
 *
 * What its cuMemAlloc() hands out lies below 4 GiB; an answer that does not fit into 32 bits is
 * CUDA_ERROR_INVALID_VALUE. (How a driver of today answers is not known; nobody asks any more.)
 */
#include "tests/sim/sim.h"

CUresult do_cuMemAlloc(CUdeviceptr_v1 *out, unsigned int size)
{
	uint64_t n = ROUND_UP((uint64_t)size, GRANULE), base;
	char *host;

	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	base = address_low(n);
	host = base ? backing_new(n) : NULL;
	if (!host)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range_new(base, size, host, RANGE_DEVICE);
	*out = (CUdeviceptr_v1)base;
	return CUDA_SUCCESS;
}

CUresult do_cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned int *pitch, unsigned int width,
			    unsigned int height, unsigned int element)
{
	if (element != 4 && element != 8 && element != 16)
		return CUDA_ERROR_INVALID_VALUE;
	*pitch = (unsigned)ROUND_UP(width, SMALL_GRANULE);
	return do_cuMemAlloc(out, *pitch * height);
}

CUresult do_cuMemFree(CUdeviceptr_v1 p)
{
	return do_cuMemFree_v2(p);
}

CUresult do_cuMemAllocHost(void **out, unsigned int size)
{
	return do_cuMemAllocHost_v2(out, size);
}

/* The answer in 32 bits, if it fits. */
static CUresult narrow(CUresult rc, uint64_t value, unsigned *out)
{
	if (!rc && value > UINT32_MAX)
		rc = CUDA_ERROR_INVALID_VALUE;
	if (!rc && out)
		*out = (unsigned)value;
	return rc;
}

CUresult do_cuMemHostGetDevicePointer(CUdeviceptr_v1 *out, void *p, unsigned int flags)
{
	CUdeviceptr wide = 0;
	CUresult rc = do_cuMemHostGetDevicePointer_v2(&wide, p, flags);

	return narrow(rc, wide, out);
}

CUresult do_cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *size, CUdeviceptr_v1 p)
{
	CUdeviceptr wide = 0;
	size_t n = 0;
	CUresult rc = do_cuMemGetAddressRange_v2(&wide, &n, p);

	rc = narrow(rc, wide, base);
	return narrow(rc, n, size);
}

CUresult do_cuModuleGetGlobal(CUdeviceptr_v1 *out, unsigned int *size, CUmodule m, const char *name)
{
	CUdeviceptr wide = 0;
	size_t n = 0;
	CUresult rc = do_cuModuleGetGlobal_v2(&wide, &n, m, name);

	rc = narrow(rc, wide, out);
	return narrow(rc, n, size);
}

CUresult do_cuMemcpyHtoD(CUdeviceptr_v1 dst, const void *src, unsigned int n)
{
	return do_cuMemcpyHtoD_v2(dst, src, n);
}

CUresult do_cuMemcpyHtoDAsync(CUdeviceptr_v1 dst, const void *src, unsigned int n, CUstream s)
{
	return do_cuMemcpyHtoDAsync_v2(dst, src, n, s);
}

CUresult do_cuMemcpyDtoH(void *dst, CUdeviceptr_v1 src, unsigned int n)
{
	return do_cuMemcpyDtoH_v2(dst, src, n);
}

CUresult do_cuMemcpyDtoHAsync(void *dst, CUdeviceptr_v1 src, unsigned int n, CUstream s)
{
	return do_cuMemcpyDtoHAsync_v2(dst, src, n, s);
}

CUresult do_cuMemcpyDtoD(CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int n)
{
	return do_cuMemcpyDtoD_v2(dst, src, n);
}

CUresult do_cuMemcpyDtoDAsync(CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int n, CUstream s)
{
	return do_cuMemcpyDtoDAsync_v2(dst, src, n, s);
}

/* ---- two and three dimensions: the same fields, narrower ---- */

static CUDA_MEMCPY2D wide_2d(const CUDA_MEMCPY2D_v1 *c)
{
	return (CUDA_MEMCPY2D){
		.srcXInBytes = c->srcXInBytes, .srcY = c->srcY, .srcMemoryType = c->srcMemoryType,
		.srcHost = c->srcHost, .srcDevice = c->srcDevice, .srcPitch = c->srcPitch,
		.dstXInBytes = c->dstXInBytes, .dstY = c->dstY, .dstMemoryType = c->dstMemoryType,
		.dstHost = c->dstHost, .dstDevice = c->dstDevice, .dstPitch = c->dstPitch,
		.WidthInBytes = c->WidthInBytes, .Height = c->Height,
	};
}

static CUDA_MEMCPY3D wide_3d(const CUDA_MEMCPY3D_v1 *c)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = c->srcXInBytes, .srcY = c->srcY, .srcZ = c->srcZ,
		.srcMemoryType = c->srcMemoryType, .srcHost = c->srcHost,
		.srcDevice = c->srcDevice, .srcPitch = c->srcPitch, .srcHeight = c->srcHeight,
		.dstXInBytes = c->dstXInBytes, .dstY = c->dstY, .dstZ = c->dstZ,
		.dstMemoryType = c->dstMemoryType, .dstHost = c->dstHost,
		.dstDevice = c->dstDevice, .dstPitch = c->dstPitch, .dstHeight = c->dstHeight,
		.WidthInBytes = c->WidthInBytes, .Height = c->Height, .Depth = c->Depth,
	};
}

CUresult do_cuMemcpy2D(const CUDA_MEMCPY2D_v1 *c)
{
	CUDA_MEMCPY2D wide = wide_2d(c);

	return do_cuMemcpy2D_v2(&wide);
}
SAME_ABI(do_cuMemcpy2DUnaligned, do_cuMemcpy2D);

CUresult do_cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *c, CUstream s)
{
	CUDA_MEMCPY2D wide = wide_2d(c);

	return do_cuMemcpy2DAsync_v2(&wide, s);
}

CUresult do_cuMemcpy3D(const CUDA_MEMCPY3D_v1 *c)
{
	CUDA_MEMCPY3D wide = wide_3d(c);

	return do_cuMemcpy3D_v2(&wide);
}

CUresult do_cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *c, CUstream s)
{
	CUDA_MEMCPY3D wide = wide_3d(c);

	return do_cuMemcpy3DAsync_v2(&wide, s);
}

#define FILLS(bits, value_t)                                                                  \
	CUresult do_cuMemsetD##bits(CUdeviceptr_v1 dst, value_t v, unsigned int n)            \
	{                                                                                     \
		return do_cuMemsetD##bits##_v2(dst, v, n);                                    \
	}                                                                                     \
	CUresult do_cuMemsetD2D##bits(CUdeviceptr_v1 dst, unsigned int pitch, value_t v,      \
				      unsigned int width, unsigned int height)                \
	{                                                                                     \
		return do_cuMemsetD2D##bits##_v2(dst, pitch, v, width, height);               \
	}
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)
