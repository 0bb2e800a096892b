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

/* An operation on a word of a stream. */
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

/* The same, freed while the stream still captures. */
static void op_in_capture(void)
{
	CUdeviceptr other;
	CUgraphExec e;
	CUgraph g;

	start();
	CK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED));
	CK(cuStreamWriteValue32(S, w, 9, 0));
	dev_free(w);
	other = dev_alloc("w2", BIG);
	CK(cuStreamEndCapture(S, &g));
	if (other != w)
		victim_skip("the allocator gave another address");
	e = instantiate(g);
	replay("E", e);
}

/* A captured call that adds no node does not give a new meaning to the node before it. */
static void no_node(void)
{
	CUevent fork, join;
	CUstream side;
	CUdeviceptr other;
	CUgraph g;

	start();
	CK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	CK(cuEventCreate(&fork, 0));
	CK(cuEventCreate(&join, 0));
	CK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED));
	run_acc(out, w);
	CK(cuEventRecord(fork, S));
	CK(cuStreamWaitEvent(side, fork, 0));
	run_acc(out, out);
	dev_free(w);
	other = dev_alloc("w2", BIG);
	if (cuMemcpyDtoDAsync(out, out, 0, side))
		victim_skip("this driver captures no empty copy");
	CK(cuEventRecord(join, side));
	CK(cuStreamWaitEvent(S, join, 0));
	CK(cuStreamEndCapture(S, &g));
	if (other != w)
		victim_skip("the allocator gave another address");
	replay("E", instantiate(g));
}

static void reuse(void)
{
	CUdeviceptr other;

	dev_free(w);
	other = dev_alloc("w2", BIG);
	if (other != w)
		victim_skip("the allocator gave another address");
}

/* A node that the driver does not destroy means what it meant. */
static void node_stays(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { CU_MEM_LOCATION_TYPE_DEVICE, victim_device } },
		.bytesize = BIG,
	};
	CUgraphNode node, alloc, free_node;
	CUgraph g;

	start();
	CK(cuGraphCreate(&g, 0));
	node = add_acc(g, NULL, out, w);
	CK(cuGraphAddMemAllocNode(&alloc, g, &node, 1, &p));
	CK(cuGraphAddMemFreeNode(&free_node, g, &alloc, 1, p.dptr));
	if (!cuGraphDestroyNode(node))
		victim_skip("this driver destroys nodes of such graphs");
	reuse();
	replay("E", instantiate(g));
}

/* Nor does a graph that belongs to its parent. */
static void child_stays(void)
{
	CUgraph g, child, inner;
	CUgraphNode node;

	start();
	CAPTURE(child, run_acc(out, w));
	CK(cuGraphCreate(&g, 0));
	CK(cuGraphAddChildGraphNode(&node, g, NULL, 0, child));
	CK(cuGraphDestroy(child));
	CK(cuGraphChildGraphNodeGetGraph(node, &inner));
	if (!cuGraphDestroy(inner))
		victim_skip("this driver destroys embedded graphs");
	reuse();
	replay("E", instantiate(g));
}

/* An exec that is captured becomes a child of the new graph (on a driver to come), and its nodes
 * are born there. */
static void launched(void)
{
	CUgraphExec e, outer;
	CUgraph g;

	start();
	CAPTURE_EXEC(e, run_acc(out, w));
	CAPTURE(g, launch_captured(e));
	CK(cuGraphExecDestroy(e));
	dev_free(w);
	outer = instantiate(g);
	victim_only_harmless(false);
	replay("E", outer);
	MUST(peek(out) == 0);
}

VICTIM({ "captured", captured }, { "in-capture", in_capture }, { "added", added },
       { "reused", reused }, { "cloned", cloned }, { "mem-op", mem_op }, { "launched", launched },
       { "op-in-capture", op_in_capture }, { "no-node", no_node }, { "node-stays", node_stays },
       { "child-stays", child_stays });
