/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the maintenance kernels (kernels/maintain.h) against their C twins, then their bandwidth.
 *
 *	kernels_maintain [small|large] [SEED]
 *
 * Tables of random sizes at random addresses, grids of any size; results are numbers and bytes, and
 * have to be equal. Bandwidth is told against what a copy on the device moves, reads and
 * writes together, in the same run. small: for the simulated driver and for compute-sanitizer. One
 * line a kernel, one a figure: name, value, unit.
 * Exit: 0 all equal, 1 not, 77 no machine code for this device.
 * Threads: one.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/image.h"
#include "kernels/maintain.h"
#include "tests/unit/seed.h"

#define OPS_MAX	   40
#define AREA	   (4u << 20) /* of each of the two sides */
#define TURNS	   5
#define HITS_MAX   4096
#define RANGES	   3
#define SMALL_SPAN 4096u

static CUmodule module;
static bool large;

static void check_driver(CUresult rc, const char *what, int line)
{
	if (rc == CUDA_SUCCESS)
		return;
	fflush(stdout);
	fprintf(stderr, "kernels_maintain.c:%d: %s: %d\n", line, what, (int)rc);
	exit(1);
}
#define CK(call) check_driver(call, #call, __LINE__)

static CUdeviceptr memory(size_t bytes)
{
	CUdeviceptr p;

	CK(cuMemAlloc(&p, bytes));
	return p;
}

static void send(CUdeviceptr to, const void *from, size_t bytes)
{
	CK(cuMemcpyHtoD(to, from, bytes));
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
}

static void launch(const char *name, CUdeviceptr ops, uint32_t count, uint64_t tiles, uint64_t last)
{
	void *params[] = { &ops, &count, &tiles, &last };
	CUfunction f;

	CK(cuModuleGetFunction(&f, module, name));
	CK(cuLaunchKernel(f, maintain_blocks(tiles), 1, 1, PUBLISH_THREADS, 1, 1, 0, NULL, params,
			  NULL));
}

/* ---- the same on both sides ---- */

/* Two areas with a table over them; the host's is what the twins see. */
static struct {
	uint8_t *a, *b;
	CUdeviceptr a_device, b_device, ops_device, out_device;
	struct publish_op host[OPS_MAX], far[OPS_MAX];
	uint32_t count;
	uint64_t tiles;
} both;

static uint64_t place(uint64_t *seed, uint64_t room, uint64_t bytes, uint64_t align)
{
	return seed_below(seed, (room - bytes) / align + 1) * align;
}

/* Spans without overlap; every other one as aligned as slots are. */
static void draw(uint64_t *seed, uint64_t unit)
{
	uint64_t room = AREA / OPS_MAX / 256 * 256;

	both.count = 1 + (uint32_t)seed_below(seed, OPS_MAX);
	for (uint32_t i = 0; i < both.count; i++) {
		uint64_t limit = i % 3 == 0 ? 64 : room, align = i % 2 == 0 ? 256 : unit;
		uint64_t bytes = (1 + seed_below(seed, limit / unit)) * unit;
		uint64_t src = i * room + place(seed, room, bytes, align);
		uint64_t dst = i * room + place(seed, room, bytes, align);

		both.host[i] = (struct publish_op){ .dst = (uint64_t)(uintptr_t)both.b + dst,
						    .src = (uint64_t)(uintptr_t)both.a + src,
						    .bytes = bytes };
		both.far[i] = (struct publish_op){ .dst = both.b_device + dst,
						   .src = both.a_device + src,
						   .bytes = bytes };
	}
	both.tiles = publish_plan(both.host, both.count);
	publish_plan(both.far, both.count);
	for (uint32_t i = 0; i < AREA; i++)
		both.a[i] = (uint8_t)seed_below(seed, 256);
	memset(both.b, 0xa5, AREA);
}

static void send_all(void)
{
	send(both.a_device, both.a, AREA);
	send(both.b_device, both.b, AREA);
	send(both.ops_device, both.far, both.count * sizeof(*both.far));
}

static struct publish_grid grid(void)
{
	return (struct publish_grid){ both.host, both.count, both.tiles };
}

static bool check_zero(uint64_t *seed)
{
	static uint8_t back[AREA];
	struct publish_grid g;

	draw(seed, 1);
	send_all();
	g = grid();
	zero_twin(&g, 0, 1);
	launch("arena_zero", both.ops_device, both.count, both.tiles, 0);
	CK(cuMemcpyDtoH(back, both.b_device, AREA));
	return memcmp(back, both.b, AREA) == 0;
}

/* One number a span, from @start on. */
static bool check_numbers(const char *kernel, uint64_t start,
			  void (*twin)(const struct publish_grid *g, uint32_t block,
				       uint32_t blocks, uint64_t *out))
{
	uint64_t out[OPS_MAX], back[OPS_MAX];
	struct publish_grid g = grid();

	for (uint32_t i = 0; i < both.count; i++)
		out[i] = start;
	send_all();
	send(both.out_device, out, both.count * sizeof(*out));
	twin(&g, 0, 1, out);
	launch(kernel, both.ops_device, both.count, both.tiles, both.out_device);
	CK(cuMemcpyDtoH(back, both.out_device, both.count * sizeof(*back)));
	return memcmp(back, out, both.count * sizeof(*out)) == 0;
}

static bool check_fingerprint(uint64_t *seed)
{
	draw(seed, 1);
	return check_numbers("arena_fingerprint", 0, fingerprint_twin);
}

/* Copies, but for a few bytes of some. */
static bool check_compare(uint64_t *seed)
{
	draw(seed, 1);
	for (uint32_t i = 0; i < both.count; i++) {
		uint8_t *dst = (uint8_t *)(uintptr_t)both.host[i].dst;

		memcpy(dst, (const void *)(uintptr_t)both.host[i].src, both.host[i].bytes);
		for (uint64_t n = seed_below(seed, 4); n > 0; n--)
			dst[seed_below(seed, both.host[i].bytes)] ^= 1u << seed_below(seed, 8);
	}
	return check_numbers("arena_compare", COMPARE_EQUAL, compare_twin);
}

static int by_address(const void *a, const void *b)
{
	const struct scan_hit *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

/* Words that point into the ranges, just beside, and anywhere. */
static void plant(uint64_t *seed, const struct scan_range *ranges)
{
	for (uint32_t i = 0; i < AREA / 8; i++) {
		const struct scan_range *r = &ranges[seed_below(seed, RANGES)];
		uint64_t word = r->base - 8 + seed_below(seed, r->end - r->base + 16);

		if (seed_below(seed, 2000) == 0)
			memcpy(both.a + 8ull * i, &word, sizeof(word));
	}
}

static bool check_scan(uint64_t *seed)
{
	static const struct scan_range ranges[RANGES] = { { 0x7f0000000000, 0x7f0000000100 },
							  { 0x7f0000200000, 0x7f0000200001 },
							  { 0x7f1000000000, 0x7f1000001000 } };
	static struct scan_hit hits[HITS_MAX], back[HITS_MAX];
	struct scan_job job = { .lowest = ranges[0].base,
				.highest = ranges[RANGES - 1].end,
				.ranges_count = RANGES,
				.cap = HITS_MAX },
			twin = job;
	CUdeviceptr table = memory(sizeof(ranges)), list = memory(sizeof(hits));
	CUdeviceptr where = memory(sizeof(job));
	uint64_t far[OPS_MAX];
	struct publish_grid g;

	draw(seed, 8);
	plant(seed, ranges);
	send_all();
	send(table, ranges, sizeof(ranges));
	job.ranges = table;
	job.hits = list;
	send(where, &job, sizeof(job));
	twin.ranges = (uint64_t)(uintptr_t)ranges;
	twin.hits = (uint64_t)(uintptr_t)hits;
	for (uint32_t i = 0; i < both.count; i++)
		far[i] = both.far[i].src - both.host[i].src;
	g = grid();
	scan_twin(&g, 0, 1, &twin, far);
	launch("arena_scan", both.ops_device, both.count, both.tiles, where);
	CK(cuMemcpyDtoH(&job, where, sizeof(job)));
	if (job.found != 0 && job.found <= HITS_MAX) {
		CK(cuMemcpyDtoH(back, list, job.found * sizeof(*back)));
		qsort(back, job.found, sizeof(*back), by_address);
	}
	if (twin.found <= HITS_MAX)
		qsort(hits, twin.found, sizeof(*hits), by_address);
	CK(cuMemFree(table));
	CK(cuMemFree(list));
	CK(cuMemFree(where));
	return job.found == twin.found && twin.found <= HITS_MAX &&
	       memcmp(back, hits, twin.found * sizeof(*hits)) == 0;
}

static bool check_all(uint64_t seed)
{
	static const struct {
		const char *name;
		bool (*check)(uint64_t *seed);
	} checks[] = {
		{ "arena_zero", check_zero },
		{ "arena_fingerprint", check_fingerprint },
		{ "arena_compare", check_compare },
		{ "arena_scan", check_scan },
	};
	int rounds = large ? 20 : 2, failed = 0;
	bool good = true;

	both.a = aligned_alloc(256, AREA);
	both.b = aligned_alloc(256, AREA);
	both.a_device = memory(AREA);
	both.b_device = memory(AREA);
	both.ops_device = memory(sizeof(both.far));
	both.out_device = memory(OPS_MAX * sizeof(uint64_t));
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		failed = 0;
		for (int n = 0; n < rounds; n++)
			failed += !checks[i].check(&seed);
		printf("%-4s %s %d calls, %d differ\n", failed ? "FAIL" : "ok", checks[i].name,
		       rounds, failed);
		good = good && failed == 0;
	}
	return good;
}

/* ---- speed ---- */

static CUevent begin, end;

struct work {
	const char *kernel; /* NULL: the copy */
	CUdeviceptr to, from, ops, last;
	uint64_t bytes, tiles;
	uint32_t count;
};

static void run(const struct work *w)
{
	if (w->kernel != NULL)
		launch(w->kernel, w->ops, w->count, w->tiles, w->last);
	else
		CK(cuMemcpyDtoDAsync(w->to, w->from, w->bytes, NULL));
}

/* The best of several turns, in ms. */
static double timed(const struct work *w)
{
	double best = 1e30;
	float ms;

	run(w); /* the first use of a kernel loads it */
	for (int i = 0; i < TURNS; i++) {
		CK(cuEventRecord(begin, NULL));
		run(w);
		CK(cuEventRecord(end, NULL));
		CK(cuEventSynchronize(end));
		CK(cuEventElapsedTime(&ms, begin, end));
		if (ms < best)
			best = ms;
	}
	return best;
}

/* @passes: how often each byte is moved. */
static void tell(const char *what, const struct work *w, unsigned passes, double copy_ms)
{
	double ms = timed(w);

	printf("%-40s %10.1f GB/s\n", what, ms > 0 ? passes * 1e-6 * (double)w->bytes / ms : 0);
	if (w->kernel != NULL)
		printf("%s, of a copy's traffic %*s %9.1f %%\n", what, 24 - (int)strlen(what), "",
		       ms > 0 ? passes * 50.0 * copy_ms / ms : 0);
}

static void speed_table(struct work *w, uint64_t span)
{
	struct publish_op *ops;

	w->count = (uint32_t)(w->bytes / span);
	ops = calloc(w->count, sizeof(*ops));
	for (uint32_t i = 0; i < w->count; i++)
		ops[i] = (struct publish_op){ .dst = w->to + i * span,
					      .src = w->from + i * span,
					      .bytes = span };
	w->tiles = publish_plan(ops, w->count);
	send(w->ops, ops, w->count * sizeof(*ops));
	free(ops);
}

static void speed_job(const struct work *w, CUdeviceptr job)
{
	/* A range above all words that memory of one byte value has. */
	const struct scan_range range = { 0x7f0000000000, 0x7f0000001000 };
	struct scan_job j = { .ranges = w->last,
			      .hits = w->last + 4096,
			      .lowest = range.base,
			      .highest = range.end,
			      .ranges_count = 1,
			      .cap = 16 };

	send(w->last, &range, sizeof(range));
	send(job, &j, sizeof(j));
}

static void speed_spans(struct work *w, uint64_t span, const char *shape, double copy_ms)
{
	CUdeviceptr out = w->last, job = out + w->bytes / SMALL_SPAN * 8;
	static const struct {
		const char *kernel, *name;
		unsigned passes;
	} kernels[] = { { "arena_fingerprint", "fingerprint", 1 },
			{ "arena_scan", "scan", 1 },
			{ "arena_compare", "compare", 2 },
			{ "arena_zero", "zero", 1 } };

	speed_table(w, span);
	CK(cuMemsetD8(w->to, 0x3c, w->bytes));
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		char what[64];

		w->kernel = kernels[i].kernel;
		w->last = out;
		if (i == 1)
			speed_job(w, job);
		w->last = i == 1 ? job : out;
		snprintf(what, sizeof(what), "%s, %s", kernels[i].name, shape);
		tell(what, w, kernels[i].passes, copy_ms);
	}
	w->last = out;
}

static void speed(void)
{
	struct work w = { .bytes = large ? 1ull << 30 : 1u << 18 };
	double copy_ms;

	CK(cuEventCreate(&begin, 0));
	CK(cuEventCreate(&end, 0));
	w.from = memory(w.bytes);
	w.to = memory(w.bytes);
	w.ops = memory(w.bytes / SMALL_SPAN * sizeof(struct publish_op));
	w.last = memory(w.bytes / SMALL_SPAN * 8 + sizeof(struct scan_job) + 8192);
	CK(cuMemsetD8(w.from, 0x3c, w.bytes));
	CK(cuMemsetD8(w.last, 0xff, w.bytes / SMALL_SPAN * 8 + sizeof(struct scan_job) + 8192));
	copy_ms = timed(&w);
	tell("cuMemcpyDtoD, reads and writes", &w, 2, copy_ms);
	speed_spans(&w, w.bytes, "one span", copy_ms);
	speed_spans(&w, SMALL_SPAN, "4 KiB spans", copy_ms);
}

int main(int argc, char **argv)
{
	/* Any bytes do for the simulated driver. */
	static const char no_image[64];
	const void *image = kernel_image != NULL ? kernel_image : no_image;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20251129;
	CUdevice device;
	CUcontext context;
	bool good;

	setvbuf(stdout, NULL, _IOLBF, 0);
	large = argc < 2 || strcmp(argv[1], "small") != 0;
	CK(cuInit(0));
	CK(cuDeviceGet(&device, 0));
	CK(cuDevicePrimaryCtxRetain(&context, device));
	CK(cuCtxSetCurrent(context));
	if (cuModuleLoadData(&module, image) != CUDA_SUCCESS) {
		printf("skip: no machine code of the kernels for this device\n");
		return 77;
	}
	printf("seed %llu\n", (unsigned long long)seed);
	good = check_all(seed);
	speed();
	return good ? 0 : 1;
}
