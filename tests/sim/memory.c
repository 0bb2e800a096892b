/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation and free: device, pitched, managed, pinned and registered host memory; queries about
 * pointers. Under sim_lock.
 *
 * Requests up to 1 MiB share 2 MiB pages in pieces of 512 bytes, larger ones get pages of their
 * own; a freed piece goes to the next request of its size. A free waits for all work that was
 * launched.
 */
#include "tests/sim/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_MAX	(1ull << 20)

struct piece {
	uint64_t base;
	char *host;
	struct piece *next;
};
static struct piece *pieces[SMALL_MAX / SMALL_GRANULE + 1];
static struct piece page;	/* what is left of the newest shared page */
static uint64_t page_left;

static CUresult small_new(uint64_t size, uint64_t *base, char **host)
{
	struct piece **list = &pieces[size / SMALL_GRANULE], *p = *list;

	if (p) {
		*base = p->base;
		*host = p->host;
		*list = p->next;
		free(p);
		return CUDA_SUCCESS;
	}
	if (page_left < size) {
		page.base = address_take(GRANULE, 0, 0);
		page.host = page.base ? backing_new(GRANULE) : NULL;
		if (!page.host)
			return CUDA_ERROR_OUT_OF_MEMORY;
		page_left = GRANULE;
	}
	*base = page.base;
	*host = page.host;
	page.base += size;
	page.host += size;
	page_left -= size;
	return CUDA_SUCCESS;
}

CUresult device_new(uint64_t size, enum range_kind kind, struct range **out)
{
	bool small = size <= SMALL_MAX;
	char *host = NULL;
	uint64_t base = 0;
	CUresult rc;

	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	if (small) {
		rc = small_new(ROUND_UP(size, SMALL_GRANULE), &base, &host);
		if (rc)
			return rc;
	} else {
		if (size < 1ull << 40)
			base = address_take(ROUND_UP(size, GRANULE), 0, 0);
		host = base ? backing_new(ROUND_UP(size, GRANULE)) : NULL;
		if (!host)
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = range_new(base, size, host, kind);
	(*out)->small = small;
	return CUDA_SUCCESS;
}

static void device_give(const struct range *r)
{
	struct piece *p;
	uint64_t size;

	if (!r->small) {
		backing_free(r->host, ROUND_UP(r->size, GRANULE));
		address_give(r->base, ROUND_UP(r->size, GRANULE));
		return;
	}
	size = ROUND_UP(r->size, SMALL_GRANULE);
	p = malloc(sizeof(*p));
	*p = (struct piece){ r->base, r->host, pieces[size / SMALL_GRANULE] };
	pieces[size / SMALL_GRANULE] = p;
}

void device_free(struct range *r)
{
	switch (r->kind) {
	case RANGE_DEVICE:
	case RANGE_ASYNC:
	case RANGE_GLOBAL:
		alias_orphan(r);
		if (r->pool)
			r->pool->used -= r->size;
		device_give(r);
		break;
	case RANGE_HOST:
	case RANGE_MANAGED:
		host_give(r->host, ROUND_UP(r->size, 4096));
		break;
	case RANGE_IPC:
	case RANGE_IMPORT:
		address_give(r->base, ROUND_UP(r->size, GRANULE));
		break;
	default:	/* the application's own memory; a mapping; a graph's */
		break;
	}
	range_end(r);
}

CUresult do_cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
	struct range *r;
	CUresult rc;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	rc = device_new(size, RANGE_DEVICE, &r);
	if (!rc)
		*out = r->base;
	return rc;
}

CUresult do_cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
			       unsigned int element)
{
	if (element != 4 && element != 8 && element != 16)
		return CUDA_ERROR_INVALID_VALUE;
	*pitch = ROUND_UP(width, SMALL_GRANULE);
	return do_cuMemAlloc_v2(out, *pitch * height);
}

static CUresult host_new(void **out, size_t size, enum range_kind kind)
{
	char *host;

	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	host = size < 1ull << 40 ? host_take(ROUND_UP(size, 4096)) : NULL;
	if (!host)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range_new((uintptr_t)host, size, host, kind);
	*out = host;
	return CUDA_SUCCESS;
}

CUresult do_cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	return host_new((void **)out, size, RANGE_MANAGED);
}

CUresult do_cuMemAllocHost_v2(void **out, size_t size)
{
	return host_new(out, size, RANGE_HOST);
}

CUresult do_cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
	return host_new(out, size, RANGE_HOST);
}

CUresult do_cuMemFree_v2(CUdeviceptr ptr)
{
	struct range *r;

	if (!ptr)
		return CUDA_SUCCESS;	/* as the real one */
	stream_finish_all();
	r = range_exact(ptr);
	if (!r || r->freeing)
		return CUDA_ERROR_INVALID_VALUE;
	switch (r->kind) {
	case RANGE_DEVICE:
	case RANGE_MANAGED:
	case RANGE_IMPORT:
		device_free(r);
		return CUDA_SUCCESS;
	case RANGE_ASYNC:
		pool_free_block(r);
		return CUDA_SUCCESS;
	case RANGE_GRAPH:
		range_end(r);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult do_cuMemFreeHost(void *p)
{
	struct range *r;

	stream_finish_all();
	r = range_exact((uintptr_t)p);
	if (!r || r->kind != RANGE_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	device_free(r);
	return CUDA_SUCCESS;
}

CUresult do_cuMemHostRegister_v2(void *p, size_t size, unsigned int flags)
{
	struct range *r = range_next((uintptr_t)p);

	if (!p || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (r && r->base < (uintptr_t)p + size)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	range_new((uintptr_t)p, size, p, RANGE_REGISTERED);
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuMemHostRegister, do_cuMemHostRegister_v2);

CUresult do_cuMemHostUnregister(void *p)
{
	struct range *r;

	stream_finish_all();
	r = range_exact((uintptr_t)p);
	if (!r || r->kind != RANGE_REGISTERED)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	range_end(r);
	return CUDA_SUCCESS;
}

CUresult do_cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned int flags)
{
	struct range *r = range_at((uintptr_t)p);

	if (flags || !r || (r->kind != RANGE_HOST && r->kind != RANGE_REGISTERED))
		return CUDA_ERROR_INVALID_VALUE;
	*out = (uintptr_t)p;	/* unified addressing: the same */
	return CUDA_SUCCESS;
}

CUresult do_cuMemHostGetFlags(unsigned int *flags, void *p)
{
	struct range *r = range_at((uintptr_t)p);

	*flags = CU_MEMHOSTALLOC_DEVICEMAP;
	return r && r->kind == RANGE_HOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
	struct range *r = range_at(p);

	if (!r)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = r->base;
	if (size)
		*size = r->size;
	return CUDA_SUCCESS;
}

static CUresult attribute_of(const struct range *r, CUpointer_attribute attribute, uint64_t p,
			     void *data)
{
	bool host = r->kind == RANGE_HOST || r->kind == RANGE_REGISTERED;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = (CUcontext)r->ctx;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = p;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!host && r->kind != RANGE_MANAGED)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)(uintptr_t)p;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(uint64_t *)data = r->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned char *)data = r->kind == RANGE_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = r->ctx ? r->ctx->device : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(unsigned *)data = r->readable ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = r->base;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = r->size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = (CUmemoryPool)r->pool;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult do_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr p)
{
	struct range *r = range_at(p);

	if (attribute == CU_POINTER_ATTRIBUTE_MAPPED) {
		*(unsigned char *)data = r != NULL;
		return CUDA_SUCCESS;
	}
	return r ? attribute_of(r, attribute, p, data) : CUDA_ERROR_INVALID_VALUE;
}

/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: there is nothing to keep in order. */
CUresult do_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr p)
{
	return range_at(p) && value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Unlike the single form it answers for unknown pointers: with zeroes. */
CUresult do_cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes, void **data,
				   CUdeviceptr p)
{
	struct range *r = range_at(p);

	for (unsigned i = 0; i < n; i++) {
		if (attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED) {
			*(unsigned char *)data[i] = r != NULL;
			continue;
		}
		if (r && attribute_of(r, attributes[i], p, data[i]) == CUDA_SUCCESS)
			continue;
		if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)data[i] = -2;
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED)
			*(unsigned char *)data[i] = 0;
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
			*(unsigned *)data[i] = 0;
		else
			*(void **)data[i] = NULL;
	}
	return CUDA_SUCCESS;
}
