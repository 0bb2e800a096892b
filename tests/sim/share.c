/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that comes from elsewhere: IPC handles, external memory. Under sim_lock.
 *
 * Both ends live in this process (the real driver refuses to open its own IPC handle; here that is
 * what makes it testable). An opened handle is a second address for the same bytes; opening it
 * again gives the same address and counts.
 */
#include "tests/sim/sim.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned aliases;	/* ever made: none, nothing to look for */

CUresult alias_new(uint64_t size, char *host, enum range_kind kind, struct range **out)
{
	uint64_t base = address_take(ROUND_UP(size, GRANULE), 0, 0);

	if (!base)
		return CUDA_ERROR_OUT_OF_MEMORY;
	aliases++;
	*out = range_new(base, size, host, kind);
	return CUDA_SUCCESS;
}

/* The owner freed the bytes: the other addresses stay open, but an access is illegal. */
void alias_orphan(const struct range *source)
{
	if (!aliases)
		return;
	for (struct range *r = range_next(0); r; r = range_next(r->base + r->size)) {
		if ((r->kind != RANGE_IPC && r->kind != RANGE_IMPORT) || r->host < source->host ||
		    r->host >= source->host + source->size)
			continue;
		r->readable = r->writable = false;
		r->host = NULL;
	}
}

struct ipc_handle { uint64_t magic, base, id; };
#define IPC_MAGIC	0x636d697369706331ull

CUresult do_cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
	struct range *r = range_at(p);
	struct ipc_handle h;

	if (!r || r->kind != RANGE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	h = (struct ipc_handle){ IPC_MAGIC, r->base, r->id };
	memset(out, 0, sizeof(*out));
	memcpy(out, &h, sizeof(h));
	return CUDA_SUCCESS;
}

static struct range *opened(const char *host)
{
	for (struct range *r = range_next(0); r; r = range_next(r->base + r->size))
		if (r->kind == RANGE_IPC && r->host == host)
			return r;
	return NULL;
}

CUresult do_cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	struct range *from, *r;
	struct ipc_handle h;
	CUresult rc;

	memcpy(&h, &handle, sizeof(h));
	from = range_exact(h.base);
	if (h.magic != IPC_MAGIC || !from || from->id != h.id)
		return CUDA_ERROR_INVALID_VALUE;
	r = opened(from->host);
	if (!r) {
		rc = alias_new(from->size, from->host, RANGE_IPC, &r);
		if (rc)
			return rc;
	}
	r->opens++;
	*out = r->base;
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuIpcOpenMemHandle, do_cuIpcOpenMemHandle_v2);

CUresult do_cuIpcCloseMemHandle(CUdeviceptr p)
{
	struct range *r;

	stream_finish_all();
	r = range_exact(p);
	if (!r || r->kind != RANGE_IPC)
		return CUDA_ERROR_INVALID_VALUE;
	if (!--r->opens)
		device_free(r);
	return CUDA_SUCCESS;
}

struct extmem {
	struct obj obj;
	char *host;
	uint64_t size;
};

/* The descriptor is any file that can be mapped: a memfd in the tests. */
CUresult do_cuImportExternalMemory(CUexternalMemory *out,
				   const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
	struct extmem *m;
	void *host;

	if (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD || !desc->size)
		return CUDA_ERROR_INVALID_VALUE;
	host = mmap(NULL, desc->size, PROT_READ | PROT_WRITE, MAP_SHARED, desc->handle.fd, 0);
	if (host == MAP_FAILED)
		return CUDA_ERROR_INVALID_VALUE;
	close(desc->handle.fd);	/* the driver owns it from here on */
	m = obj_new(OBJ_EXTMEM, sizeof(*m));
	m->host = host;
	m->size = desc->size;
	*out = (CUexternalMemory)m;
	return CUDA_SUCCESS;
}

CUresult do_cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, CUexternalMemory handle,
					    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
	struct extmem *m = obj_get(handle, OBJ_EXTMEM);
	struct range *r;
	CUresult rc;

	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!desc->size || desc->offset + desc->size > m->size)
		return CUDA_ERROR_INVALID_VALUE;
	rc = alias_new(desc->size, m->host + desc->offset, RANGE_IMPORT, &r);
	if (!rc)
		*out = r->base;
	return rc;
}

/* "Any existing buffers ... must be freed before" - they are ended here, so that a stale use
 * faults. */
CUresult do_cuDestroyExternalMemory(CUexternalMemory handle)
{
	struct extmem *m = obj_get(handle, OBJ_EXTMEM);
	struct range *r;
	uint64_t addr = 0;

	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	stream_finish_all();
	while ((r = range_next(addr))) {
		addr = r->base + r->size;
		if (r->kind == RANGE_IMPORT && r->host >= m->host && r->host < m->host + m->size)
			device_free(r);
	}
	munmap(m->host, m->size);
	obj_drop(m);
	return CUDA_SUCCESS;
}
