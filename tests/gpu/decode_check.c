/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: each kernel of a decode graph (kernels/decode/decode.def) against its C twin.
 *
 *	decode_check [small|large] [SEED]
 *
 * Random shapes and contents, grids of 1, 7 and many blocks, addresses with and without the
 * alignment of the wide paths. Results have to be within the bound that decode.h states, mostly bit
 * for bit, and so do the bytes on both sides of them. small: for the simulated driver, where the
 * twin is what runs and only the way there is tested, and for compute-sanitizer. One line a
 * kernel. Exit: 0 all within, 1 not, 77 no machine code for this device.
 * Threads: one.
 */
#include "decode_check.h"

#include <cuda.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/number.h"

#define MARGIN	     256 /* bytes on both sides of a range, checked with it */
#define ROUNDS_SMALL 12
#define ROUNDS_LARGE 40

static CUmodule module;
static int multiprocessors;

static const struct decode_case *const tables[] = { cases_rows, cases_cache, cases_gemm,
						    cases_moe };

static void check_driver(CUresult rc, const char *what, int line)
{
	const char *name = NULL;

	if (rc == CUDA_SUCCESS)
		return;
	cuGetErrorName(rc, &name);
	fflush(stdout);
	fprintf(stderr, "%s:%d: %s: %d %s\n", __FILE__, line, what, (int)rc, name ? name : "");
	exit(1);
}
#define CK(call) check_driver(call, #call, __LINE__)

/* A range on both sides, with its margins. */
struct buffer {
	uint64_t bytes, shift;
	uint8_t *host, *back; /* the twin's, the kernel's */
	CUdeviceptr device;
};

static const struct range_case *range_case(const struct decode_case *c, const char *name)
{
	static const struct range_case any = { .fill = fill_bytes };

	for (size_t i = 0; i < sizeof(c->range) / sizeof(c->range[0]); i++)
		if (c->range[i].name != NULL && !strcmp(c->range[i].name, name))
			return &c->range[i];
	return &any;
}

/* Every parameter of the kernel where the row has it. */
static bool same_parameters(const struct decode *row, CUfunction f)
{
	for (uint32_t i = 0; i < row->params_count; i++) {
		size_t offset, size;

		CK(cuFuncGetParamInfo(f, i, &offset, &size));
		if (offset == row->params[i].offset && size == row->params[i].size)
			continue;
		fprintf(stderr, "  %s: parameter %s differs\n", row->name, row->params[i].name);
		return false;
	}
	return true;
}

static void launch(const struct decode *row, void *args, int blocks)
{
	void *params[DECODE_PARAMS_MAX];
	CUfunction f;

	CK(cuModuleGetFunction(&f, module, row->name));
	for (uint32_t i = 0; i < row->params_count; i++)
		params[i] = (char *)args + row->params[i].offset;
	CK(cuLaunchKernel(f, (unsigned)blocks, 1, 1, DECODE_THREADS, 1, 1, 0, NULL, params, NULL));
}

static void buffer_make(struct buffer *b, const struct decode_range *r, struct draw *d)
{
	b->shift = MARGIN + 8 * seed_below(&d->seed, 2);
	b->bytes = b->shift + r->bytes + MARGIN;
	b->host = aligned_alloc(256, DERIVE_UP(b->bytes, 256));
	b->back = malloc(b->bytes);
	fill_bytes(d, NULL, b->host, b->bytes);
	CK(cuMemAlloc(&b->device, b->bytes));
}

static void buffer_free(struct buffer *b)
{
	if (b->bytes == 0)
		return;
	CK(cuMemFree(b->device));
	free(b->host);
	free(b->back);
}

/* The call with its parameters, so that it can be made again by hand. */
static void print_call(const struct decode *row, const void *args)
{
	fprintf(stderr, "  %s(", row->name);
	for (uint32_t i = 0; i < row->params_count; i++) {
		uint64_t value = 0;

		memcpy(&value, (const char *)args + row->params[i].offset, row->params[i].size);
		fprintf(stderr, "%s%s = %llu", i ? ", " : "", row->params[i].name,
			(unsigned long long)value);
	}
	fprintf(stderr, ")\n");
}

/* ---- comparison ---- */

static uint32_t flags_of(const struct decode *row, const void *args)
{
	uint32_t flags = 0;

	for (uint32_t i = 0; i < row->params_count; i++)
		if (!strcmp(row->params[i].name, "flags"))
			memcpy(&flags, (const char *)args + row->params[i].offset, sizeof(flags));
	return flags;
}

static double number_at(const uint8_t *from, uint64_t i, bool f32)
{
	uint16_t word;
	float number;

	if (f32) {
		memcpy(&number, from + 4 * i, 4);
		return number;
	}
	memcpy(&word, from + 2 * i, 2);
	return number_from_bf16(word);
}

/* The distance to the next number: of 8 bits of mantissa, of the 20 that f32 sums keep. */
static double last_place(double x, bool f32)
{
	int exponent;

	frexp(x, &exponent);
	return ldexp(1, exponent - (f32 ? 20 : 8));
}

static bool within(const struct range_case *c, const uint8_t *twin, const uint8_t *kernel,
		   uint64_t bytes, bool f32)
{
	uint64_t count = bytes / (f32 ? 4 : 2);
	double largest = 0;

	for (uint64_t i = 0; i < count; i++)
		if (isfinite(number_at(twin, i, f32)))
			largest = fmax(largest, fabs(number_at(twin, i, f32)));
	for (uint64_t i = 0; i < count; i++) {
		double x = number_at(twin, i, f32), y = number_at(kernel, i, f32);
		double bound = c->ulps * last_place(x, f32) + ldexp(largest, -14);

		if (x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= bound)
			continue;
		fprintf(stderr, "  %s[%llu] of %llu: twin %g, kernel %g, bound %g\n", c->name,
			(unsigned long long)i, (unsigned long long)count, x, y, bound);
		return false;
	}
	return true;
}

static bool same_bytes(const char *name, const struct buffer *b, uint64_t first, uint64_t end)
{
	for (uint64_t i = first; i < end; i++) {
		if (b->host[i] == b->back[i])
			continue;
		fprintf(stderr, "  %s differs at byte %lld: twin %02x, kernel %02x\n", name,
			(long long)(i - b->shift), b->host[i], b->back[i]);
		return false;
	}
	return true;
}

static bool compare(const struct range_case *c, const struct decode_range *r, struct buffer *b,
		    uint32_t flags)
{
	uint64_t end = b->shift + r->bytes;
	bool f32 = c->by_flag ? flags & DECODE_F32 : c->f32;

	CK(cuMemcpyDtoH(b->back, b->device, b->bytes));
	if (c->ulps == 0)
		return same_bytes(r->name, b, 0, b->bytes);
	return same_bytes(r->name, b, 0, b->shift) && same_bytes(r->name, b, end, b->bytes) &&
	       within(c, b->host + b->shift, b->back + b->shift, r->bytes, f32);
}

/* ---- calls ---- */

static void set_address(void *args, const struct decode_range *r, uint64_t address)
{
	memcpy((char *)args + r->offset, &address, sizeof(address));
}

static bool check_call(const struct decode_case *c, struct draw *d)
{
	const struct decode *row = decode_find(c->name);
	const int grids[3] = { 1, 7, 8 * multiprocessors };
	struct buffer buffer[DECODE_PARAMS_MAX] = { { .bytes = 0 } };
	struct decode_range range[DECODE_PARAMS_MAX];
	char drawn[DECODE_ARGS_MAX] = { 0 }, on_host[DECODE_ARGS_MAX], on_device[DECODE_ARGS_MAX];
	uint32_t n;
	bool good = true;

	c->draw(d, drawn);
	memcpy(on_host, drawn, sizeof(drawn));
	memcpy(on_device, drawn, sizeof(drawn));
	n = row->ranges(drawn, range);
	for (uint32_t i = 0; i < n; i++) {
		struct buffer *b = &buffer[i];

		if (range[i].bytes == 0)
			continue;
		buffer_make(b, &range[i], d);
		range_case(c, range[i].name)->fill(d, drawn, b->host + b->shift, range[i].bytes);
		CK(cuMemcpyHtoD(b->device, b->host, b->bytes));
		set_address(on_host, &range[i], (uintptr_t)(b->host + b->shift));
		set_address(on_device, &range[i], b->device + b->shift);
	}
	launch(row, on_device, grids[seed_below(&d->seed, 3)]);
	decode_twin(c->name)(on_host);
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
	for (uint32_t i = 0; i < n; i++)
		if (buffer[i].bytes != 0)
			good &= compare(range_case(c, range[i].name), &range[i], &buffer[i],
					flags_of(row, drawn));
	if (!good)
		print_call(row, on_device);
	for (uint32_t i = 0; i < n; i++)
		buffer_free(&buffer[i]);
	return good;
}

static bool check_kernel(const struct decode_case *c, uint64_t seed, bool large)
{
	int rounds = large ? ROUNDS_LARGE : ROUNDS_SMALL, failed = 0;
	CUfunction f;

	CK(cuModuleGetFunction(&f, module, c->name));
	failed += !same_parameters(decode_find(c->name), f);
	for (int i = 0; i < rounds; i++) {
		/* Of the large run, the first rounds are small: odd shapes, quick to look at. */
		struct draw d = { .seed = seed + (uint64_t)i, .large = large && i >= ROUNDS_SMALL };

		if (!check_call(c, &d) && failed++ == 0)
			fprintf(stderr, "  seed %llu, round %d\n", (unsigned long long)seed, i);
	}
	printf("%-4s %s %d calls, %d differ\n", failed ? "FAIL" : "ok", c->name, rounds, failed);
	return failed == 0;
}

static bool has_case(const char *name)
{
	for (size_t k = 0; k < sizeof(tables) / sizeof(tables[0]); k++)
		for (const struct decode_case *c = tables[k]; c->name != NULL; c++)
			if (!strcmp(c->name, name))
				return true;
	return false;
}

static bool complete(void)
{
	bool all = true;

	for (size_t i = 0; decode_at(i) != NULL; i++)
		if (!has_case(decode_at(i)->name)) {
			printf("FAIL %s has no case\n", decode_at(i)->name);
			all = false;
		}
	return all;
}

static bool start(void)
{
	/* Any bytes do for the simulated driver. */
	static const char no_image[64];
	CUdevice device;
	CUcontext context;

	CK(cuInit(0));
	CK(cuDeviceGet(&device, 0));
	CK(cuDevicePrimaryCtxRetain(&context, device));
	CK(cuCtxSetCurrent(context));
	CK(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
				device));
	return cuModuleLoadData(&module, decode_image ? decode_image : no_image) == CUDA_SUCCESS;
}

int main(int argc, char **argv)
{
	bool large = argc < 2 || strcmp(argv[1], "small"), good;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20251129;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!start()) {
		printf("skip: no machine code of the kernels for this device\n");
		return 77;
	}
	printf("seed %llu\n", (unsigned long long)seed);
	good = complete();
	for (size_t k = 0; k < sizeof(tables) / sizeof(tables[0]); k++)
		for (const struct decode_case *c = tables[k]; c->name != NULL; c++)
			good = check_kernel(c, seed, large) && good;
	return good ? 0 : 1;
}
