/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: stream-ordered memory. Calls are judged in call order: the pool hands the address out
 * again only to work that is ordered behind the free, and graphs are launched, not ordered.
 *
 * Slots are asked first (route.h). On a stream that captures the same calls build nodes. An
 * allocation node gives an address that belongs to the graph, a free node frees nothing now;
 * hook_capture.c knows both.
 *
 * Threads: any.
 */
#include "shim/hook_capture.h"
#include "shim/record.h"
#include "shim/route.h"

static bool captures(uint64_t stream)
{
	return load_relaxed(&captures_active) != 0 && capture_active_on(stream);
}

/* Serve an allocation that is no node of a graph. @param pool NULL: the stream's own. */
static bool pool_routed(CUdeviceptr *out, size_t size_bytes, CUmemoryPool pool, uint64_t stream)
{
	return tag_depth != 0 && !captures(stream) && route_async(out, size_bytes, pool, stream);
}

/* Is the free, which is no node of a graph, that of a slot's memory? */
static bool pool_absorbed(uint64_t addr, uint64_t stream, CUresult *rc)
{
	return !captures(stream) && route_free(addr, rc);
}

static void pool_opened(uint64_t base, uint64_t size_bytes, uint64_t stream)
{
	if (captures(stream))
		capture_note_alloc(stream, base, size_bytes);
	else
		record_open(RANGE_POOL, base, size_bytes, 0);
}

static struct range *pool_close(uint64_t base, uint64_t stream)
{
	return captures(stream) ? NULL : record_close(base, STACK_FREQUENT);
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	bool on = record_on(cuMemAllocAsync);
	CUresult rc;

	if (on && pool_routed(dptr, bytesize, NULL, STREAM_LEGACY(hStream)))
		return CUDA_SUCCESS;
	rc = REAL(cuMemAllocAsync)(dptr, bytesize, hStream);
	if (on && rc == CUDA_SUCCESS)
		pool_opened(*dptr, bytesize, STREAM_LEGACY(hStream));
	return rc;
}

CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	bool on = record_on(cuMemAllocAsync_ptsz);
	CUresult rc;

	if (on && pool_routed(dptr, bytesize, NULL, STREAM_PER_THREAD(hStream)))
		return CUDA_SUCCESS;
	rc = REAL(cuMemAllocAsync_ptsz)(dptr, bytesize, hStream);
	if (on && rc == CUDA_SUCCESS)
		pool_opened(*dptr, bytesize, STREAM_PER_THREAD(hStream));
	return rc;
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
					 CUstream hStream)
{
	bool on = record_on(cuMemAllocFromPoolAsync);
	CUresult rc;

	if (on && pool && pool_routed(dptr, bytesize, pool, STREAM_LEGACY(hStream)))
		return CUDA_SUCCESS;
	rc = REAL(cuMemAllocFromPoolAsync)(dptr, bytesize, pool, hStream);
	if (on && rc == CUDA_SUCCESS)
		pool_opened(*dptr, bytesize, STREAM_LEGACY(hStream));
	return rc;
}

CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
					      CUstream hStream)
{
	bool on = record_on(cuMemAllocFromPoolAsync_ptsz);
	CUresult rc;

	if (on && pool && pool_routed(dptr, bytesize, pool, STREAM_PER_THREAD(hStream)))
		return CUDA_SUCCESS;
	rc = REAL(cuMemAllocFromPoolAsync_ptsz)(dptr, bytesize, pool, hStream);
	if (on && rc == CUDA_SUCCESS)
		pool_opened(*dptr, bytesize, STREAM_PER_THREAD(hStream));
	return rc;
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	bool on = record_on(cuMemFreeAsync);
	struct range *r = NULL;
	CUresult rc;

	if (on && pool_absorbed(dptr, STREAM_LEGACY(hStream), &rc))
		return rc;
	if (on)
		r = pool_close(dptr, STREAM_LEGACY(hStream));
	rc = REAL(cuMemFreeAsync)(dptr, hStream);
	record_closed(r, rc);
	return rc;
}

CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	bool on = record_on(cuMemFreeAsync_ptsz);
	struct range *r = NULL;
	CUresult rc;

	if (on && pool_absorbed(dptr, STREAM_PER_THREAD(hStream), &rc))
		return rc;
	if (on)
		r = pool_close(dptr, STREAM_PER_THREAD(hStream));
	rc = REAL(cuMemFreeAsync_ptsz)(dptr, hStream);
	record_closed(r, rc);
	return rc;
}

CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
					CUmemPoolPtrExportData *shareData)
{
	bool on = record_on(cuMemPoolImportPointer);
	CUresult rc = REAL(cuMemPoolImportPointer)(ptr_out, pool, shareData);

	if (on && rc == CUDA_SUCCESS)
		record_open_imported(*ptr_out);
	return rc;
}
