/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A28 (trap) with slots: once every exec that captured a slot's memory is gone, the slot may move
 * and its old memory be freed.
 */
#include "slots.h"

static struct arena *a;
static CUdeviceptr out, p;

static void start(CUgraph *g)
{
	a = layer("model.layers.0");
	out = dev_alloc("out", BIG);
	p = dev_alloc("p", BIG);
	poke(out, 0);
	poke(p, 1);
	slot_bind(a, "w", p, BIG);
	CAPTURE(*g, run_acc(out, p));
}

static void move(void)
{
	CUdeviceptr q = dev_alloc("q", BIG);

	poke(q, 2);
	slot_bind(a, "w", q, BIG);
	dev_free(p);
	p = q;
}

static void legal(void)
{
	struct arena_snapshot *s;
	CUgraphExec e, e2;
	CUgraph g;

	start(&g);
	e = instantiate(g);
	replay("E", e);
	s = snap();
	CK(cuGraphExecDestroy(e));
	CK(cuGraphDestroy(g));
	move();
	verify("V", s);
	CAPTURE_EXEC(e2, run_acc(out, p));
	verify("again", s);
	replay("E2", e2);
	MUST(peek(out) == 3);
}

/* A second instantiation is still there. */
static void one_left(void)
{
	struct arena_snapshot *s;
	CUgraphExec e, e2;
	CUgraph g;

	start(&g);
	e = instantiate(g);
	e2 = instantiate(g);
	s = snap();
	CK(cuGraphExecDestroy(e));
	move();
	verify("V", s);
	victim_only_harmless(false);
	replay("E2", e2);
}

VICTIM({ "legal", legal }, { "one-left", one_left });
