/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A33 (trap), pytorch/pytorch#126822, huggingface/peft#2611: the runtime sees that an input moved,
 * records a new graph and keeps the old one without launching it again.
 */
#include "slots.h"

static void tell_story(bool dormant)
{
	struct arena *a = layer("model");
	CUdeviceptr out = dev_alloc("out", BIG), p0 = dev_alloc("p0", BIG), p1;
	struct arena_snapshot *s;
	CUgraphExec e0, e1;

	poke(out, 0);
	poke(p0, 1);
	slot_bind(a, "param", p0, BIG);
	CAPTURE_EXEC(e0, run_acc(out, p0));
	replay("E0", e0);
	s = snap();
	p1 = dev_alloc("p1", BIG);
	poke(p1, 2);
	slot_bind(a, "param", p1, BIG);
	CAPTURE_EXEC(e1, run_acc(out, p1));
	dev_free(p0);
	for (int i = 0; i < 3; i++)
		replay("E1", e1);
	verify("V", s);
	MUST(peek(out) == 1 + 3 * 2);
	if (dormant)
		return;
	victim_only_harmless(false);
	replay("E0", e0);
}

static void dormant(void)
{
	tell_story(true);
}

static void woken(void)
{
	tell_story(false);
}

/* Two buffers in turn, each with a graph of its own. */
static void ping_pong(void)
{
	struct arena *a = layer("model");
	CUdeviceptr out = dev_alloc("out", BIG), p[2];
	CUgraphExec e[2];

	p[0] = dev_alloc("p0", BIG);
	p[1] = dev_alloc("p1", BIG);
	poke(out, 0);
	for (int i = 0; i < 2; i++) {
		poke(p[i], i + 1);
		slot_bind(a, "param", p[i], BIG);
		CAPTURE_EXEC(e[i], run_acc(out, p[i]));
	}
	for (int i = 0; i < 6; i++) {
		slot_bind(a, "param", p[i % 2], BIG);
		replay(i % 2 ? "E1" : "E0", e[i % 2]);
	}
	MUST(peek(out) == 3 * (1 + 2));
}

VICTIM({ "dormant", dormant }, { "woken", woken }, { "ping-pong", ping_pong });
