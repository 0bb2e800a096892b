/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A28 (trap), pytorch/pytorch#159594, sgl-project/sglang#29384: memory may be freed once every
 * exec that refers to it is gone. The template still carries the address.
 */
#include "victim.h"

static void gone(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), a = dev_alloc("a", BIG), b;
	CUgraphExec e, e2, e3, e4;
	CUgraph g;

	poke(out, 0);
	poke(a, 1);
	CAPTURE(g, run_acc(out, a));
	e = instantiate(g);
	replay("E", e);
	CK(cuGraphExecDestroy(e));
	dev_free(a);
	e2 = instantiate(g);
	victim_only_harmless(false);
	replay("E2", e2);
	CK(cuGraphExecDestroy(e2));
	CK(cuGraphDestroy(g));

	b = dev_alloc("b", 2 * BIG);
	poke(b, 2);
	CAPTURE(g, run_acc(out, b));
	e3 = instantiate(g);
	e4 = instantiate(g);
	replay("E3", e3);
	CK(cuGraphExecDestroy(e3));
	dev_free(b);
	replay("E4", e4);
	MUST(peek(out) == 3);
}

/* Nothing that is launched refers to what is freed. */
static void legal(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), a = dev_alloc("a", BIG);
	CUgraphExec e, e2;
	CUgraph g;

	poke(out, 0);
	poke(a, 1);
	CAPTURE(g, run_acc(out, a));
	e = instantiate(g);
	e2 = instantiate(g);
	replay("E", e);
	CK(cuGraphExecDestroy(e));
	replay("E2", e2);
	CK(cuGraphExecDestroy(e2));
	dev_free(a);
	MUST(peek(out) == 2);
}

VICTIM({ "gone", gone }, { "legal", legal });
