/* SPDX-License-Identifier: Apache-2.0 */
/* Job: the driver calls of the engine: start, errors, launches of kernels by name. One thread. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/decode/decode.h"
#include "kernels/image.h"
#include "tests/engine/engine.h"

#define GRID 32

/* What a user or a file gave may hold anything: it stays on one line. */
void engine_die(int code, const char *format, ...)
{
	char *text = NULL;
	va_list args;

	fflush(stdout);
	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	for (char *c = text; c && *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	fprintf(stderr, "engine: %s\n", text ? text : "no host memory");
	exit(code);
}

void engine_check(CUresult r, const char *what, const char *file, int line)
{
	const char *name = NULL;

	if (r == CUDA_SUCCESS)
		return;
	cuGetErrorName(r, &name);
	engine_die(1, "%s:%d: %s: %d %s", file, line, what, (int)r, name ? name : "");
}

/* Any bytes are an image for the simulated driver; a build without nvcc has none. */
static CUmodule module_of(const void *image)
{
	static const char none[8];
	CUmodule m;

	CK(cuModuleLoadData(&m, image ? image : none));
	return m;
}

void engine_start(struct engine *e)
{
	CUdevice device;

	CK(cuInit(0));
	CK(cuDeviceGet(&device, 0));
	CK(cuDevicePrimaryCtxRetain(&e->context, device));
	CK(cuCtxSetCurrent(e->context));
	CK(cuStreamCreate(&e->stream, CU_STREAM_NON_BLOCKING));
	e->decode_module = module_of(decode_image);
	e->derive_module = module_of(kernel_image);
}

void settle(struct engine *e)
{
	CK(cuStreamSynchronize(e->stream));
}

/* ---- launches ---- */

static void launch(struct engine *e, CUmodule m, const char *kernel, void **params)
{
	CUfunction f;

	CK(cuModuleGetFunction(&f, m, kernel));
	CK(cuLaunchKernel(f, GRID, 1, 1, DECODE_THREADS, 1, 1, 0, e->stream, params, NULL));
}

void run_decode(struct engine *e, const char *kernel, void *args)
{
	const struct decode *d = decode_find(kernel);
	void *params[DECODE_PARAMS_MAX];

	for (uint32_t i = 0; i < d->params_count; i++)
		params[i] = (char *)args + d->params[i].offset;
	launch(e, e->decode_module, kernel, params);
}

void run_derive(struct engine *e, const char *kernel, void *args)
{
	const struct derive *d = derive_find(kernel);
	void *params[DERIVE_PARAMS_MAX];

	for (uint32_t i = 0; i < d->params_count; i++)
		params[i] = (char *)args + d->params[i].offset;
	launch(e, e->derive_module, kernel, params);
}
