/* SPDX-License-Identifier: Apache-2.0 */
/* A disabled node does not count; once it is enabled, all that happened meanwhile counts. */
#include "victim.h"

static void toggled(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), a = dev_alloc("a", BIG), b = dev_alloc("b", BIG);
	CUgraphNode first, second;
	CUgraphExec e;
	CUgraph g;

	poke(out, 0);
	poke(a, 1);
	poke(b, 2);
	CK(cuGraphCreate(&g, 0));
	first = add_acc(g, NULL, out, a);
	second = add_acc(g, first, out, b);
	e = instantiate(g);
	replay("E", e);
	CK(cuGraphNodeSetEnabled(e, second, 0));
	dev_free(b);
	replay("E", e);
	MUST(peek(out) == 4);
	CK(cuGraphNodeSetEnabled(e, second, 1));
	victim_only_harmless(false);
	replay("E", e);
	CK(cuGraphNodeSetEnabled(e, second, 0));
	replay("E", e);
	MUST(peek(out) == 5);
}

VICTIM({ "toggled", toggled });
