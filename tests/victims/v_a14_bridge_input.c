/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A14, vllm-project/vllm#53915: between two graphs an eager operation gives a fresh tensor at each
 * step; the second graph reads the one of its capture. Garbage tokens, no error.
 */
#include "slots.h"

#define STEPS 3

static CUdeviceptr in, y, out;
static struct arena *piece;

static CUdeviceptr produce(const char *name)
{
	CUdeviceptr x = dev_alloc(name, BIG);

	run_set(x, 0);
	run_acc(x, y);
	run_acc(x, y);
	settle();
	return x;
}

static void start(CUgraphExec *first, CUgraphExec *second, CUdeviceptr *x)
{
	piece = layer("model.piece2");
	in = dev_alloc("in", BIG);
	y = dev_alloc("y", BIG);
	out = dev_alloc("out", BIG);
	poke(in, 1);
	poke(y, 0);
	poke(out, 0);
	CAPTURE_EXEC(*first, run_acc(y, in));
	*x = produce("x");
	slot_bind(piece, "in", *x, BIG);
	CAPTURE_EXEC(*second, run_acc(out, *x));
}

static void fresh(void)
{
	CUgraphExec first, second;
	CUdeviceptr x;

	start(&first, &second, &x);
	for (int i = 0; i < STEPS; i++) {
		replay("first", first);
		slot_bind(piece, "in", produce("fresh"), BIG);
		replay("second", second);
	}
}

/* A bridge buffer that stays. */
static void fixed(void)
{
	CUgraphExec first, second;
	CUdeviceptr x;

	start(&first, &second, &x);
	for (int i = 0; i < STEPS; i++) {
		CUdeviceptr t;

		replay("first", first);
		t = produce("fresh");
		CK(cuMemcpyDtoDAsync(x, t, 4096, S));
		settle();
		dev_free(t);
		slot_bind(piece, "in", x, BIG);
		replay("second", second);
	}
	MUST(peek(out) == 2 * (1 + 2 + 3));
}

VICTIM({ "fresh", fresh }, { "fixed", fixed });
