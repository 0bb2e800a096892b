/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: device, pitched and managed memory, and cuMemFree, which also frees what came from a pool
 * or an import. Wrappers only: slots are asked first (route.h), then the driver, in
 * the order of ledger.h (open after, close before).
 *
 * Threads: any.
 */
#include "shim/record.h"
#include "shim/route.h"

CUresult CUDAAPI cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	bool on = record_on(cuMemAlloc);
	CUresult rc = REAL(cuMemAlloc)(dptr, bytesize);

	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_DEVICE, *dptr, bytesize, 0);
	return rc;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	bool on = record_on(cuMemAlloc_v2);
	CUresult rc;

	if (on && route_alloc(dptr, bytesize))
		return CUDA_SUCCESS;
	rc = REAL(cuMemAlloc_v2)(dptr, bytesize);
	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_DEVICE, *dptr, bytesize, 0);
	return rc;
}

CUresult CUDAAPI cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch,
				 unsigned int WidthInBytes, unsigned int Height,
				 unsigned int ElementSizeBytes)
{
	bool on = record_on(cuMemAllocPitch);
	CUresult rc = REAL(cuMemAllocPitch)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);

	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_DEVICE, *dptr, (uint64_t)*pPitch * Height, 0);
	return rc;
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
				    size_t Height, unsigned int ElementSizeBytes)
{
	bool on = record_on(cuMemAllocPitch_v2);
	CUresult rc;

	if (on && route_pitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes))
		return CUDA_SUCCESS;
	rc = REAL(cuMemAllocPitch_v2)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_DEVICE, *dptr, *pPitch * Height, 0);
	return rc;
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	bool on = record_on(cuMemAllocManaged);
	CUresult rc = REAL(cuMemAllocManaged)(dptr, bytesize, flags);

	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_MANAGED, *dptr, bytesize, 0);
	return rc;
}

CUresult CUDAAPI cuMemFree(CUdeviceptr_v1 dptr)
{
	struct range *r = record_on(cuMemFree) ? record_close(dptr, STACK_SEGMENT) : NULL;
	CUresult rc = REAL(cuMemFree)(dptr);

	record_closed(r, rc);
	return rc;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr)
{
	bool on = record_on(cuMemFree_v2);
	struct range *r = NULL;
	CUresult rc;

	if (on && route_free(dptr, &rc))
		return rc;
	if (on)
		r = record_close(dptr, STACK_SEGMENT);
	rc = REAL(cuMemFree_v2)(dptr);
	record_closed(r, rc);
	return rc;
}
