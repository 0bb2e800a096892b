/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The right address and the wrong value: FlashInfer's sinks, which are converted to f32 once and
 * never again; NVFP4's alphas, which are multiplied in place at each reload. A graph reads the
 * result; derivations are declared, and the commit finds what the engine did.
 */
#include "slots.h"

#include <string.h>

#include "arena/derive.h"

#define COUNT N_INTS
#define BYTES (4 * COUNT)

static struct arena *a;
static CUdeviceptr out;
static CUgraphExec e;

/* ---- a checkpoint; numbers that both formats hold, by seed ---- */

static float number(int seed, size_t i)
{
	return (float)(1 << (seed + (int)i) % 8);
}

static uint32_t bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static CUdeviceptr put_words(const char *name, const void *from, size_t bytes)
{
	CUdeviceptr live = slot_put(a, name, (CUdeviceptr)from, bytes, ARENA_STAGED);

	settle();
	return live;
}

static void put_sinks(int seed)
{
	uint16_t v[COUNT];

	for (size_t i = 0; i < COUNT; i++)
		v[i] = (uint16_t)(bits_of(number(seed, i)) >> 16);
	put_words("sinks", v, sizeof(v));
}

/* @columns of them for each expert. */
static CUdeviceptr put_floats(const char *name, int seed, size_t columns)
{
	static float v[2 * COUNT];

	for (size_t i = 0; i < columns * COUNT; i++)
		v[i] = number(seed, i / columns);
	return put_words(name, v, columns * BYTES);
}

/* What a graph reads at @p is number(@seed, 0). */
static void reads(int seed)
{
	MUST(cuGraphLaunch(e, S) == CUDA_SUCCESS);
	settle();
	MUST((uint32_t)peek(out) == bits_of(number(seed, 0)));
}

static void start(void)
{
	arena_needed();
	a = layer("model.layers.0");
	out = dev_alloc("out", BIG);
}

/* ---- sinks ---- */

static void derive_sinks(enum arena_derive_mode mode)
{
	const struct arena_derive_arg args[] = {
		{ .name = "in", .slot = "sinks" },
		{ .name = "out", .slot = "sinks_f32" },
		{ .name = "count", .value = COUNT },
	};
	struct arena_derivation d = ARENA_DERIVATION_INIT;

	d.name = "arena_sinks_f32";
	d.mode = mode;
	d.args = args;
	d.args_count = sizeof(args) / sizeof(args[0]);
	AK(arena_derive(a, &d));
}

/* The cold load, and a graph over the converted sinks. */
static void load_sinks(void)
{
	CUdeviceptr f32;
	uint64_t id;

	start();
	id = reload_begin(NULL);
	put_sinks(1);
	f32 = put_floats("sinks_f32", 1, 1);
	derive_sinks(ARENA_DERIVE_CHECK);
	commit(a);
	MUST(reload_end("cold", id) == ARENA_OK);
	CAPTURE_EXEC(e, run_copy(out, f32, COUNT));
	reads(1);
}

static void sinks_fresh(void)
{
	uint64_t id;

	load_sinks();
	for (int seed = 2; seed < 4; seed++) {
		id = reload_begin(NULL);
		put_sinks(seed);
		put_floats("sinks_f32", seed, 1);
		commit(a);
		MUST(reload_end("R", id) == ARENA_OK);
		reads(seed);
	}
}

static void sinks_stale(void)
{
	uint64_t id;

	load_sinks();
	id = reload_begin(NULL);
	put_sinks(2);
	told("commit", arena_layer_commit(a, S));
	reload_end("R", id);
	reads(1);
	/* Loaded as it should be. */
	id = reload_begin(NULL);
	put_sinks(2);
	put_floats("sinks_f32", 2, 1);
	commit(a);
	reload_end("again", id);
	reads(2);
}

/* The engine keeps its tensor, and the library only watches it. */
static void sinks_bound(void)
{
	CUdeviceptr own;
	float v[COUNT];
	uint64_t id;

	start();
	own = dev_alloc("own", BIG);
	for (size_t i = 0; i < COUNT; i++)
		v[i] = number(1, i);
	CK(cuMemcpyHtoDAsync(own, v, sizeof(v), S));
	settle();
	id = reload_begin(NULL);
	put_sinks(1);
	slot_bind(a, "sinks_f32", own, BYTES);
	derive_sinks(ARENA_DERIVE_CHECK);
	commit(a);
	MUST(reload_end("cold", id) == ARENA_OK);
	CAPTURE_EXEC(e, run_copy(out, own, COUNT));
	reads(1);
	id = reload_begin(NULL);
	put_sinks(2);
	told("commit", arena_layer_commit(a, S));
	reload_end("R", id);
}

/* The engine gives the parameter only; the rest is the library's. */
static void sinks_computed(void)
{
	uint64_t id;

	load_sinks();
	derive_sinks(ARENA_DERIVE_COMPUTE);
	for (int seed = 2; seed < 5; seed++) {
		id = reload_begin(NULL);
		put_sinks(seed);
		reads(seed - 1);
		commit(a);
		MUST(reload_end("R", id) == ARENA_OK);
		reads(seed);
	}
}

/* ---- scales ---- */

static void derive_scales(void)
{
	const struct arena_derive_arg args[] = {
		{ .name = "w13", .slot = "w13" },      { .name = "w2", .slot = "w2" },
		{ .name = "in13", .slot = "in13" },    { .name = "in2", .slot = "in2" },
		{ .name = "a13", .slot = "a13" },      { .name = "g1", .slot = "g1" },
		{ .name = "experts", .value = COUNT },
	};
	struct arena_derivation d = ARENA_DERIVATION_INIT;

	d.name = "arena_nvfp4_scales";
	d.args = args;
	d.args_count = sizeof(args) / sizeof(args[0]);
	AK(arena_derive(a, &d));
}

/* What is loaded, and a13; powers of two have exact reciprocals. */
static void put_loaded(int seed)
{
	static float v[COUNT];

	put_floats("w13", seed, 2);
	put_floats("w2", seed, 1);
	put_floats("in13", seed + 1, 2);
	put_floats("in2", seed + 1, 1);
	for (size_t i = 0; i < COUNT; i++)
		v[i] = 1 / number(seed + 1, i);
	put_words("a13", v, sizeof(v));
}

/* The alphas: @from, or those of @seed's weights, times a13. */
static CUdeviceptr put_alphas(int seed, const float *from)
{
	static float v[COUNT];

	for (size_t i = 0; i < COUNT; i++)
		v[i] = (from ? from[i] : 1 / number(seed, i)) * (1 / number(seed + 1, i));
	return put_words("g1", v, sizeof(v));
}

static CUdeviceptr load_scales(const char *name, int seed)
{
	uint64_t id = reload_begin(NULL);
	CUdeviceptr g1;

	put_loaded(seed);
	g1 = put_alphas(seed, NULL);
	derive_scales();
	commit(a);
	MUST(reload_end(name, id) == ARENA_OK);
	return g1;
}

static void scales_fresh(void)
{
	start();
	load_scales("cold", 1);
	load_scales("R", 2);
	load_scales("R", 3);
}

/* The second pass multiplies what the first one has left. */
static void scales_accumulated(void)
{
	CUdeviceptr g1;
	float old[COUNT];
	uint64_t id;

	start();
	g1 = load_scales("cold", 1);
	CK(cuMemcpyDtoH(old, g1, sizeof(old)));
	id = reload_begin(NULL);
	put_loaded(2);
	put_alphas(2, old);
	told("commit", arena_layer_commit(a, S));
	reload_end("R", id);
	MUST((uint32_t)peek(g1) == bits_of(old[0]));
	load_scales("again", 2);
}

/* ---- declarations that do not fit ---- */

static int declare(const char *kernel, const struct arena_derive_arg *args, uint32_t count)
{
	struct arena_derivation d = ARENA_DERIVATION_INIT;

	d.name = kernel;
	d.args = args;
	d.args_count = count;
	return arena_derive(a, &d);
}

static void misfit(void)
{
	struct arena_derive_arg args[] = {
		{ .name = "in", .slot = "sinks" },
		{ .name = "out", .slot = "sinks_f32" },
		{ .name = "count", .value = COUNT },
		{ .name = "type", .value = 0 },
	};
	uint64_t id;

	load_sinks();
	told("kernel", declare("arena_nothing", args, 3));
	args[2].value = COUNT / 2;
	told("bytes", declare("arena_sinks_f32", args, 3));
	args[2].value = 1ull << 32;
	told("number", declare("arena_sinks_f32", args, 3));
	args[2].value = COUNT;
	args[1].slot = "other";
	told("slot", declare("arena_sinks_f32", args, 3));
	args[1].slot = NULL;
	told("result", declare("arena_sinks_f32", args, 3));
	args[1].slot = "sinks_f32";
	args[0].slot = NULL;
	told("source", declare("arena_sinks_f32", args, 3));
	args[0].slot = "sinks";
	args[3].value = 2;
	told("limit", declare("arena_sinks_f32", args, 4));
	args[3].name = "colour";
	told("parameter", declare("arena_sinks_f32", args, 4));
	told("publish", declare("arena_publish", args, 3));
	/* What was declared before still holds. */
	id = reload_begin(NULL);
	put_sinks(2);
	told("commit", arena_layer_commit(a, S));
	reload_end("R", id);
}

VICTIM({ "sinks-fresh", sinks_fresh }, { "sinks-stale", sinks_stale },
       { "sinks-bound", sinks_bound }, { "sinks-computed", sinks_computed },
       { "scales-fresh", scales_fresh }, { "scales-accumulated", scales_accumulated },
       { "misfit", misfit });
