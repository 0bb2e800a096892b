/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory goes away between the moment that a node is made and the moment that the graph is
 * instantiated. What counts is what the address meant when the node was made.
 */
#include "victim.h"

static CUdeviceptr out, w;

static void start(void)
{
	out = dev_alloc("out", BIG);
	w = dev_alloc("w", BIG);
	poke(out, 0);
	poke(w, 1);
}

static void captured(void)
{
	CUgraphExec e;
	CUgraph g;

	start();
	CAPTURE(g, run_acc(out, w));
	dev_free(w);
	e = instantiate(g);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 0);
}

/* Freed while the stream still captures. */
static void in_capture(void)
{
	CUgraphExec e;
	CUgraph g;

	start();
	/* The other modes forbid a free to the thread that captures. */
	CK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED));
	run_acc(out, w);
	dev_free(w);
	CK(cuStreamEndCapture(S, &g));
	e = instantiate(g);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 0);
}

static void added(void)
{
	CUgraphExec e;
	CUgraph g;

	start();
	CK(cuGraphCreate(&g, 0));
	add_acc(g, NULL, out, w);
	dev_free(w);
	e = instantiate(g);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 0);
}

/* The address is live at instantiate - as other memory. */
static void reused(void)
{
	CUdeviceptr other;
	CUgraphExec e;
	CUgraph g;

	start();
	CAPTURE(g, run_acc(out, w));
	dev_free(w);
	other = dev_alloc("w2", BIG);
	if (other != w)
		victim_skip("the allocator gave another address");
	poke(other, 2);
	e = instantiate(g);
	replay("E", e);
}

/* A clone means what its original meant. */
static void cloned(void)
{
	CUgraphExec e;
	CUgraph g, copy;

	start();
	CAPTURE(g, run_acc(out, w));
	CK(cuGraphClone(&copy, g));
	CK(cuGraphDestroy(g));
	dev_free(w);
	e = instantiate(copy);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 0);
}

/* An operation that has no wrapper of its own: read when the capture ends. */
static void mem_op(void)
{
	CUgraphExec e;
	CUgraph g;

	start();
	CAPTURE(g, CK(cuStreamWriteValue32(S, w, 9, 0)));
	dev_free(w);
	e = instantiate(g);
	victim_only_harmless(false);
	replay("E", e);
}

/* An exec that is captured becomes a child of the new graph, and its nodes are born there. */
static void launched(void)
{
	CUgraphExec e, outer;
	CUgraph g;

	start();
	CAPTURE_EXEC(e, run_acc(out, w));
	CAPTURE(g, CK(cuGraphLaunch(e, S)));
	CK(cuGraphExecDestroy(e));
	dev_free(w);
	outer = instantiate(g);
	victim_only_harmless(false);
	replay("E", outer);
	MUST(peek(out) == 0);
}

VICTIM({ "captured", captured }, { "in-capture", in_capture }, { "added", added },
       { "reused", reused }, { "cloned", cloned }, { "mem-op", mem_op }, { "launched", launched });
