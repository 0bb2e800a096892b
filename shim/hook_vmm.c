/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: virtual memory. A reservation opens and closes; mappings come and go inside it and keep
 * its generation. Physical handles have no address and are not followed, but for what is kept
 * under a tag (arena/keep.h: it is asked first, then the driver), and for multicast objects:
 * binding and unbinding changes the memory behind what is mapped from them.
 *
 * Threads: any.
 */
#include <errno.h>

#include "shim/record.h"
#include "shim/route.h"
#include "shim/walk.h"

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
				     CUdeviceptr addr, unsigned long long flags)
{
	bool on = record_on(cuMemAddressReserve);
	struct keep_ticket t = { 0 };
	CUresult rc;

	if (on && route_reserve(ptr, size, alignment, flags, &t))
		return CUDA_SUCCESS;
	rc = REAL(cuMemAddressReserve)(ptr, size, alignment, addr, flags);
	if (on && rc == CUDA_SUCCESS) {
		record_open(RANGE_RESERVED, *ptr, size, 0);
		ERRNO_KEPT(keep_reserved(&t, *ptr, size));
	}
	return rc;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	bool on = record_on(cuMemAddressFree);
	struct range *r = NULL;
	CUresult rc;

	if (on && route_keeps() && route_answered(keep_address_free(ptr, size), &rc))
		return rc;
	if (on)
		r = record_close(ptr, STACK_SEGMENT);
	rc = REAL(cuMemAddressFree)(ptr, size);
	record_closed(r, rc);
	if (on && rc == CUDA_SUCCESS && route_keeps())
		keep_address_freed(ptr);
	return rc;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
			     const CUmemAllocationProp *prop, unsigned long long flags)
{
	bool on = record_on(cuMemCreate) && tag_depth != 0;
	struct keep_ticket t = { 0 };
	struct keep_physical p;
	CUresult rc;

	if (on) {
		p = route_physical(size, prop, flags);
		if (route_create(handle, &p, &t))
			return CUDA_SUCCESS;
	}
	rc = REAL(cuMemCreate)(handle, size, prop, flags);
	if (on && rc == CUDA_SUCCESS)
		ERRNO_KEPT(keep_created(&t, &p, *handle));
	return rc;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult rc;

	if (record_on(cuMemRelease) && route_keeps() && route_answered(keep_release(handle), &rc))
		return rc;
	return REAL(cuMemRelease)(handle);
}

/* One handle may be handed out again and again; the driver counts. */
static void handed_out_again(CUmemGenericAllocationHandle handle)
{
	if (route_keeps())
		keep_retained(handle);
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	bool on = record_on(cuMemRetainAllocationHandle);
	CUresult rc = REAL(cuMemRetainAllocationHandle)(handle, addr);

	if (on && rc == CUDA_SUCCESS)
		handed_out_again(*handle);
	return rc;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
						void *osHandle, CUmemAllocationHandleType type)
{
	bool on = record_on(cuMemImportFromShareableHandle);
	CUresult rc = REAL(cuMemImportFromShareableHandle)(handle, osHandle, type);

	if (on && rc == CUDA_SUCCESS)
		handed_out_again(*handle);
	return rc;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
			  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	bool on = record_on(cuMemMap);
	const struct keep_mapping m = { ptr, size, offset, handle };
	CUresult rc;

	if (on && route_keeps() && flags == 0 && route_map(&m, &rc))
		return rc;
	rc = REAL(cuMemMap)(ptr, size, offset, handle, flags);
	if (on && rc == CUDA_SUCCESS) {
		record_map(ptr, size, handle);
		if (route_keeps())
			ERRNO_KEPT(keep_mapped(&m));
	}
	return rc;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	bool on = record_on(cuMemUnmap);
	struct unmap_batch b = { 0 };
	CUresult rc;

	if (on && route_keeps() && route_answered(keep_unmap(ptr, size), &rc))
		return rc;
	if (on)
		b = record_unmap(ptr, size);
	rc = REAL(cuMemUnmap)(ptr, size);
	if (on)
		record_closed_scope(&b, rc);
	if (on && rc == CUDA_SUCCESS && route_keeps())
		keep_unmapped(ptr, size);
	return rc;
}

static void multicast_changed(CUmemGenericAllocationHandle handle)
{
	int saved = errno;

	ledger_undefine_scope(handle);
	errno = saved;
}

CUresult CUDAAPI cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
				     CUdeviceptr memptr, size_t size, unsigned long long flags)
{
	bool on = record_on(cuMulticastBindAddr);
	CUresult rc = REAL(cuMulticastBindAddr)(mcHandle, mcOffset, memptr, size, flags);

	if (on && rc == CUDA_SUCCESS)
		multicast_changed(mcHandle);
	return rc;
}

CUresult CUDAAPI cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
				    CUmemGenericAllocationHandle memHandle, size_t memOffset,
				    size_t size, unsigned long long flags)
{
	bool on = record_on(cuMulticastBindMem);
	CUresult rc =
		REAL(cuMulticastBindMem)(mcHandle, mcOffset, memHandle, memOffset, size, flags);

	if (on && rc == CUDA_SUCCESS)
		multicast_changed(mcHandle);
	return rc;
}

CUresult CUDAAPI cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
				   size_t mcOffset, size_t size)
{
	bool on = record_on(cuMulticastUnbind);
	CUresult rc = REAL(cuMulticastUnbind)(mcHandle, dev, mcOffset, size);

	if (on && rc == CUDA_SUCCESS)
		multicast_changed(mcHandle);
	return rc;
}
