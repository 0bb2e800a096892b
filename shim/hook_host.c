/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: page-locked and registered host memory. With unified addressing the device uses the host
 * address; where the driver gives another one, that one opens as an alias which closes together
 * with its host memory (scope of the alias: base of the host range).
 *
 * Threads: any.
 */
#include "shim/record.h"

#define ADDRESS(p) ((uint64_t)(uintptr_t)(p))

/* What one call frees: the host range and its aliases. */
struct host_close {
	struct range *range;
	struct unmap_batch aliases;
};

static struct host_close host_close(void *p)
{
	struct host_close c = { .range = record_close(ADDRESS(p), STACK_SEGMENT) };

	if (c.range != NULL)
		c.aliases = record_close_scope(RANGE_HOST, ADDRESS(p));
	return c;
}

static void host_closed(struct host_close *c, CUresult rc)
{
	if (c->range == NULL)
		return;
	record_closed_scope(&c->aliases, rc);
	record_closed(c->range, rc);
}

static void alias_opened(uint64_t device, uint64_t host)
{
	struct range_view v;

	if (device != host && ledger_find(host, &v) && v.kind == RANGE_HOST)
		record_open_once(RANGE_HOST, device - (host - v.base), v.size_bytes, v.base);
}

CUresult CUDAAPI cuMemAllocHost(void **pp, unsigned int bytesize)
{
	bool on = record_on(cuMemAllocHost);
	CUresult rc = REAL(cuMemAllocHost)(pp, bytesize);

	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_HOST, ADDRESS(*pp), bytesize, 0);
	return rc;
}

CUresult CUDAAPI cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	bool on = record_on(cuMemAllocHost_v2);
	CUresult rc = REAL(cuMemAllocHost_v2)(pp, bytesize);

	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_HOST, ADDRESS(*pp), bytesize, 0);
	return rc;
}

CUresult CUDAAPI cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	bool on = record_on(cuMemHostAlloc);
	CUresult rc = REAL(cuMemHostAlloc)(pp, bytesize, Flags);

	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_HOST, ADDRESS(*pp), bytesize, 0);
	return rc;
}

CUresult CUDAAPI cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	bool on = record_on(cuMemHostRegister);
	CUresult rc = REAL(cuMemHostRegister)(p, bytesize, Flags);

	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_HOST, ADDRESS(p), bytesize, 0);
	return rc;
}

CUresult CUDAAPI cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	bool on = record_on(cuMemHostRegister_v2);
	CUresult rc = REAL(cuMemHostRegister_v2)(p, bytesize, Flags);

	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_HOST, ADDRESS(p), bytesize, 0);
	return rc;
}

CUresult CUDAAPI cuMemFreeHost(void *p)
{
	struct host_close c = { 0 };
	CUresult rc;

	if (record_on(cuMemFreeHost))
		c = host_close(p);
	rc = REAL(cuMemFreeHost)(p);
	host_closed(&c, rc);
	return rc;
}

CUresult CUDAAPI cuMemHostUnregister(void *p)
{
	struct host_close c = { 0 };
	CUresult rc;

	if (record_on(cuMemHostUnregister))
		c = host_close(p);
	rc = REAL(cuMemHostUnregister)(p);
	host_closed(&c, rc);
	return rc;
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr_v1 *pdptr, void *p, unsigned int Flags)
{
	bool on = record_on(cuMemHostGetDevicePointer);
	CUresult rc = REAL(cuMemHostGetDevicePointer)(pdptr, p, Flags);

	/* 32 bits may be the low half of the same address: not an alias. */
	if (on && rc == CUDA_SUCCESS && *pdptr != (CUdeviceptr_v1)ADDRESS(p))
		alias_opened(*pdptr, ADDRESS(p));
	return rc;
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	bool on = record_on(cuMemHostGetDevicePointer_v2);
	CUresult rc = REAL(cuMemHostGetDevicePointer_v2)(pdptr, p, Flags);

	if (on && rc == CUDA_SUCCESS)
		alias_opened(*pdptr, ADDRESS(p));
	return rc;
}
