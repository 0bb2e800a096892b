/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: contexts that go away take their ranges and execs with them, silently: whoever destroys a
 * context does not launch its graphs again. Told after the driver did it, and only if the
 * context is really gone. Functions go too, and their handles may come back at once with other
 * parameters: layouts are forgotten before the driver is asked, whatever it will answer.
 *
 * A primary context is named by its device. Everybody who has it got it from
 * cuDevicePrimaryCtxRetain, so the pair is learnt there and nothing needs to be asked.
 *
 * Threads: any.
 */
#include <errno.h>

#include "shim/params.h"
#include "shim/record.h"

#define DEVICES_MAX 256

static _Atomic uint64_t primary_contexts[DEVICES_MAX];

static bool known_device(CUdevice dev)
{
	return dev >= 0 && dev < DEVICES_MAX;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	bool on = record_on(cuDevicePrimaryCtxRetain);
	CUresult rc = REAL(cuDevicePrimaryCtxRetain)(pctx, dev);

	/* Pairs with the load in primary_gone(). */
	if (on && rc == CUDA_SUCCESS && known_device(dev))
		store_release(&primary_contexts[dev], (uint64_t)(uintptr_t)*pctx);
	return rc;
}

/* Once more after the driver: a walk in another thread may have asked in between. */
static void context_gone(uint64_t context)
{
	params_forget_all();
	record_context_gone(context);
}

/* The handle is kept: after a reset its holders go on with it. */
static void primary_gone(CUdevice dev)
{
	/* Pairs with the store in cuDevicePrimaryCtxRetain(). */
	if (known_device(dev))
		context_gone(load_acquire(&primary_contexts[dev]));
}

/* Was that the last reference? */
static void primary_released(CUdevice dev)
{
	int saved = errno, active = 1;
	unsigned int flags;
	CUresult rc;

	shim_inside++;
	rc = REAL(cuDevicePrimaryCtxGetState)(dev, &flags, &active);
	shim_inside--;
	if (rc == CUDA_SUCCESS && !active)
		primary_gone(dev);
	errno = saved;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice dev)
{
	bool on = record_on(cuDevicePrimaryCtxRelease);
	CUresult rc;

	if (on)
		params_forget_all();
	rc = REAL(cuDevicePrimaryCtxRelease)(dev);
	if (on && rc == CUDA_SUCCESS)
		primary_released(dev);
	return rc;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	bool on = record_on(cuDevicePrimaryCtxRelease_v2);
	CUresult rc;

	if (on)
		params_forget_all();
	rc = REAL(cuDevicePrimaryCtxRelease_v2)(dev);
	if (on && rc == CUDA_SUCCESS)
		primary_released(dev);
	return rc;
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice dev)
{
	bool on = record_on(cuDevicePrimaryCtxReset);
	CUresult rc;

	if (on)
		params_forget_all();
	rc = REAL(cuDevicePrimaryCtxReset)(dev);
	if (on && rc == CUDA_SUCCESS)
		primary_gone(dev);
	return rc;
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	bool on = record_on(cuDevicePrimaryCtxReset_v2);
	CUresult rc;

	if (on)
		params_forget_all();
	rc = REAL(cuDevicePrimaryCtxReset_v2)(dev);
	if (on && rc == CUDA_SUCCESS)
		primary_gone(dev);
	return rc;
}

CUresult CUDAAPI cuCtxDestroy(CUcontext ctx)
{
	bool on = record_on(cuCtxDestroy);
	CUresult rc;

	if (on)
		params_forget_all();
	rc = REAL(cuCtxDestroy)(ctx);
	if (on && rc == CUDA_SUCCESS)
		context_gone((uint64_t)(uintptr_t)ctx);
	return rc;
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext ctx)
{
	bool on = record_on(cuCtxDestroy_v2);
	CUresult rc;

	if (on)
		params_forget_all();
	rc = REAL(cuCtxDestroy_v2)(ctx);
	if (on && rc == CUDA_SUCCESS)
		context_gone((uint64_t)(uintptr_t)ctx);
	return rc;
}

/* Only the last of several attachments destroys, and then the context, which has to be the
 * current one, is popped. */
CUresult CUDAAPI cuCtxDetach(CUcontext ctx)
{
	bool on = record_on(cuCtxDetach);
	CUcontext now = ctx;
	CUresult rc;

	if (on)
		params_forget_all();
	rc = REAL(cuCtxDetach)(ctx);
	if (!on || rc != CUDA_SUCCESS)
		return rc;
	shim_inside++;
	if (REAL(cuCtxGetCurrent)(&now) == CUDA_SUCCESS && now != ctx)
		context_gone((uint64_t)(uintptr_t)ctx);
	shim_inside--;
	return rc;
}
