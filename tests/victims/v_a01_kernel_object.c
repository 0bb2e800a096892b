/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A01, vllm-project/vllm#41670: post-load processing rebuilds a kernel object, so its stride tensor
 * moves; a scale is copied back into its place, and only the configuration keeps the new copy.
 */
#include "slots.h"

static CUdeviceptr out, strides, scale;
static struct arena *moe;

static CUgraphExec start(void)
{
	CUgraphExec e;

	moe = layer("model.layers.0.moe");
	out = dev_alloc("out", BIG);
	strides = dev_alloc("strides", BIG);
	scale = dev_alloc("scale", BIG);
	poke(out, 0);
	poke(strides, 1);
	poke(scale, 1);
	slot_bind(moe, "ab_strides", strides, BIG);
	slot_bind(moe, "w1.scale", scale, BIG);
	CAPTURE_EXEC(e, run_acc(out, strides); run_acc(out, scale));
	replay("E", e);
	return e;
}

static void copy_scale_back(void)
{
	CUdeviceptr orphan = dev_alloc("orphan", BIG);

	run_set(orphan, 2);
	CK(cuMemcpyDtoDAsync(scale, orphan, 4096, S));
	settle();
}

static void buggy(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();
	uint64_t id = reload_begin(NULL);
	CUdeviceptr rebuilt = dev_alloc("rebuilt", BIG);

	run_set(rebuilt, 8);
	slot_bind(moe, "ab_strides", rebuilt, BIG);
	settle();
	dev_free(strides);
	copy_scale_back();
	reload_end("R", id);
	verify("V", s);
	victim_only_harmless(false);
	replay("E", e);
}

/* The kernel object is kept; new strides are copied into it. */
static void fixed(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();
	uint64_t id = reload_begin(NULL);
	CUdeviceptr fresh = dev_alloc("fresh", BIG);

	run_set(fresh, 8);
	CK(cuMemcpyDtoDAsync(strides, fresh, 4096, S));
	settle();
	dev_free(fresh);
	copy_scale_back();
	reload_end("R", id);
	verify("V", s);
	replay("E", e);
	MUST(peek(out) == 1 + 1 + 8 + 2);
}

VICTIM({ "buggy", buggy }, { "fixed", fixed });
