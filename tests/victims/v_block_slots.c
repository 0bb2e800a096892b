/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots bound to blocks of a caching allocator: what A01, A03, A07, A13, A14, A17 and A33 say of
 * their slots when nothing is freed in the driver's eyes.
 */
#include "blocks.h"
#include "slots.h"

#define TENSOR (64 * (size_t)1024)

static struct pool pool, private_pool;
static struct arena *a;
static CUdeviceptr out, w;
static CUgraphExec e;
static struct arena_snapshot *s;

static void start(void)
{
	a = layer("model.layers.0");
	out = dev_alloc("out", BIG);
	w = block_alloc(&pool, "w", TENSOR);
	poke(out, 0);
	poke(w, 1);
	slot_bind(a, "W_UV", w, TENSOR);
	CAPTURE_EXEC(e, run_acc(out, w));
	replay("E", e);
	s = snap();
}

/* A03, A07: rebound; the old block lives on, then it goes. */
static void rebound(void)
{
	CUdeviceptr fresh;

	start();
	fresh = block_alloc(&pool, "fresh", TENSOR);
	slot_bind(a, "W_UV", fresh, TENSOR);
	verify("V", s);
	replay("E", e);
	block_free(&pool, w);
	verify("V", s);
	replay("E", e);
}

static void in_place(void)
{
	CUdeviceptr fresh;

	start();
	fresh = block_alloc(&pool, "fresh", TENSOR);
	poke(fresh, 2);
	CK(cuMemcpyDtoD(w, fresh, TENSOR));
	/* It returns before the device is done, and the replay is in a stream of its own. */
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
	block_free(&pool, fresh);
	slot_bind(a, "W_UV", w, TENSOR);
	verify("V", s);
	replay("E", e);
	MUST(peek(out) == 3);
}

/* A02: dropped, and nothing bound. */
static void dropped(void)
{
	start();
	block_free(&pool, w);
	slot_unbind(a, "W_UV");
	verify("V", s);
	replay("E", e);
}

/* A13: dropped, and bound again to what came back at the address: benign. */
static void came_back(void)
{
	start();
	block_free(&pool, w);
	MUST(block_alloc(&pool, "again", TENSOR) == w);
	poke(w, 2);
	slot_bind(a, "W_UV", w, TENSOR);
	verify("V", s);
	replay("E", e);
	MUST(peek(out) == 3);
}

/* Somebody else's tensor came there. */
static void taken(void)
{
	start();
	block_free(&pool, w);
	MUST(block_alloc(&pool, "other", TENSOR) == w);
	verify("V", s);
	replay("E", e);
}

/* A17: the result of a capture is known by its address only, and the next capture of the pool
 * carves it again. The graphs may do that. */
static void weak_reference(void)
{
	CUgraphExec first, second;
	CUdeviceptr y = 0, t = 0;

	start();
	CAPTURE_EXEC(first, {
		y = block_alloc(&private_pool, "y", TENSOR);
		run_set(y, 2);
	});
	slot_bind(a, "bridge", y, TENSOR);
	s = snap();
	block_free(&private_pool, y);
	CAPTURE_EXEC(second, {
		t = block_alloc(&private_pool, "t", TENSOR);
		run_set(t, 7);
	});
	MUST(t == y);
	replay("first", first);
	replay("second", second);
	verify("V", s);
	MUST(peek(y) == 7);
}

/* A33: a graph was captured again under the new binding; the old one sleeps. */
static void recorded_again(void)
{
	CUgraphExec again;
	CUdeviceptr fresh;

	start();
	fresh = block_alloc(&pool, "fresh", TENSOR);
	poke(fresh, 2);
	slot_bind(a, "W_UV", fresh, TENSOR);
	CAPTURE_EXEC(again, run_acc(out, fresh));
	block_free(&pool, w);
	replay("again", again);
	verify("V", s);
	MUST(peek(out) == 3);
}

/* A copy in a reload into @p, which the graph of @exec then overwrites or not. */
static void load(const char *name, CUdeviceptr p)
{
	uint64_t id = reload_begin(NULL);
	CUdeviceptr fresh = dev_alloc("fresh", BIG);

	poke(fresh, 5);
	CK(cuMemcpyDtoD(p, fresh, TENSOR));
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
	reload_end(name, id);
}

/* A cache is made at its first use, which is in the capture; a reload loads it, and the next
 * replay writes it anew. Without that graph the memory is as good as any. */
static void born_in_capture(void)
{
	CUdeviceptr cache = 0;

	a = layer("model.layers.0");
	CAPTURE_EXEC(e, {
		cache = block_alloc(&private_pool, "cache", TENSOR);
		run_set(cache, 2);
	});
	slot_bind(a, "cache", cache, TENSOR);
	load("R", cache);
	replay("E", e);
	MUST(peek(cache) == 2);
	CK(cuGraphExecDestroy(e));
	load("again", cache);
	MUST(peek(cache) == 5);
}

/* The same cache, made before the capture. */
static void made_before(void)
{
	CUdeviceptr cache = block_alloc(&pool, "cache", TENSOR);

	a = layer("model.layers.0");
	CAPTURE_EXEC(e, run_acc(cache, cache));
	slot_bind(a, "cache", cache, TENSOR);
	load("R", cache);
	replay("E", e);
	MUST(peek(cache) == 10);
}

VICTIM({ "rebound", rebound }, { "in-place", in_place }, { "dropped", dropped },
       { "came-back", came_back }, { "taken", taken }, { "weak-reference", weak_reference },
       { "recorded-again", recorded_again }, { "born-in-capture", born_in_capture },
       { "made-before", made_before });
