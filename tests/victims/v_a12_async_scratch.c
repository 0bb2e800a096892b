/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A12, kekzl/imp#1648: a buffer that every step allocates in stream order is baked into a graph
 * that is captured once - and after it was repaired a second stale address remained. A report
 * must name both at the first launch.
 */
#include "victim.h"

static void buggy(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), p, q;
	CUgraphExec e;

	poke(out, 0);
	p = async_alloc("p", BIG);
	q = dev_alloc("q", BIG);
	poke(p, 1);
	poke(q, 2);
	CAPTURE_EXEC(e, run_acc(out, p); run_acc(out, q));
	replay("E", e);
	MUST(peek(out) == 3);
	async_free(p);
	settle();
	dev_free(q);
	p = async_alloc("p2", 2 * BIG);
	poke(p, 5);
	victim_only_harmless(false);
	replay("E", e);
}

/* One buffer for the largest step, never freed while the graph lives. */
static void fixed(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), p = async_alloc("p", 2 * BIG);
	CUgraphExec e;

	poke(out, 0);
	poke(p, 1);
	CAPTURE_EXEC(e, run_acc(out, p));
	replay("E", e);
	poke(p, 5);
	replay("E", e);
	MUST(peek(out) == 6);
	CK(cuGraphExecDestroy(e));
	async_free(p);
	settle();
}

VICTIM({ "buggy", buggy }, { "fixed", fixed });
