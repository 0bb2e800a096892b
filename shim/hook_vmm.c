/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: virtual memory. A reservation opens and closes; mappings come and go inside it and keep
 * its generation. Physical handles have no address and are not followed, but for multicast
 * objects: binding and unbinding changes the memory behind what is mapped from them.
 *
 * Threads: any.
 */
#include <errno.h>

#include "shim/record.h"

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
				     CUdeviceptr addr, unsigned long long flags)
{
	bool on = record_on(cuMemAddressReserve);
	CUresult rc = REAL(cuMemAddressReserve)(ptr, size, alignment, addr, flags);

	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_RESERVED, *ptr, size, 0);
	return rc;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	struct range *r = NULL;
	CUresult rc;

	if (record_on(cuMemAddressFree))
		r = record_close(ptr, STACK_SEGMENT);
	rc = REAL(cuMemAddressFree)(ptr, size);
	record_closed(r, rc);
	return rc;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
			  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	bool on = record_on(cuMemMap);
	CUresult rc = REAL(cuMemMap)(ptr, size, offset, handle, flags);

	if (on && rc == CUDA_SUCCESS)
		record_map(ptr, size, handle);
	return rc;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	bool on = record_on(cuMemUnmap);
	struct unmap_batch b = { 0 };
	CUresult rc;

	if (on)
		b = record_unmap(ptr, size);
	rc = REAL(cuMemUnmap)(ptr, size);
	if (on)
		record_closed_scope(&b, rc);
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
