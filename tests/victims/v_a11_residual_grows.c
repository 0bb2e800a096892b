/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A11, vllm-project/vllm#50386, infinigence/ApxInf#89: an eager call with a larger batch grows a
 * buffer of zeros and drops the one that the graph reads. In the twin a cache of the same size is
 * freed and allocated again, often at the same address.
 */
#include "slots.h"

static CUdeviceptr out, z;
static struct arena *moe;

static CUgraphExec start(void)
{
	CUgraphExec e;

	moe = layer("model.layers.0.moe");
	out = dev_alloc("out", BIG);
	z = dev_alloc("z", BIG);
	poke(out, 0);
	poke(z, 0);
	slot_bind(moe, "zero_residual", z, BIG);
	CAPTURE_EXEC(e, run_acc(out, z));
	replay("E", e);
	return e;
}

static void grown(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();
	CUdeviceptr big = dev_alloc("big", 8 * BIG), z2 = dev_alloc("z2", 8 * BIG);

	poke(big, 0);
	poke(z2, 0);
	slot_bind(moe, "zero_residual", z2, 8 * BIG);
	dev_free(z);
	run_acc(big, z2);
	settle();
	verify("V", s);
	victim_only_harmless(false);
	replay("E", e);
}

/* The address came back and the slot says that it is its memory again: benign. */
static void same_address(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();
	CUdeviceptr old = z;

	dev_free(z);
	z = dev_alloc("z2", BIG);
	if (z != old)
		victim_skip("the allocator gave another address");
	poke(z, 5);
	slot_bind(moe, "zero_residual", z, BIG);
	verify("V", s);
	replay("E", e);
	MUST(peek(out) == 5);
}

/* As before, but nobody tells the slot. */
static void untold(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();
	CUdeviceptr old = z;

	dev_free(z);
	z = dev_alloc("z2", BIG);
	if (z != old)
		victim_skip("the allocator gave another address");
	poke(z, 5);
	verify("V", s);
	replay("E", e);
}

VICTIM({ "grown", grown }, { "same-address", same_address }, { "untold", untold });
