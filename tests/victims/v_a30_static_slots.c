/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A30 (trap) with slots: a reload copies new values into the memory that the graph reads; its
 * temporaries are freed at once. The illegal twin assigns a new tensor.
 */
#include "slots.h"

#define STEPS 100

static struct arena *a;
static CUdeviceptr out, w, in;

static CUgraphExec start(void)
{
	CUgraphExec e;

	a = layer("model");
	out = dev_alloc("out", BIG);
	w = dev_alloc("w", BIG);
	in = dev_alloc("in", BIG);
	poke(out, 0);
	poke(w, 1);
	poke(in, 1);
	slot_bind(a, "w", w, BIG);
	slot_bind(a, "in", in, BIG);
	CAPTURE_EXEC(e, run_acc(out, w); run_acc(out, in));
	return e;
}

static void in_place(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();
	uint64_t id = reload_begin(NULL);
	CUdeviceptr t = dev_alloc("t", BIG);

	poke(t, 10);
	CK(cuMemcpyDtoDAsync(w, t, 4096, S));
	settle();
	dev_free(t);
	CK(cuMemcpyPeerAsync(in, victim_context, w, victim_context, 4096, S));
	reload_end("R", id);
	verify("V", s);
	for (int i = 0; i < STEPS; i++) {
		poke(in, i);
		replay("E", e);
	}
	MUST(peek(out) == STEPS * 10 + STEPS * (STEPS - 1) / 2);
}

static void assigned(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();
	uint64_t id = reload_begin(NULL);
	CUdeviceptr t = dev_alloc("t", BIG);

	poke(t, 10);
	slot_bind(a, "w", t, BIG);
	reload_end("R", id);
	verify("V", s);
	replay("E", e);
}

VICTIM({ "in-place", in_place }, { "assigned", assigned });
