/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workspaces: contents that a graph leaves dirty are zeroed when they are acquired again, addresses
 * stay, and code that knows nothing of slots gets its old workspaces back by a tag.
 */
#include "slots.h"

#define PIECES 3

static struct arena *a;
static CUdeviceptr out;

static void start(void)
{
	arena_needed();
	a = layer("model.layers.0.moe");
	out = dev_alloc("out", BIG);
	poke(out, 0);
}

/* A lock: the kernels expect zeros and leave ones. */
static void dirtied(void)
{
	CUdeviceptr lock;
	CUgraphExec e;

	start();
	lock = slot_scratch(a, "marlin.workspace", 4 * N_INTS, ARENA_ZERO);
	CAPTURE_EXEC(e, run_acc(out, lock); run_set(lock, 1));
	for (int pass = 0; pass < 3; pass++) {
		replay("E", e);
		MUST(peek(out) == 0 && peek(lock) == 1);
		MUST(slot_scratch(a, "marlin.workspace", 4 * N_INTS, ARENA_ZERO) == lock);
		MUST(peek(lock) == 0);
	}
	replay("E", e);
	MUST(slot_scratch(a, "marlin.workspace", 4 * N_INTS, ARENA_PRESERVE) == lock);
	MUST(peek(lock) == 1);
	MUST(slot_scratch(a, "marlin.workspace", 4 * N_INTS, ARENA_EMPTY) == lock);
	MUST(peek(lock) == 1);
}

/* Two passes of post-load processing: equal pointers, also for what is small. */
static void second_pass(void)
{
	const size_t bytes[PIECES] = { 256, 4 * N_INTS, 2 * BIG };
	const char *const names[PIECES] = { "strides", "perm", "buffer" };
	CUdeviceptr first[PIECES];
	struct arena_snapshot *s;

	start();
	for (int i = 0; i < PIECES; i++) {
		first[i] = slot_scratch(a, names[i], bytes[i], ARENA_ZERO);
		MUST(first[i] % 256 == 0);
		for (int k = 0; k < i; k++)
			MUST(first[k] + bytes[k] <= first[i] || first[i] + bytes[i] <= first[k]);
	}
	s = snap();
	for (int i = 0; i < PIECES; i++)
		MUST(slot_scratch(a, names[i], bytes[i], ARENA_ZERO) == first[i]);
	verify("V", s);
}

/* Somebody else's wrapper: it allocates, in order, and frees when it is dropped. */
static void build(CUdeviceptr *piece, const char *name, size_t last_bytes)
{
	AK(arena_enter(a));
	AK(arena_tag_push("ws", ARENA_SCRATCH));
	for (int i = 0; i < PIECES; i++)
		piece[i] = dev_alloc(name, i == PIECES - 1 ? last_bytes : BIG);
	AK(arena_tag_pop());
	AK(arena_leave());
}

static void drop(const CUdeviceptr *piece)
{
	for (int i = 0; i < PIECES; i++)
		dev_free(piece[i]);
}

static CUgraphExec captured(CUdeviceptr *piece)
{
	CUgraphExec e;

	build(piece, "ws", BIG);
	for (int i = 0; i < PIECES; i++)
		poke(piece[i], 1);
	CAPTURE_EXEC(e, for (int i = 0; i < PIECES; i++) run_acc(out, piece[i]));
	replay("E", e);
	MUST(peek(out) == PIECES);
	return e;
}

/* Rebuilt while the old one still exists, or after it is gone: the same memory. */
static void rebuilt(void)
{
	CUdeviceptr first[PIECES], second[PIECES], third[PIECES];
	struct arena_snapshot *s;
	CUgraphExec e;

	start();
	e = captured(first);
	s = snap();
	build(second, "ws", BIG);
	drop(first);
	replay("E", e);
	drop(second);
	replay("E", e);
	build(third, "ws", BIG);
	for (int i = 0; i < PIECES; i++)
		MUST(first[i] == second[i] && second[i] == third[i]);
	verify("V", s);
	replay("E", e);
	MUST(peek(out) == 4 * PIECES);
}

/* Of another size: the driver serves it, and the graph's memory stays what it was. */
static void resized(void)
{
	CUdeviceptr first[PIECES], second[PIECES];
	CUgraphExec e;
	uint64_t id;

	start();
	e = captured(first);
	drop(first);
	id = reload_begin(NULL);
	build(second, "larger", 4 * BIG);
	MUST(second[0] == first[0] && second[1] == first[1] && second[2] != first[2]);
	reload_end("larger", id);
	replay("E", e);
	drop(second);
	id = reload_begin(NULL);
	build(second, "ws", BIG);
	MUST(second[2] == first[2]);
	reload_end("again", id);
	replay("E", e);
	MUST(peek(out) == 3 * PIECES);
}

static CUdeviceptr derive(int v)
{
	CUdeviceptr p;

	AK(arena_enter(a));
	AK(arena_tag_push("derived", ARENA_VALUE));
	p = dev_alloc("derived", BIG);
	AK(arena_tag_pop());
	AK(arena_leave());
	poke(p, v);
	return p;
}

/* Derived by somebody else's code: its memory is what the commit publishes. */
static void value_tag(void)
{
	CUdeviceptr live, fresh;
	CUgraphExec e;
	uint64_t id;

	start();
	id = reload_begin(NULL);
	live = derive(1);
	commit(a);
	reload_end("cold", id);
	CAPTURE_EXEC(e, run_acc(out, live));
	replay("E", e);
	id = reload_begin(NULL);
	fresh = derive(10);
	MUST(fresh != live && peek(live) == 1);
	replay("E", e);
	commit(a);
	reload_end("R", id);
	dev_free(live);
	dev_free(fresh);
	replay("E", e);
	MUST(peek(out) == 1 + 1 + 10);
}

VICTIM({ "dirtied", dirtied }, { "second-pass", second_pass }, { "rebuilt", rebuilt },
       { "resized", resized }, { "value-tag", value_tag });
