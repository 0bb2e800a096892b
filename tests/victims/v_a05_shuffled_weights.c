/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A05, vllm-project/vllm#40390, NVIDIA-NeMo/RL#2895: shuffling a weight into kernel layout gives it
 * other memory. Prefill reads the new one, the decode graph the old one: plausible nonsense.
 */
#include "slots.h"

static CUdeviceptr out, w;
static struct arena *moe;

static CUgraphExec start(void)
{
	CUgraphExec e;

	moe = layer("model.layers.0.moe");
	out = dev_alloc("out", BIG);
	w = dev_alloc("w", BIG);
	poke(out, 0);
	poke(w, 1);
	slot_bind(moe, "w13", w, BIG);
	CAPTURE_EXEC(e, run_acc(out, w));
	return e;
}

static void buggy(void)
{
	CUgraphExec decode = start();
	struct arena_snapshot *s = snap();
	uint64_t id = reload_begin(NULL);
	CUdeviceptr prefill = dev_alloc("prefill", BIG), w2 = dev_alloc("w2", BIG);

	poke(prefill, 0);
	poke(w2, 2);
	slot_bind(moe, "w13", w2, BIG);
	reload_end("R", id);
	verify("V", s);
	run_acc(prefill, w2);
	MUST(peek(prefill) == 2);
	replay("decode", decode);
	dev_free(w);
	victim_only_harmless(false);
	replay("decode", decode);
}

static void fixed(void)
{
	CUgraphExec decode = start();
	struct arena_snapshot *s = snap();
	uint64_t id = reload_begin(NULL);
	CUdeviceptr shuffled = dev_alloc("shuffled", BIG);

	poke(shuffled, 2);
	CK(cuMemcpyDtoDAsync(w, shuffled, 4096, S));
	settle();
	dev_free(shuffled);
	slot_bind(moe, "w13", w, BIG);
	reload_end("R", id);
	verify("V", s);
	replay("decode", decode);
	MUST(peek(out) == 2);
}

VICTIM({ "buggy", buggy }, { "fixed", fixed });
