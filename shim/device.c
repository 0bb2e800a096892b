/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: device memory and writes to it for arenas (device.h). Fences are in device_fence.c, the
 * writes of publications in device_copy.c, what computes and compares values in device_look.c,
 * the scan in device_scan.c.
 * Policy is arena/'s: here is only what the driver wants to be asked.
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

static _Atomic uint64_t primary[DEVICES_MAX]; /* CUcontext, 0: not retained, or reset since */

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
	case CUDA_ERROR_INVALID_DEVICE:
		return -ENODEV;
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

static uint64_t device_context(int32_t ordinal)
{
	struct visit v;
	CUcontext ctx = NULL;
	CUresult rc = visit_device(&v, ordinal);

	if (rc == CUDA_SUCCESS)
		rc = REAL(cuCtxGetCurrent)(&ctx);
	visit_end(&v);
	return rc == CUDA_SUCCESS ? (uint64_t)(uintptr_t)ctx : 0;
}

static int32_t device_count(void)
{
	struct visit v;
	CUresult rc = visit_begin(&v, NULL);
	int count = 0;

	if (rc == CUDA_SUCCESS)
		rc = REAL(cuDeviceGetCount)(&count);
	visit_end(&v);
	return rc == CUDA_SUCCESS ? count : 0;
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

static int device_synchronise(uint64_t stream)
{
	struct visit v;
	CUresult rc = visit_stream(&v, stream);

	if (rc == CUDA_SUCCESS)
		rc = REAL(cuStreamSynchronize)((CUstream)stream);
	visit_end(&v);
	return device_error(rc);
}

/* After a reset the handle is good again only when it was retained again. */
void device_forget(uint64_t ctx)
{
	for (size_t i = 0; ctx != 0 && i < DEVICES_MAX; i++) {
		uint64_t gone = ctx;

		/* Pairs with the load in primary_of(). */
		cas_acq_rel(&primary[i], &gone, 0);
	}
	place_forget(ctx);
}

void device_start(void)
{
	/* The legacy stream, 1, is another one in each context; the per-thread stream is 2. */
	device.shared_streams = (uint64_t)(uintptr_t)CU_STREAM_PER_THREAD;
	device.alloc = device_alloc;
	device.context = device_context;
	device.devices = device_count;
	device.free = device_free;
	device.copy = device_copy;
	device.derive = device_derive;
	device.fingerprint = device_fingerprint;
	device.compare = device_compare;
	device.scan = device_scan;
	device.put = device_put;
	device.zero = device_zero;
	device.fence = device_fence;
	device.fence_context = device_fence_context;
	device.wait = device_wait;
	device.fence_done = device_fence_done;
	device.fence_free = device_fence_free;
	device.synchronise = device_synchronise;
}
