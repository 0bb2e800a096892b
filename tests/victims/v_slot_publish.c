/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staged publication: what is put stays out of the live memory until its layer commits, and for
 * ever if the layer is refused. A request that does not fit the slot changes nothing.
 */
#include "slots.h"

#include <string.h>

static struct arena *a;
static CUdeviceptr out, w;
static CUgraphExec e;

/* The cold load, and a graph over its slot. */
static void start(void)
{
	uint64_t id;

	arena_needed();
	a = layer("model.layers.0");
	out = dev_alloc("out", BIG);
	poke(out, 0);
	id = reload_begin(NULL);
	w = slot_put_value(a, "w", 1, ARENA_STAGED);
	commit(a);
	MUST(reload_end("cold", id) == ARENA_OK);
	CAPTURE_EXEC(e, run_acc(out, w));
	replay("E", e);
	MUST(peek(out) == 1);
}

static void staged(void)
{
	uint64_t id;

	start();
	id = reload_begin(NULL);
	MUST(slot_put_value(a, "w", 10, ARENA_STAGED) == w);
	MUST(peek(w) == 1);
	replay("E", e);
	MUST(peek(out) == 2);
	commit(a);
	reload_end("R", id);
	replay("E", e);
	MUST(peek(out) == 12);
}

static void direct(void)
{
	uint64_t id;

	start();
	id = reload_begin(NULL);
	MUST(slot_put_value(a, "w", 10, ARENA_DIRECT) == w);
	MUST(peek(w) == 10);
	commit(a);
	reload_end("R", id);
	replay("E", e);
	MUST(peek(out) == 11);
}

/* The last put counts, and what it does not cover is zero, not the put before. */
static void staged_twice(void)
{
	struct arena_spec spec = spec_bytes(4 * N_INTS);
	CUdeviceptr source = dev_alloc("source", 4 * N_INTS);
	void *live;
	uint64_t id;

	start();
	id = reload_begin(NULL);
	slot_put_value(a, "w", 10, ARENA_STAGED);
	poke(source, 20);
	AK(arena_put(a, "w", &spec, (const void *)source, ARENA_STAGED, &live, S));
	commit(a);
	reload_end("R", id);
	replay("E", e);
	MUST(peek(out) == 21);
}

/* A tensor of the layer that somebody else owns has moved: nothing of the layer is published. */
static void refused(void)
{
	CUdeviceptr b = dev_alloc("b", BIG);
	CUgraphExec other;
	uint64_t id;

	start();
	poke(b, 5);
	slot_bind(a, "b", b, BIG);
	CAPTURE_EXEC(other, run_acc(out, b));
	id = reload_begin(NULL);
	slot_put_value(a, "w", 10, ARENA_STAGED);
	slot_bind(a, "b", dev_alloc("b2", BIG), BIG);
	told("commit", arena_layer_commit(a, S));
	MUST(peek(w) == 1);
	reload_end("R", id);
	MUST(peek(w) == 1 && !status().unsafe);
	replay("E", e);
	replay("other", other);

	/* What was refused is gone, and missed until it is put again. */
	slot_bind(a, "b", b, BIG);
	id = reload_begin(NULL);
	MUST(arena_layer_commit(a, S) == ARENA_E_REFUSED && peek(w) == 1);
	slot_put_value(a, "w", 20, ARENA_STAGED);
	commit(a);
	reload_end("again", id);
	MUST(peek(w) == 20);
	replay("other", other);
}

static void misfit(void)
{
	struct arena_spec spec = spec_bytes(8 * N_INTS);
	CUdeviceptr source = dev_alloc("source", 8 * N_INTS);
	void *p = NULL;
	uint64_t id;

	start();
	id = reload_begin(NULL);
	told("bytes", arena_put(a, "w", &spec, (const void *)source, ARENA_STAGED, &p, S));
	spec = spec_bytes(4 * N_INTS);
	strcpy(spec.dtype, "<f4");
	told("dtype", arena_put(a, "w", &spec, (const void *)source, ARENA_STAGED, &p, S));
	spec = spec_bytes(4 * N_INTS);
	told("kind", arena_get_or_alloc(a, "w", &spec, ARENA_ZERO, &p, S));
	MUST(!p);
	slot_put_value(a, "w", 3, ARENA_STAGED);
	commit(a);
	reload_end("R", id);
	replay("E", e);
	MUST(peek(out) == 4);
}

VICTIM({ "staged", staged }, { "direct", direct }, { "staged-twice", staged_twice },
       { "refused", refused }, { "misfit", misfit });
