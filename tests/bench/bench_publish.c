/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a reload costs, measured from outside: a driver API program that uses the public interface.
 * Run it with the shim preloaded, on a GPU for figures that mean something.
 *
 *	bench_publish		verify of 100,000 slots; commit of 10,000 slots of 4 KiB against as
 *				many cuMemcpyAsync; bandwidth of a commit of 256 MiB and 1 GiB
 *				against cuMemcpyDtoD; begin and end with 61 layers of 49 slots
 *	bench_publish small	the same, a thousandth of it, to see that it works
 *
 * One figure a line: name, value, unit. The best of several turns counts.
 */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arena/arena.h"

#define TURNS	    5
#define SMALL_BYTES 4096ull
#define MIB	    (1ull << 20)

static struct {
	unsigned bound, small, layers, layer_slots;
	uint64_t large_bytes[2];
} size = { 100000, 10000, 61, 49, { 256 * MIB, 1024 * MIB } };

static CUstream stream;
static CUevent begin, end;

/* ---- helpers ---- */

static void check(CUresult rc, const char *what)
{
	if (rc == CUDA_SUCCESS)
		return;
	fprintf(stderr, "bench_publish: %s: %d\n", what, (int)rc);
	exit(1);
}
#define CK(call) check(call, #call)

static void check_arena(int rc, const char *what)
{
	char text[512] = "";

	if (rc == ARENA_OK)
		return;
	arena_last_message(text, sizeof(text));
	fprintf(stderr, "bench_publish: %s: %d %s\n", what, rc, text);
	exit(1);
}
#define AK(call) check_arena(call, #call)

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void tell(const char *name, double value, const char *unit)
{
	printf("%-44s %12.2f %s\n", name, value, unit);
}

static double least(double a, double b)
{
	return a < b ? a : b;
}

static struct arena_spec spec_of(uint64_t bytes)
{
	struct arena_spec s = ARENA_SPEC_INIT;

	s.bytes = bytes;
	return s;
}

static CUdeviceptr memory(uint64_t bytes)
{
	CUdeviceptr p;

	CK(cuMemAlloc(&p, bytes));
	CK(cuMemsetD8(p, 1, bytes));
	CK(cuCtxSynchronize());
	return p;
}

static struct arena *layer(const char *path)
{
	struct arena *a;

	AK(arena_open(path, &a));
	return a;
}

static const char *numbered(const char *what, unsigned i)
{
	static char name[64];

	snprintf(name, sizeof(name), "%s%u", what, i);
	return name;
}

/* ---- verify ---- */

static void bench_verify(void)
{
	CUdeviceptr p = memory(size.bound * 256ull);
	struct arena_spec spec = spec_of(256);
	struct arena_snapshot *s;
	double us = 1e12, from;
	char *json;

	for (unsigned i = 0; i < size.bound; i++)
		AK(arena_bind(layer(numbered("verify.", i / 1000)), numbered("slot", i), &spec,
			      (void *)(p + i * 256ull)));
	AK(arena_snapshot(&s));
	for (int turn = 0; turn < TURNS; turn++) {
		from = now_us();
		AK(arena_verify(s, &json));
		us = least(us, now_us() - from);
		arena_free(json);
	}
	arena_snapshot_free(s);
	tell("verify, slots", size.bound, "");
	tell("verify", us / 1e3, "ms (budget 2)");
}

/* ---- reloads ---- */

static void stage(struct arena *a, unsigned count, uint64_t bytes, CUdeviceptr from)
{
	struct arena_spec spec = spec_of(bytes);
	void *live;

	for (unsigned i = 0; i < count; i++)
		AK(arena_put(a, numbered("w", i), &spec, (void *)(from + i * bytes), ARENA_STAGED,
			     &live, stream));
}

static void reload_end(uint64_t id)
{
	char *json;

	AK(arena_reload_end(id, &json));
	arena_free(json);
}

/* Host time until the stream is done with a commit of small slots. */
static double commit_small(struct arena *a, CUdeviceptr from)
{
	double us;
	uint64_t id;

	AK(arena_reload_begin(NULL, &id));
	stage(a, size.small, SMALL_BYTES, from);
	CK(cuStreamSynchronize(stream));
	us = now_us();
	AK(arena_layer_commit(a, stream));
	CK(cuStreamSynchronize(stream));
	us = now_us() - us;
	reload_end(id);
	return us;
}

static double copy_small(CUdeviceptr to, CUdeviceptr from)
{
	double us = now_us();

	for (unsigned i = 0; i < size.small; i++)
		CK(cuMemcpyAsync(to + i * SMALL_BYTES, from + i * SMALL_BYTES, SMALL_BYTES,
				 stream));
	CK(cuStreamSynchronize(stream));
	return now_us() - us;
}

static void bench_small(void)
{
	CUdeviceptr from = memory(size.small * SMALL_BYTES), to = memory(size.small * SMALL_BYTES);
	struct arena *a = layer("small");
	double commit = 1e12, copies = 1e12;

	for (int turn = 0; turn < TURNS; turn++) {
		commit = least(commit, commit_small(a, from));
		copies = least(copies, copy_small(to, from));
	}
	tell("commit of 4 KiB slots, slots", size.small, "");
	tell("commit of 4 KiB slots", commit, "us");
	tell("as many cuMemcpyAsync", copies, "us");
	tell("copies / commit", copies / commit, "times (goal 20)");
	CK(cuMemFree(from));
	CK(cuMemFree(to));
}

/* ---- bandwidth ---- */

/* Work that keeps the device busy while the host queues what is measured. */
static void delay(CUdeviceptr p, uint64_t bytes)
{
	for (int i = 0; i < 32; i++)
		CK(cuMemsetD8Async(p, 1, bytes, stream));
	CK(cuEventRecord(begin, stream));
}

static double delayed_us(void)
{
	float ms;

	CK(cuEventRecord(end, stream));
	CK(cuStreamSynchronize(stream));
	CK(cuEventElapsedTime(&ms, begin, end));
	return ms * 1e3;
}

static double commit_large(struct arena *a, CUdeviceptr from, uint64_t bytes)
{
	double us;
	uint64_t id;

	AK(arena_reload_begin(NULL, &id));
	stage(a, 1, bytes, from);
	CK(cuStreamSynchronize(stream));
	delay(from, bytes);
	AK(arena_layer_commit(a, stream));
	us = delayed_us();
	reload_end(id);
	return us;
}

static double copy_large(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
	delay(from, bytes);
	CK(cuMemcpyDtoDAsync(to, from, bytes, stream));
	return delayed_us();
}

static void bench_large(uint64_t bytes)
{
	CUdeviceptr from = memory(bytes), to = memory(bytes);
	struct arena *a = layer(numbered("large", (unsigned)(bytes / MIB)));
	double commit = 1e12, copy = 1e12;

	for (int turn = 0; turn < TURNS; turn++) {
		commit = least(commit, commit_large(a, from, bytes));
		copy = least(copy, copy_large(to, from, bytes));
	}
	tell("commit of one slot, size", (double)bytes / MIB, "MiB");
	tell("commit of one slot", (double)bytes / commit / 1e3, "GB/s");
	tell("cuMemcpyDtoD of the same", (double)bytes / copy / 1e3, "GB/s");
	tell("commit / cuMemcpyDtoD", 100 * copy / commit, "% (goal 90)");
	CK(cuMemFree(from));
	CK(cuMemFree(to));
}

/* ---- a model ---- */

static void reload_model(CUdeviceptr from, double *begin_us, double *end_us, double *all_us)
{
	double t = now_us(), start = t;
	uint64_t id;

	AK(arena_reload_begin(NULL, &id));
	*begin_us = least(*begin_us, now_us() - t);
	for (unsigned l = 0; l < size.layers; l++) {
		struct arena *a = layer(numbered("model.layers.", l));

		stage(a, size.layer_slots, SMALL_BYTES, from);
		AK(arena_layer_commit(a, stream));
	}
	t = now_us();
	reload_end(id);
	*end_us = least(*end_us, now_us() - t);
	CK(cuStreamSynchronize(stream));
	*all_us = least(*all_us, now_us() - start);
}

static void bench_model(void)
{
	CUdeviceptr from = memory(size.layer_slots * SMALL_BYTES);
	double begin_us = 1e12, end_us = 1e12, all_us = 1e12;

	for (int turn = 0; turn < TURNS; turn++)
		reload_model(from, &begin_us, &end_us, &all_us);
	tell("model, slots", size.layers * size.layer_slots, "");
	tell("model, begin", begin_us, "us");
	tell("model, end", end_us, "us");
	tell("model, begin to end with puts and commits", all_us, "us");
	CK(cuMemFree(from));
}

static void start(void)
{
	CUdevice dev;
	CUcontext ctx;

	CK(cuInit(0));
	CK(cuDeviceGet(&dev, 0));
	CK(cuDevicePrimaryCtxRetain(&ctx, dev));
	CK(cuCtxSetCurrent(ctx));
	CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
	CK(cuEventCreate(&end, CU_EVENT_DEFAULT));
}

int main(int argc, char **argv)
{
	if (arena_abi() == 0) {
		fprintf(stderr, "bench_publish: the shim is not preloaded\n");
		return 77;
	}
	if (argc > 1 && strcmp(argv[1], "small") == 0) {
		size.bound /= 1000;
		size.small /= 1000;
		size.layers = 3;
		size.layer_slots = 4;
		size.large_bytes[0] /= 1024;
		size.large_bytes[1] /= 1024;
	}
	start();
	/* First what needs memory, then what leaves many slots behind. */
	for (int i = 0; i < 2; i++)
		bench_large(size.large_bytes[i]);
	bench_small();
	bench_model();
	bench_verify();
	return 0;
}
