/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: device memory, copies and fences for arenas (device.h). Policy is arena/'s: here is only
 * what the driver wants to be asked.
 *
 * Every call is a visit: captures of other threads are left alone, the wrappers are told to look
 * away, and the context is that of the stream or memory. A thread without a context works in the
 * primary one of the device, which is retained once and kept.
 *
 * Threads: any. No lock: what is made once is made by whoever comes first.
 */
#include <errno.h>

#include "arena/device.h"
#include "shim/device.h"
#include "shim/hook_sync.h"

#define DEVICES_MAX 256

static _Atomic uint64_t primary[DEVICES_MAX]; /* CUcontext, 0: not retained */

/* ---- visits ---- */

static CUresult primary_of(CUdevice dev, CUcontext *ctx)
{
	uint64_t none = 0;
	CUresult rc;

	if (dev < 0 || dev >= DEVICES_MAX)
		return CUDA_ERROR_INVALID_DEVICE;
	/* Pairs with the swap below. */
	*ctx = (CUcontext)(uintptr_t)load_acquire(&primary[dev]);
	if (*ctx != NULL)
		return CUDA_SUCCESS;
	rc = REAL(cuDevicePrimaryCtxRetain)(ctx, dev);
	/* Two threads got the same handle, and one reference too many is none too few. */
	if (rc == CUDA_SUCCESS)
		cas_acq_rel(&primary[dev], &none, (uint64_t)(uintptr_t)*ctx);
	return rc;
}

static CUresult push(struct visit *v, CUcontext ctx)
{
	CUresult rc = REAL(cuCtxPushCurrent_v2)(ctx);

	v->pushed = rc == CUDA_SUCCESS;
	return rc;
}

static void pop(struct visit *v)
{
	CUcontext ctx;

	if (v->pushed)
		REAL(cuCtxPopCurrent_v2)(&ctx);
	v->pushed = false;
}

CUresult visit_begin(struct visit *v, CUcontext ctx)
{
	CUcontext now = NULL;
	CUresult rc;

	v->saved_errno = errno;
	v->pushed = false;
	v->own = own_calls_begin();
	rc = REAL(cuCtxGetCurrent)(&now);
	if (rc != CUDA_SUCCESS || (now != NULL && (ctx == NULL || ctx == now)))
		return rc;
	if (ctx == NULL)
		rc = primary_of(0, &ctx);
	return rc == CUDA_SUCCESS ? push(v, ctx) : rc;
}

CUresult visit_stream(struct visit *v, uint64_t stream)
{
	bool busy = sync_must_not_ask(stream);
	CUcontext ctx = NULL;
	CUresult rc = visit_begin(v, NULL);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (busy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	/* A shared handle means the stream of the current context. */
	if (stream <= device.shared_streams)
		return CUDA_SUCCESS;
	if (REAL(cuStreamGetCtx)((CUstream)stream, &ctx) != CUDA_SUCCESS || ctx == NULL)
		return CUDA_SUCCESS; /* of a green context: what is current has to do */
	pop(v);
	return push(v, ctx);
}

void visit_end(struct visit *v)
{
	pop(v);
	own_calls_end(&v->own);
	errno = v->saved_errno;
}

int device_error(CUresult rc)
{
	switch (rc) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOSPC;
	case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
	case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
		return -EBUSY;
	default:
		return -EIO;
	}
}

/* ---- memory ---- */

/* The current context if it is one of @dev, else the primary one. */
static CUresult visit_device(struct visit *v, CUdevice dev)
{
	CUresult rc = visit_begin(v, NULL);
	CUdevice here = -1;
	CUcontext ctx;

	if (rc != CUDA_SUCCESS)
		return rc;
	rc = REAL(cuCtxGetDevice)(&here);
	if (rc != CUDA_SUCCESS || here == dev)
		return rc;
	rc = primary_of(dev, &ctx);
	if (rc != CUDA_SUCCESS)
		return rc;
	pop(v);
	return push(v, ctx);
}

/* On a stream that neither waits for others nor makes them wait; done on return. */
static CUresult zero_now(CUdeviceptr addr, uint64_t bytes)
{
	CUstream own;
	CUresult rc = REAL(cuStreamCreate)(&own, CU_STREAM_NON_BLOCKING);

	if (rc != CUDA_SUCCESS)
		return rc;
	rc = REAL(cuMemsetD8Async)(addr, 0, bytes, own);
	if (rc == CUDA_SUCCESS)
		rc = REAL(cuStreamSynchronize)(own);
	REAL(cuStreamDestroy_v2)(own);
	return rc;
}

static int device_alloc(uint64_t bytes, int32_t ordinal, uint64_t *addr)
{
	struct visit v;
	CUdeviceptr p = 0;
	CUresult rc = visit_device(&v, ordinal);

	if (rc == CUDA_SUCCESS)
		rc = REAL(cuMemAlloc_v2)(&p, bytes);
	if (rc == CUDA_SUCCESS) {
		rc = zero_now(p, bytes);
		if (rc != CUDA_SUCCESS)
			REAL(cuMemFree_v2)(p);
	}
	visit_end(&v);
	*addr = p;
	return device_error(rc);
}

static void device_free(uint64_t addr)
{
	struct visit v;
	CUcontext ctx = NULL;
	CUresult rc = visit_begin(&v, NULL);

	if (rc == CUDA_SUCCESS)
		rc = REAL(cuPointerGetAttribute)(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, addr);
	if (rc == CUDA_SUCCESS) {
		pop(&v);
		if (push(&v, ctx) == CUDA_SUCCESS)
			REAL(cuMemFree_v2)(addr);
	}
	visit_end(&v);
}

static int device_put(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t stream)
{
	struct visit v;
	CUresult rc = visit_stream(&v, stream);

	if (rc == CUDA_SUCCESS)
		rc = REAL(cuMemcpyAsync)(dst, src, bytes, (CUstream)stream);
	visit_end(&v);
	return device_error(rc);
}

static int device_zero(uint64_t addr, uint64_t bytes, uint64_t stream)
{
	struct visit v;
	CUresult rc = visit_stream(&v, stream);

	if (rc == CUDA_SUCCESS)
		rc = REAL(cuMemsetD8Async)(addr, 0, bytes, (CUstream)stream);
	visit_end(&v);
	return device_error(rc);
}

/* ---- order ---- */

/* An event is made, then recorded by @rc; it goes when that failed. */
static CUresult recorded(CUresult rc, CUevent e, uint64_t *fence)
{
	*fence = (uint64_t)(uintptr_t)e;
	if (rc == CUDA_SUCCESS)
		return rc;
	REAL(cuEventDestroy_v2)(e);
	*fence = 0;
	return rc;
}

static int device_fence(uint64_t stream, uint64_t *fence)
{
	struct visit v;
	CUresult rc = visit_stream(&v, stream);
	CUevent e;

	if (rc == CUDA_SUCCESS)
		rc = REAL(cuEventCreate)(&e, CU_EVENT_DISABLE_TIMING);
	if (rc == CUDA_SUCCESS)
		rc = recorded(REAL(cuEventRecord)(e, (CUstream)stream), e, fence);
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

static int device_fence_context(uint64_t context, uint64_t *fence)
{
	CUcontext ctx = (CUcontext)(uintptr_t)context;
	struct visit v;
	CUresult rc = visit_begin(&v, ctx);
	CUevent e;

	/* Either way breaks whatever captures in the context. */
	if (rc == CUDA_SUCCESS && load_relaxed(&captures_active) != 0)
		rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (rc == CUDA_SUCCESS && ctx == NULL)
		rc = REAL(cuCtxGetCurrent)(&ctx);
	if (rc == CUDA_SUCCESS)
		rc = REAL(cuEventCreate)(&e, CU_EVENT_DISABLE_TIMING);
	if (rc == CUDA_SUCCESS)
		rc = recorded(record_context(ctx, e), e, fence);
	visit_end(&v);
	return device_error(rc);
}

static int device_wait(uint64_t fence, uint64_t stream)
{
	struct visit v;
	CUresult rc = visit_stream(&v, stream);

	if (rc == CUDA_SUCCESS)
		rc = REAL(cuStreamWaitEvent)((CUstream)stream, (CUevent)(uintptr_t)fence, 0);
	visit_end(&v);
	return device_error(rc);
}

static bool device_fence_done(uint64_t fence)
{
	struct visit v;
	CUresult rc = visit_begin(&v, NULL);

	if (rc == CUDA_SUCCESS)
		rc = REAL(cuEventQuery)((CUevent)(uintptr_t)fence);
	visit_end(&v);
	return rc != CUDA_ERROR_NOT_READY;
}

static void device_fence_free(uint64_t fence)
{
	struct visit v;

	if (visit_begin(&v, NULL) == CUDA_SUCCESS)
		REAL(cuEventDestroy_v2)((CUevent)(uintptr_t)fence);
	visit_end(&v);
}

static int device_synchronise(uint64_t stream)
{
	struct visit v;
	CUresult rc = visit_stream(&v, stream);

	if (rc == CUDA_SUCCESS)
		rc = REAL(cuStreamSynchronize)((CUstream)stream);
	visit_end(&v);
	return device_error(rc);
}

void device_start(void)
{
	/* The legacy stream, 1, is another one in each context; the per-thread stream is 2. */
	device.shared_streams = (uint64_t)(uintptr_t)CU_STREAM_PER_THREAD;
	device.alloc = device_alloc;
	device.free = device_free;
	device.copy = device_copy_batch;
	device.put = device_put;
	device.zero = device_zero;
	device.fence = device_fence;
	device.fence_context = device_fence_context;
	device.wait = device_wait;
	device.fence_done = device_fence_done;
	device.fence_free = device_fence_free;
	device.synchronise = device_synchronise;
}
