/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: between the wrappers of memory and arena/tag.h, arena/keep.h: turn a call into a request,
 * and an answer into a result of the driver. What the driver would refuse is left to it.
 *
 * Threads: any. errno is kept.
 */
#include "shim/route.h"

#include <errno.h>
#include <string.h>

#include "arena/device.h"
#include "shim/record.h"

/* What the driver gives on every device since sm_20; texture bases are aligned to it as well. */
#define PITCH_ALIGN 512u

static bool device_here(int32_t *out)
{
	CUdevice ordinal = 0;
	CUresult rc;

	shim_inside++;
	rc = REAL(cuCtxGetDevice)(&ordinal);
	shim_inside--;
	*out = ordinal;
	return rc == CUDA_SUCCESS;
}

bool route_alloc_slow(CUdeviceptr *out, uint64_t size_bytes, uint64_t align, uint64_t stream)
{
	struct tag_request want = { .bytes = size_bytes, .align = align, .stream = stream };
	int saved = errno;
	uint64_t addr;
	bool served;

	served = out != NULL && size_bytes != 0 && device_here(&want.device) &&
		 tag_serve(&want, &addr);
	if (served)
		*out = addr;
	errno = saved;
	return served;
}

/* Memory of a stream is that of its device: is it another one than the current? */
static const char *stream_elsewhere(uint64_t stream)
{
	CUcontext here = NULL, there = NULL;

	if (stream <= device.shared_streams)
		return NULL;
	shim_inside++;
	/* A stream of a green context has none of its own; a bad handle is the driver's to refuse.
	 */
	if (REAL(cuStreamGetCtx)((CUstream)stream, &there) != CUDA_SUCCESS ||
	    REAL(cuCtxGetCurrent)(&here) != CUDA_SUCCESS)
		there = NULL;
	shim_inside--;
	return there != NULL && there != here ? "its stream is of another context" : NULL;
}

/* A pool does not tell its device, but that one can always write to it. */
static const char *pool_elsewhere(CUmemoryPool pool)
{
	CUmemLocation here = { .type = CU_MEM_LOCATION_TYPE_DEVICE };
	CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

	if (pool == NULL || !device_here(&here.id))
		return NULL;
	shim_inside++;
	if (REAL(cuMemPoolGetAccess)(&flags, pool, &here) != CUDA_SUCCESS)
		flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	shim_inside--;
	return flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? "its pool is of another device" : NULL;
}

bool route_async(CUdeviceptr *out, uint64_t size_bytes, CUmemoryPool pool, uint64_t stream)
{
	int saved = errno;
	const char *why = stream_elsewhere(stream);

	if (why == NULL)
		why = pool_elsewhere(pool);
	if (why != NULL && size_bytes != 0)
		tag_decline(size_bytes, why);
	errno = saved;
	return why == NULL && route_alloc_slow(out, size_bytes, 1, stream);
}

bool route_pitch_slow(CUdeviceptr *out, size_t *pitch, size_t width_bytes, size_t height,
		      unsigned element_bytes)
{
	size_t row, total;

	if (pitch == NULL || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) ||
	    __builtin_add_overflow(width_bytes, PITCH_ALIGN - 1, &row))
		return false;
	row &= ~(size_t)(PITCH_ALIGN - 1);
	if (__builtin_mul_overflow(row, height, &total) ||
	    !route_alloc_slow(out, total, PITCH_ALIGN, STREAM_LEGACY(NULL)))
		return false;
	*pitch = row;
	return true;
}

bool route_free_slow(uint64_t addr, CUresult *rc)
{
	int saved = errno;
	enum tag_free answer = tag_absorb(addr);

	errno = saved;
	*rc = answer == TAG_ABSORBED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	return answer != TAG_FOREIGN;
}

/* ---- virtual memory ---- */

bool route_answered(enum keep_answer a, CUresult *rc)
{
	*rc = a == KEEP_ABSORBED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	return a == KEEP_ABSORBED || a == KEEP_REFUSED;
}

bool route_reserve(CUdeviceptr *out, uint64_t size_bytes, uint64_t align, uint64_t flags,
		   struct keep_ticket *t)
{
	int saved = errno;
	uint64_t addr;
	bool served;

	if (tag_depth == 0 || out == NULL || size_bytes == 0 || flags != 0)
		return false;
	served = keep_reserve(size_bytes, align, &addr, t) == KEEP_ABSORBED;
	if (served)
		*out = addr;
	errno = saved;
	return served;
}

struct keep_physical route_physical(uint64_t size_bytes, const CUmemAllocationProp *prop,
				    uint64_t flags)
{
	struct keep_physical p = { .bytes = size_bytes, .flags = flags };

	if (prop == NULL)
		return p;
	p.type = prop->type;
	p.location = prop->location.type;
	p.location_id = prop->location.id;
	p.handle_types = prop->requestedHandleTypes;
	_Static_assert(sizeof(prop->allocFlags) == sizeof(p.usage), "compared as one word");
	memcpy(&p.usage, &prop->allocFlags, sizeof(p.usage));
	return p;
}

bool route_create(CUmemGenericAllocationHandle *out, const struct keep_physical *p,
		  struct keep_ticket *t)
{
	int saved = errno;
	uint64_t handle;
	bool served;

	if (tag_depth == 0 || out == NULL || p->bytes == 0)
		return false;
	served = keep_create(p, &handle, t) == KEEP_ABSORBED;
	if (served)
		*out = handle;
	errno = saved;
	return served;
}

/* Unmap what its owner let go of, as if he had done it just now. */
static void give_way(const struct keep_mapping *m)
{
	struct keep_mapping gone;

	while (keep_give_way(m, &gone)) {
		struct unmap_batch b = record_unmap(gone.base, gone.bytes);
		CUresult rc;

		shim_inside++;
		rc = REAL(cuMemUnmap)(gone.base, gone.bytes);
		if (gone.handle != 0)
			REAL(cuMemRelease)(gone.handle);
		shim_inside--;
		record_closed_scope(&b, rc);
	}
}

bool route_map(const struct keep_mapping *m, CUresult *rc)
{
	int saved = errno;
	enum keep_answer answer = keep_map(m);

	if (answer == KEEP_GIVE_WAY)
		give_way(m);
	errno = saved;
	return route_answered(answer, rc);
}
