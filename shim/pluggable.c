/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's pluggable allocator on slots: a MemPool with this allocator takes its segments from
 * the slots of the thread's tag, so that a model that is built again under the same tag lies where
 * it lay before. Also works with the shim turned off: then it is cuMemAlloc().
 *
 * Any thread. errno is kept. PyTorch may ask while a stream captures, so the driver is asked in
 * the relaxed mode.
 */
#include "shim/pluggable.h"

#include <errno.h>

#include "shim/log.h"
#include "shim/record.h"
#include "shim/route.h"

/* PyTorch takes for granted what cudaMalloc() does. */
#define ALIGN 512u

/* The device of a call, made current if it is not. */
struct on_device {
	CUcontext pushed;
	CUdevice device;
	int was_active; /* else its context is kept: the memory lives in it */
};

static CUresult device_enter(struct on_device *d, int device)
{
	unsigned int flags;
	CUdevice now = -1;
	CUresult rc;

	*d = (struct on_device){ .device = device };
	if (REAL(cuCtxGetDevice)(&now) == CUDA_SUCCESS && now == device)
		return CUDA_SUCCESS;
	rc = REAL(cuDevicePrimaryCtxGetState)(device, &flags, &d->was_active);
	if (rc == CUDA_SUCCESS)
		rc = REAL(cuDevicePrimaryCtxRetain)(&d->pushed, device);
	return rc == CUDA_SUCCESS ? REAL(cuCtxPushCurrent_v2)(d->pushed) : rc;
}

static void device_leave(const struct on_device *d)
{
	CUcontext popped;

	if (!d->pushed)
		return;
	REAL(cuCtxPopCurrent_v2)(&popped);
	if (d->was_active)
		REAL(cuDevicePrimaryCtxRelease_v2)(d->device);
}

static CUresult from_driver(CUdeviceptr *out, size_t size_bytes, bool on)
{
	struct own_calls own = own_calls_begin();
	CUresult rc = REAL(cuMemAlloc_v2)(out, size_bytes);

	own_calls_end(&own);
	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_DEVICE, *out, size_bytes, 0);
	return rc;
}

/* Once is enough: whole models are loaded like this. */
static void tell_untagged(void)
{
	static _Atomic bool told;

	if (tag_depth == 0 && !swap_acq_rel(&told, true))
		log_info(
			"arena_torch_malloc: no tag is pushed: this is memory of the driver; for a "
			"slot's, enter a layer and push a tag");
}

void *arena_torch_malloc(ssize_t size, int device, void *stream)
{
	bool on = shim_ready() && !shim_inside;
	size_t size_bytes = (size_t)size;
	struct on_device d;
	CUdeviceptr p = 0;
	int saved = errno;
	CUresult rc;

	if (size <= 0)
		return NULL;
	rc = device_enter(&d, device);
	if (rc == CUDA_SUCCESS) {
		if (on)
			tell_untagged();
		if (!on || !tag_depth ||
		    !route_alloc_slow(&p, size_bytes, ALIGN, STREAM_LEGACY(stream)))
			rc = from_driver(&p, size_bytes, on);
		device_leave(&d);
	}
	if (rc != CUDA_SUCCESS)
		log_warn("arena_torch_malloc: %zd bytes on device %d: error %d of the driver", size,
			 device, rc);
	errno = saved;
	return rc == CUDA_SUCCESS ? (void *)(uintptr_t)p : NULL;
}

void arena_torch_free(void *p, ssize_t size, int device, void *stream)
{
	struct on_device d;
	int saved = errno;
	CUresult rc;

	if (!p)
		return;
	rc = device_enter(&d, device);
	if (rc == CUDA_SUCCESS) {
		CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
		rc = cuMemFree_v2((CUdeviceptr)(uintptr_t)p);
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
		device_leave(&d);
	}
	/* Objects that are torn down at the very end find a driver that has gone. */
	if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_DEINITIALIZED)
		log_warn("arena_torch_free: %p on device %d: error %d of the driver", p, device,
			 rc);
	errno = saved;
}
