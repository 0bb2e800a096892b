/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management: reservations, physical allocations, mappings, multicast. Under
 * sim_lock.
 *
 * A mapping is a range that no kernel may touch until cuMemSetAccess(). cuMemUnmap() does not wait
 * for work that is queued: such work faults, as on a GPU. Physical memory lives while a handle or a
 * mapping holds it.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct reservation {
	uint64_t base, size;
	struct reservation *next;
};
static struct reservation *reservations;

static struct reservation *reservation_of(uint64_t addr, uint64_t size)
{
	for (struct reservation *v = reservations; v; v = v->next)
		if (addr >= v->base && size <= v->size && addr - v->base <= v->size - size)
			return v;
	return NULL;
}

static bool granular(uint64_t n)
{
	return n % GRANULE == 0;
}

CUresult do_cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr addr,
				unsigned long long flags)
{
	struct reservation *v;
	uint64_t base;

	if (!out || !size || !granular(size) || (alignment & (alignment - 1)) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	base = size < 1ull << 46 ? address_take(size, alignment, addr) : 0;
	if (!base)
		return CUDA_ERROR_OUT_OF_MEMORY;
	v = malloc(sizeof(*v));
	*v = (struct reservation){ base, size, reservations };
	reservations = v;
	*out = base;
	return CUDA_SUCCESS;
}

CUresult do_cuMemAddressFree(CUdeviceptr addr, size_t size)
{
	struct range *r = range_next(addr);
	struct reservation *v;

	for (struct reservation **at = &reservations; (v = *at); at = &v->next) {
		if (v->base != addr || v->size != size)
			continue;
		if (r && r->base < addr + size)
			return CUDA_ERROR_INVALID_VALUE;	/* still mapped */
		*at = v->next;
		free(v);
		address_give(addr, size);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* A handle is valid while it is held, the object may live longer through its mappings. */
static struct phys *phys_get(CUmemGenericAllocationHandle handle)
{
	struct phys *m = obj_get((void *)(uintptr_t)handle, OBJ_PHYS);

	return m && m->refs ? m : NULL;
}

static void phys_put(struct phys *m)
{
	if (m->refs || m->maps)
		return;
	if (m->host)
		munmap(m->host, m->size);
	if (m->fd >= 0)
		close(m->fd);
	obj_drop(m);
}

static struct phys *phys_new(uint64_t size, int fd)
{
	struct phys *m;
	void *host = mmap(NULL, size, PROT_READ | PROT_WRITE,
			  fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED, fd, 0);

	if (host == MAP_FAILED)
		return NULL;
	m = obj_new(OBJ_PHYS, sizeof(*m));
	m->host = host;
	m->size = size;
	m->fd = fd;
	m->refs = 1;
	return m;
}

CUresult do_cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
			const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct phys *m;
	int fd = -1;

	if (!out || !prop || !size || !granular(size) || flags ||
	    prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	    (prop->location.id < 0 || prop->location.id >= DEVICES))
		return CUDA_ERROR_INVALID_DEVICE;
	if (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
		fd = memfd_create("sim", MFD_CLOEXEC);
		if (fd < 0 || ftruncate(fd, (off_t)size))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	m = size < 1ull << 40 ? phys_new(size, fd) : NULL;
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->prop = *prop;
	*out = (uintptr_t)m;
	return CUDA_SUCCESS;
}

CUresult do_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct phys *m = phys_get(handle);

	if (!m)
		return CUDA_ERROR_INVALID_VALUE;
	m->refs--;
	phys_put(m);
	return CUDA_SUCCESS;
}

CUresult do_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *addr)
{
	struct range *r = range_at((uintptr_t)addr);

	if (!r || r->kind != RANGE_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	r->phys->refs++;
	*out = (uintptr_t)r->phys;
	return CUDA_SUCCESS;
}

CUresult do_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
					 CUmemAllocationHandleType type, unsigned long long flags)
{
	struct phys *m = phys_get(handle);

	if (!m || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || m->fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)out = dup(m->fd);
	return CUDA_SUCCESS;
}

CUresult do_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle,
					   CUmemAllocationHandleType type)
{
	int fd = (int)(uintptr_t)os_handle;
	struct stat st, other;
	struct phys *m;

	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &st))
		return CUDA_ERROR_INVALID_VALUE;
	OBJ_EACH(m, OBJ_PHYS) {
		if (m->fd < 0 || fstat(m->fd, &other) || other.st_ino != st.st_ino)
			continue;
		m->refs++;
		*out = (uintptr_t)m;
		return CUDA_SUCCESS;
	}
	m = phys_new((uint64_t)st.st_size, dup(fd));
	if (!m)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (uintptr_t)m;
	return CUDA_SUCCESS;
}

static char *phys_bytes(const struct phys *m, uint64_t offset)
{
	if (!m->multicast)
		return m->host + offset;
	return m->bound ? m->bound->host + offset : NULL;
}

CUresult do_cuMemMap(CUdeviceptr addr, size_t size, size_t offset,
		     CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct phys *m = phys_get(handle);
	struct range *r = range_next(addr);

	if (!m || !size || !granular(addr | size | offset) || flags || offset + size > m->size)
		return CUDA_ERROR_INVALID_VALUE;
	if (!reservation_of(addr, size) || (r && r->base < addr + size))
		return CUDA_ERROR_INVALID_VALUE;	/* not reserved, or mapped already */
	r = range_new(addr, size, phys_bytes(m, offset), RANGE_MAPPED);
	r->readable = r->writable = false;
	r->phys = m;
	r->phys_offset = offset;
	m->maps++;
	return CUDA_SUCCESS;
}

/* Do whole mappings fill [addr, addr+size)? */
static bool whole_mappings(uint64_t addr, uint64_t size)
{
	uint64_t at = addr;
	struct range *r;

	while (at < addr + size) {
		r = range_exact(at);
		if (!r || r->kind != RANGE_MAPPED)
			return false;
		at += r->size;
	}
	return size && at == addr + size;
}

CUresult do_cuMemUnmap(CUdeviceptr addr, size_t size)
{
	struct phys *m;
	struct range *r;

	if (!whole_mappings(addr, size))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t at = addr, step; at < addr + size; at += step) {
		r = range_exact(at);
		step = r->size;
		m = r->phys;
		range_end(r);
		m->maps--;
		phys_put(m);
	}
	return CUDA_SUCCESS;
}

CUresult do_cuMemSetAccess(CUdeviceptr addr, size_t size, const CUmemAccessDesc *desc, size_t n)
{
	struct range *r;

	if (!desc || !n || !whole_mappings(addr, size))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t at = addr; at < addr + size; at += r->size) {
		r = range_exact(at);
		for (size_t i = 0; i < n; i++) {
			if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
				continue;
			r->readable = desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
			r->writable = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		}
	}
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
			   CUdeviceptr addr)
{
	struct range *r = range_at(addr);

	if (!r || r->kind != RANGE_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = r->writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
			     : r->readable ? CU_MEM_ACCESS_FLAGS_PROT_READ : 0;
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
					  CUmemAllocationGranularity_flags option)
{
	if (!out || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*out = GRANULE;
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out,
						   CUmemGenericAllocationHandle handle)
{
	struct phys *m = phys_get(handle);

	if (!m)
		return CUDA_ERROR_INVALID_VALUE;
	*out = m->prop;
	return CUDA_SUCCESS;
}

/* ---- multicast: one object, bound as a whole ---- */

CUresult do_cuMulticastCreate(CUmemGenericAllocationHandle *out, const CUmulticastObjectProp *prop)
{
	struct phys *m;

	if (!prop->size || !granular(prop->size))
		return CUDA_ERROR_INVALID_VALUE;
	m = obj_new(OBJ_PHYS, sizeof(*m));
	m->size = prop->size;
	m->fd = -1;
	m->refs = 1;
	m->multicast = true;
	*out = (uintptr_t)m;
	return CUDA_SUCCESS;
}

CUresult do_cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice dev)
{
	struct phys *m = phys_get(handle);

	return m && m->multicast ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMulticastGetGranularity(size_t *out, const CUmulticastObjectProp *prop,
				      CUmulticastGranularity_flags option)
{
	*out = GRANULE;
	return CUDA_SUCCESS;
}

/* What is mapped from @m gets other bytes behind it, at the same address. */
static void multicast_bind(struct phys *m, struct phys *to)
{
	if (to)
		to->maps++;
	if (m->bound) {
		m->bound->maps--;
		phys_put(m->bound);
	}
	m->bound = to;
	for (struct range *r = range_next(0); r; r = range_next(r->base + r->size))
		if (r->phys == m)
			r->host = phys_bytes(m, r->phys_offset);
}

CUresult do_cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
			       CUmemGenericAllocationHandle memory, size_t memory_offset,
			       size_t size, unsigned long long flags)
{
	struct phys *m = phys_get(handle), *to = phys_get(memory);

	if (!m || !m->multicast || !to || to->multicast || offset || memory_offset ||
	    size != m->size || to->size < size)
		return CUDA_ERROR_INVALID_VALUE;
	multicast_bind(m, to);
	return CUDA_SUCCESS;
}

CUresult do_cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset,
				CUdeviceptr addr, size_t size, unsigned long long flags)
{
	struct range *r = range_exact(addr);

	if (!r || r->kind != RANGE_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	return do_cuMulticastBindMem(handle, offset, (uintptr_t)r->phys, r->phys_offset, size,
				     flags);
}

CUresult do_cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice dev, size_t offset,
			      size_t size)
{
	struct phys *m = phys_get(handle);

	if (!m || !m->multicast || !m->bound || offset || size != m->size)
		return CUDA_ERROR_INVALID_VALUE;
	multicast_bind(m, NULL);
	return CUDA_SUCCESS;
}
