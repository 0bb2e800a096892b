/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A07, vllm-project/vllm-ascend#7473: the loaded weight stays where it is, but each reload makes a
 * contiguous copy of it elsewhere, and the graph has the first copy.
 */
#include "slots.h"

static CUdeviceptr out, loaded, derived;
static struct arena *attention;

static CUgraphExec start(void)
{
	CUgraphExec e;

	attention = layer("model.layers.0.self_attn");
	out = dev_alloc("out", BIG);
	loaded = dev_alloc("loaded", BIG);
	derived = dev_alloc("derived", BIG);
	poke(out, 0);
	poke(loaded, 1);
	CK(cuMemcpyDtoDAsync(derived, loaded, 4096, S));
	settle();
	slot_bind(attention, "W_UV", derived, BIG);
	CAPTURE_EXEC(e, run_acc(out, derived));
	return e;
}

static void buggy(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();
	uint64_t id = reload_begin(NULL);
	CUdeviceptr again = dev_alloc("again", BIG);

	poke(loaded, 2);
	CK(cuMemcpyDtoDAsync(again, loaded, 4096, S));
	settle();
	slot_bind(attention, "W_UV", again, BIG);
	dev_free(derived);
	reload_end("R", id);
	verify("V", s);
	victim_only_harmless(false);
	replay("E", e);
}

static void fixed(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();
	uint64_t id = reload_begin(NULL);

	poke(loaded, 2);
	CK(cuMemcpyDtoDAsync(derived, loaded, 4096, S));
	settle();
	slot_bind(attention, "W_UV", derived, BIG);
	reload_end("R", id);
	verify("V", s);
	replay("E", e);
	MUST(peek(out) == 2);
}

VICTIM({ "buggy", buggy }, { "fixed", fixed });
