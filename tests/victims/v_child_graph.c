/* SPDX-License-Identifier: Apache-2.0 */
/* Child graphs, nested twice: they are copied when they are added. */
#include "victim.h"

static CUdeviceptr out, a, b;

static CUgraph leaf(CUdeviceptr src)
{
	CUgraph g;

	CK(cuGraphCreate(&g, 0));
	add_acc(g, NULL, out, src);
	return g;
}

static CUgraph around(CUgraph child, CUgraphNode *node)
{
	CUgraph g;

	CK(cuGraphCreate(&g, 0));
	CK(cuGraphAddChildGraphNode(node, g, NULL, 0, child));
	CK(cuGraphDestroy(child));
	return g;
}

static void start(void)
{
	out = dev_alloc("out", BIG);
	a = dev_alloc("a", BIG);
	b = dev_alloc("b", BIG);
	poke(out, 0);
	poke(a, 1);
	poke(b, 2);
}

static void nested(void)
{
	CUgraphNode node;
	CUgraphExec e;

	start();
	e = instantiate(around(around(leaf(a), &node), &node));
	replay("E", e);
	dev_free(a);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 1);
}

/* Freed between the copy into the parent and instantiate. */
static void early(void)
{
	CUgraphNode node;
	CUgraph g;

	start();
	g = around(leaf(a), &node);
	dev_free(a);
	victim_only_harmless(false);
	replay("E", instantiate(g));
	MUST(peek(out) == 0);
}

/* The child gets new parameters in the exec: the old memory may go, the new may not. */
static void replaced(void)
{
	CUgraphNode node;
	CUgraphExec e;
	CUgraph g, other;

	start();
	g = around(leaf(a), &node);
	e = instantiate(g);
	other = leaf(b);
	CK(cuGraphExecChildGraphNodeSetParams(e, node, other));
	CK(cuGraphDestroy(other));
	dev_free(a);
	replay("E", e);
	MUST(peek(out) == 2);
	dev_free(b);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 2);
}

/* A graph launched into a capturing stream becomes a child node, on a driver to come. */
static void captured(void)
{
	CUgraphExec inner, outer;
	CUgraph g;

	start();
	CAPTURE_EXEC(inner, run_acc(out, a));
	CAPTURE(g, run_acc(out, b); launch_captured(inner));
	outer = instantiate(g);
	replay("outer", outer);
	MUST(peek(out) == 3);
	dev_free(a);
	victim_only_harmless(false);
	replay("inner", inner);
	replay("outer", outer);
	MUST(peek(out) == 3);
}

/* The exec is stale when it is launched into the capture: the new graph is as stale. */
static void stale(void)
{
	CUgraphExec inner;
	CUdeviceptr now;
	CUgraph g;

	start();
	CAPTURE_EXEC(inner, run_acc(out, a));
	dev_free(a);
	now = dev_alloc("a2", BIG);
	if (now != a)
		victim_skip("the allocator gave another address");
	CAPTURE(g, launch_captured(inner));
	replay("outer", instantiate(g));
}

/* The same, with nothing at the address any more; what is in order stays so. */
static void gone(void)
{
	CUgraphExec bad, good;
	CUgraph g;

	start();
	CAPTURE_EXEC(bad, run_acc(out, a));
	CAPTURE_EXEC(good, run_acc(out, b));
	dev_free(a);
	CAPTURE(g, launch_captured(good));
	replay("good", instantiate(g));
	MUST(peek(out) == 2);
	CAPTURE(g, launch_captured(bad));
	victim_only_harmless(false);
	replay("bad", instantiate(g));
}

VICTIM({ "nested", nested }, { "early", early }, { "replaced", replaced }, { "captured", captured },
       { "stale", stale }, { "gone", gone });
