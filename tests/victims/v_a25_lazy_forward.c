/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A25 (trap), vllm-project/vllm#49789, #48902: a slot that first appears at the first forward is
 * legal, and from the next snapshot on it stays; what no graph captured may move.
 */
#include "slots.h"

static void lazy(void)
{
	struct arena *a = layer("model.layers.0");
	CUdeviceptr out = dev_alloc("out", BIG), p = dev_alloc("p", BIG), q;
	struct arena_snapshot *s = snap();
	CUgraphExec e;

	poke(out, 0);
	poke(p, 1);
	slot_bind(a, "lazy", p, BIG);
	verify("appeared", s);
	CAPTURE_EXEC(e, run_acc(out, p));
	verify("captured", s);
	replay("E", e);
	s = snap();
	q = dev_alloc("q", BIG);
	poke(q, 2);
	slot_bind(a, "lazy", q, BIG);
	verify("moved", s);
	replay("E", e);
}

static void eager(void)
{
	struct arena *a = layer("model.layers.0");
	CUdeviceptr out = dev_alloc("out", BIG), e0 = dev_alloc("e0", BIG), e1;
	struct arena_snapshot *s;

	poke(out, 0);
	slot_bind(a, "eager", e0, BIG);
	s = snap();
	e1 = dev_alloc("e1", BIG);
	poke(e1, 3);
	slot_bind(a, "eager", e1, BIG);
	dev_free(e0);
	run_acc(out, e1);
	MUST(peek(out) == 3);
	verify("V", s);
}

VICTIM({ "lazy", lazy }, { "eager", eager });
