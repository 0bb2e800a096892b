/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A02, vllm-project/vllm#50538: a reload drops a wrapper that is built again, lazily, at the first
 * forward. The graph writes into the old wrapper's workspace and reads loop bounds from whatever
 * lies there: the GPU runs at 100 % for ever.
 */
#include "slots.h"

static struct arena *experts;
static CUdeviceptr out;

struct wrapper {
	CUdeviceptr workspace;
	const char *name;
};

static int make_wrapper(void *ctx, void **object)
{
	struct wrapper *w = ctx;

	w->workspace = dev_alloc(w->name, BIG);
	*object = w;
	return 0;
}

static CUgraphExec start(struct wrapper *w)
{
	CUgraphExec e;

	experts = layer("model.layers.0.experts");
	out = dev_alloc("out", BIG);
	slot_object(experts, "b12x.wrapper", make_wrapper, w);
	CAPTURE_EXEC(e, run_set(w->workspace, 4); run_bounded(out, w->workspace));
	replay("E", e);
	MUST(peek(out) == 4);
	return e;
}

static void buggy(void)
{
	struct wrapper first = { .name = "ws" }, second = { .name = "ws2" };
	CUgraphExec e = start(&first);
	struct arena_snapshot *s = snap();
	uint64_t id = reload_begin(NULL);
	CUdeviceptr other;

	slot_unbind(experts, "b12x.wrapper");
	dev_free(first.workspace);
	reload_end("R", id);
	verify("dropped", s);
	victim_only_harmless(false);
	other = dev_alloc("other", BIG);
	poke(other, 0x7fffffff);
	replay("E", e);
	slot_object(experts, "b12x.wrapper", make_wrapper, &second);
	verify("rebuilt", s);
	replay("E", e);
}

/* The layer owns the wrapper: the second pass gets the first one back. */
static void fixed(void)
{
	struct wrapper first = { .name = "ws" }, second = { .name = "ws2" };
	struct wrapper *got;
	struct arena_snapshot *s;
	CUgraphExec e;
	uint64_t id;

	arena_needed();
	e = start(&first);
	s = snap();
	id = reload_begin(NULL);
	got = slot_object(experts, "b12x.wrapper", make_wrapper, &second);
	MUST(got == &first && second.workspace == 0);
	reload_end("R", id);
	verify("kept", s);
	replay("E", e);
	MUST(peek(out) == 4);
}

VICTIM({ "buggy", buggy }, { "fixed", fixed });
