/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A29 (trap), NVIDIA/numba-cuda#437, iree-org/iree#13440: memory that a graph allocates itself is
 * there only while it runs, and may have the address of another graph's.
 */
#include "victim.h"

static CUdeviceptr out;

static CUgraphExec make(CUdeviceptr *p, int v)
{
	CUgraphExec e;

	CAPTURE_EXEC(e, CK(cuMemAllocAsync(p, BIG, S)); run_set(*p, v); run_acc(out, *p);
		     CK(cuMemFreeAsync(*p, S)));
	return e;
}

static void nodes(void)
{
	CUdeviceptr p, p2;
	CUgraphExec e, e2;

	out = dev_alloc("out", BIG);
	poke(out, 0);
	e = make(&p, 1);
	for (int i = 0; i < 3; i++)
		replay("E", e);
	e2 = make(&p2, 2);
	replay("E2", e2);
	replay("E", e);
	CK(cuDeviceGraphMemTrim(victim_device));
	replay("E", e);
	MUST(peek(out) == 7);
	/* Outside of the graph the driver refuses; that answer is the application's. */
	tell("free-refused", cuMemFree(p) != CUDA_SUCCESS);
	replay("E", e);
	MUST(peek(out) == 8);
}

/* Allocated in the graph, freed by the program after each launch. */
static void outlives(void)
{
	CUdeviceptr p;
	CUgraphExec e;

	out = dev_alloc("out", BIG);
	poke(out, 0);
	CAPTURE_EXEC(e, CK(cuMemAllocAsync(&p, BIG, S)); run_set(p, 1); run_acc(out, p));
	for (int i = 0; i < 3; i++) {
		replay("E", e);
		async_free(p);
		settle();
	}
	MUST(peek(out) == 3);
}

/* Allocated by one graph, used by a second, freed by a third. */
static void passed_on(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { CU_MEM_LOCATION_TYPE_DEVICE, victim_device } },
		.bytesize = BIG,
	};
	CUgraphExec a, b, c;
	CUgraph g[3];
	CUgraphNode n;

	out = dev_alloc("out", BIG);
	poke(out, 0);
	for (int i = 0; i < 3; i++)
		CK(cuGraphCreate(&g[i], 0));
	CK(cuGraphAddMemAllocNode(&n, g[0], NULL, 0, &p));
	name_range("p", p.dptr, BIG);
	a = instantiate(g[0]);
	add_acc(g[1], NULL, out, p.dptr);
	b = instantiate(g[1]);
	CK(cuGraphAddMemFreeNode(&n, g[2], NULL, 0, p.dptr));
	c = instantiate(g[2]);
	for (int i = 0; i < 3; i++) {
		replay("A", a);
		replay("B", b);
		replay("C", c);
	}
	victim_only_harmless(false);
	replay("B", b);
	replay("A", a);
	replay("B", b);
}

VICTIM({ "nodes", nodes }, { "outlives", outlives }, { "passed-on", passed_on });
