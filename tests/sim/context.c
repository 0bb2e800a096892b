/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: created ones and the primary ones, the stack of the thread. Destroying a context ends
 * its memory, streams, modules and events. Under sim_lock.
 */
#include "tests/sim/sim.h"

static struct {
	struct context *ctx;
	unsigned retained, flags;
} primary[DEVICES];

struct context *context_current(void)
{
	return tls.contexts ? obj_get(tls.stack[tls.contexts - 1], OBJ_CONTEXT) : NULL;
}

static struct context *context_new(CUdevice device, unsigned flags)
{
	struct context *ctx = obj_new(OBJ_CONTEXT, sizeof(*ctx));

	ctx->device = device;
	ctx->flags = flags;
	ctx->legacy = stream_new(ctx, 0, true);
	return ctx;
}

static void *first_of(enum obj_type type, const struct context *ctx)
{
	struct stream *s;
	struct exec *e;

	if (type == OBJ_STREAM)
		OBJ_EACH(s, OBJ_STREAM)
			if (s->ctx == ctx)
				return s;
	if (type == OBJ_EXEC)
		OBJ_EACH(e, OBJ_EXEC)
			if (e->ctx == ctx)
				return e;
	return NULL;
}

static void context_end(struct context *ctx)
{
	uint64_t addr = 0;
	struct range *r;
	void *o;

	stream_finish_all();
	while ((o = first_of(OBJ_EXEC, ctx)))
		do_cuGraphExecDestroy(o);
	while ((o = first_of(OBJ_STREAM, ctx)))
		stream_delete(o);
	module_forget_context(ctx);
	/* Mapped memory belongs to the process, memory of graphs to the graphs. */
	while ((r = range_next(addr))) {
		addr = r->base + r->size;
		if (r->ctx == ctx && r->kind != RANGE_MAPPED && r->kind != RANGE_GRAPH)
			device_free(r);
	}
	obj_drop(ctx);
}

CUresult do_cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice dev)
{
	if (!out || dev < 0 || dev >= DEVICES)
		return out ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
	if (tls.contexts == ARRAY_SIZE(tls.stack))
		return CUDA_ERROR_OUT_OF_MEMORY;
	tls.stack[tls.contexts++] = context_new(dev, flags);
	*out = (CUcontext)tls.stack[tls.contexts - 1];
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuCtxCreate, do_cuCtxCreate_v2);

CUresult do_cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *params, int n, unsigned int flags,
			   CUdevice dev)
{
	return n ? CUDA_ERROR_NOT_SUPPORTED : do_cuCtxCreate_v2(out, flags, dev);
}

CUresult do_cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned int flags,
			   CUdevice dev)
{
	if (params && (params->numExecAffinityParams || params->cigParams))
		return CUDA_ERROR_NOT_SUPPORTED;
	return do_cuCtxCreate_v2(out, flags, dev);
}

CUresult do_cuCtxDestroy_v2(CUcontext handle)
{
	struct context *ctx = obj_get(handle, OBJ_CONTEXT);

	if (!ctx || ctx->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	/* "If ctx is current to the calling thread then ctx will also be popped." */
	if (context_current() == ctx)
		tls.contexts--;
	context_end(ctx);
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuCtxDestroy, do_cuCtxDestroy_v2);
SAME_ABI(do_cuCtxDetach, do_cuCtxDestroy_v2);

CUresult do_cuCtxGetCurrent(CUcontext *out)
{
	*out = (CUcontext)context_current();
	return CUDA_SUCCESS;
}

CUresult do_cuCtxSetCurrent(CUcontext handle)
{
	struct context *ctx = obj_get(handle, OBJ_CONTEXT);

	if (handle && !ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (tls.contexts)
		tls.contexts--;
	if (ctx)
		tls.stack[tls.contexts++] = ctx;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxPushCurrent_v2(CUcontext handle)
{
	struct context *ctx = obj_get(handle, OBJ_CONTEXT);

	if (!ctx || tls.contexts == ARRAY_SIZE(tls.stack))
		return CUDA_ERROR_INVALID_CONTEXT;
	tls.stack[tls.contexts++] = ctx;
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuCtxPushCurrent, do_cuCtxPushCurrent_v2);

CUresult do_cuCtxPopCurrent_v2(CUcontext *out)
{
	if (!tls.contexts)
		return CUDA_ERROR_INVALID_CONTEXT;
	tls.contexts--;
	if (out)
		*out = (CUcontext)tls.stack[tls.contexts];
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuCtxPopCurrent, do_cuCtxPopCurrent_v2);

CUresult do_cuCtxGetDevice(CUdevice *out)
{
	*out = context_current()->device;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxGetDevice_v2(CUdevice *out, CUcontext handle)
{
	struct context *ctx = handle ? obj_get(handle, OBJ_CONTEXT) : context_current();

	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	*out = ctx->device;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxGetFlags(unsigned int *flags)
{
	*flags = context_current()->flags;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxSetFlags(unsigned int flags)
{
	context_current()->flags = flags;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
	if (handle && !obj_get(handle, OBJ_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	*version = 3020;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	struct context *ctx = handle ? obj_get(handle, OBJ_CONTEXT) : context_current();

	if (!ctx)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*id = ctx->obj.serial;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxGetLimit(size_t *value, CUlimit limit)
{
	*value = 1024;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxSetLimit(CUlimit limit, size_t value)
{
	return CUDA_SUCCESS;
}

CUresult do_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	return obj_get(peer, OBJ_CONTEXT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult do_cuCtxDisablePeerAccess(CUcontext peer)
{
	return obj_get(peer, OBJ_CONTEXT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult do_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
	if (dev < 0 || dev >= DEVICES)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!primary[dev].retained++) {
		primary[dev].ctx = context_new(dev, primary[dev].flags);
		primary[dev].ctx->primary = true;
	}
	*out = (CUcontext)primary[dev].ctx;
	return CUDA_SUCCESS;
}

CUresult do_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	if (dev < 0 || dev >= DEVICES || !primary[dev].retained)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!--primary[dev].retained)
		context_end(primary[dev].ctx);
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuDevicePrimaryCtxRelease, do_cuDevicePrimaryCtxRelease_v2);

CUresult do_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	if (dev < 0 || dev >= DEVICES)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!primary[dev].retained)
		return CUDA_SUCCESS;
	primary[dev].retained = 0;
	context_end(primary[dev].ctx);
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuDevicePrimaryCtxReset, do_cuDevicePrimaryCtxReset_v2);

CUresult do_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	if (dev < 0 || dev >= DEVICES)
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = primary[dev].flags;
	*active = primary[dev].retained != 0;
	return CUDA_SUCCESS;
}

CUresult do_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	if (dev < 0 || dev >= DEVICES)
		return CUDA_ERROR_INVALID_DEVICE;
	primary[dev].flags = flags;
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuDevicePrimaryCtxSetFlags, do_cuDevicePrimaryCtxSetFlags_v2);

static CUresult synchronize(struct context *ctx)
{
	struct stream *s;

	/* "It is invalid to synchronize or query a context that has a capturing stream." */
	OBJ_EACH(s, OBJ_STREAM)
		if (s->ctx == ctx && s->capture)
			return capture_refuse(s);
	stream_finish_all();
	return sim_sticky;
}

CUresult do_cuCtxSynchronize(void)
{
	return synchronize(context_current());
}

CUresult do_cuCtxSynchronize_v2(CUcontext handle)
{
	struct context *ctx = handle ? obj_get(handle, OBJ_CONTEXT) : context_current();

	return ctx ? synchronize(ctx) : CUDA_ERROR_INVALID_CONTEXT;
}
