/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: what device.h calls a fence: an event of the driver, recorded on a stream or on a whole
 * context. It goes with the context that it was made in, and the driver must not be asked for it
 * then: what came before it is over.
 *
 * Threads: any. No lock.
 */
#include <errno.h>

#include "arena/device.h"
#include "arena/slab.h"
#include "shim/device.h"

struct fence {
	CUevent event;
	const struct place *place; /* where it was made */
};

static struct slab fences = SLAB_INIT(struct fence);

/* An event of the current context, for a fence. */
static CUresult fence_new(struct fence **out)
{
	struct fence *f = slab_get(&fences);
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;

	if (f == NULL)
		return rc;
	*f = (struct fence){ .place = place_here() };
	if (f->place != NULL)
		rc = REAL(cuEventCreate)(&f->event, CU_EVENT_DISABLE_TIMING);
	if (rc == CUDA_SUCCESS)
		*out = f;
	else
		slab_put(&fences, f);
	return rc;
}

/* It was recorded with @rc; it goes when that failed. */
static CUresult fence_recorded(CUresult rc, struct fence *f, uint64_t *fence)
{
	*fence = rc == CUDA_SUCCESS ? (uint64_t)(uintptr_t)f : 0;
	if (rc != CUDA_SUCCESS) {
		REAL(cuEventDestroy_v2)(f->event);
		slab_put(&fences, f);
	}
	return rc;
}

int device_fence(uint64_t stream, uint64_t *fence)
{
	struct visit v;
	CUresult rc = visit_stream(&v, stream);
	struct fence *f;

	if (rc == CUDA_SUCCESS)
		rc = fence_new(&f);
	if (rc == CUDA_SUCCESS)
		rc = fence_recorded(REAL(cuEventRecord)(f->event, (CUstream)stream), f, fence);
	visit_end(&v);
	return device_error(rc);
}

/* Drivers before 12.5 cannot record a context: it is waited for, and the event is an empty one. */
static CUresult record_context(CUcontext ctx, CUevent e)
{
	CUstream own;
	CUresult rc = REAL(cuCtxRecordEvent)(ctx, e);

	if (rc == CUDA_SUCCESS)
		return rc;
	rc = REAL(cuCtxSynchronize)();
	if (rc == CUDA_SUCCESS)
		rc = REAL(cuStreamCreate)(&own, CU_STREAM_NON_BLOCKING);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = REAL(cuEventRecord)(e, own);
	REAL(cuStreamDestroy_v2)(own);
	return rc;
}

int device_fence_context(uint64_t context, uint64_t *fence)
{
	CUcontext ctx = (CUcontext)(uintptr_t)context;
	struct visit v;
	CUresult rc = visit_begin(&v, ctx);
	struct fence *f;

	/* Either way breaks whatever captures in the context. */
	if (rc == CUDA_SUCCESS && load_relaxed(&captures_active) != 0)
		rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (rc == CUDA_SUCCESS && ctx == NULL)
		rc = REAL(cuCtxGetCurrent)(&ctx);
	if (rc == CUDA_SUCCESS)
		rc = fence_new(&f);
	if (rc == CUDA_SUCCESS)
		rc = fence_recorded(record_context(ctx, f->event), f, fence);
	visit_end(&v);
	return device_error(rc);
}

/* @return NULL: its event went with the context, and what came before it is over. */
static struct fence *fence_of(uint64_t fence)
{
	struct fence *f = (struct fence *)(uintptr_t)fence;

	return place_is_gone(f->place) ? NULL : f;
}

int device_wait(uint64_t fence, uint64_t stream)
{
	const struct fence *f = fence_of(fence);
	struct visit v;
	CUresult rc = visit_stream(&v, stream);

	if (rc == CUDA_SUCCESS && f != NULL)
		rc = REAL(cuStreamWaitEvent)((CUstream)stream, f->event, 0);
	visit_end(&v);
	return device_error(rc);
}

bool device_fence_done(uint64_t fence)
{
	const struct fence *f = fence_of(fence);
	struct visit v;
	CUresult rc = visit_begin(&v, NULL);

	if (rc == CUDA_SUCCESS && f != NULL)
		rc = REAL(cuEventQuery)(f->event);
	visit_end(&v);
	/* Not now, because of a capture: another time. */
	return rc != CUDA_ERROR_NOT_READY && device_error(rc) != -EBUSY;
}

void device_fence_free(uint64_t fence)
{
	const struct fence *f = fence_of(fence);
	struct visit v;

	if (visit_begin(&v, NULL) == CUDA_SUCCESS && f != NULL)
		REAL(cuEventDestroy_v2)(f->event);
	visit_end(&v);
	slab_put(&fences, (struct fence *)(uintptr_t)fence);
}
