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

VICTIM({ "nodes", nodes }, { "outlives", outlives });
