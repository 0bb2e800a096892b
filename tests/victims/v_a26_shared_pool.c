/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A26 (trap), pytorch/pytorch#166975, vllm-project/vllm#9724: graphs that share a private pool
 * have overlapping ranges and are replayed in any order. Legal as long as the pool's memory
 * lives. The pool is one segment, as the caching allocator keeps it; blocks in it are reused.
 */
#include "victim.h"

#define GRAPHS 3

static void any_order(void)
{
	static const int order[] = { 2, 0, 1, 0, 2, 1, 1 };
	CUdeviceptr buf = dev_alloc("buf", BIG), pool = dev_alloc("pool", 5 * BIG);
	CUgraphExec e[GRAPHS];
	char name[8];

	poke(buf, 3);
	for (int i = 0; i < GRAPHS; i++) {
		/* Ranges that overlap the block of the graph before. */
		CUdeviceptr block = pool + (size_t)i * 1024;

		CAPTURE_EXEC(e[i], run_set(block, i); run_acc(block, buf));
	}
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		snprintf(name, sizeof(name), "E%d", order[i]);
		replay(name, e[order[i]]);
		MUST(peek(pool + (size_t)order[i] * 1024) == order[i] + 3);
	}
	for (int i = 0; i < GRAPHS; i++)
		CK(cuGraphExecDestroy(e[i]));
	dev_free(pool);
}

/* The same pool by allocation nodes: the blocks of a graph are its own. */
static void alloc_nodes(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), p;
	CUgraphExec e[GRAPHS];

	poke(out, 0);
	for (int i = 0; i < GRAPHS; i++) {
		CAPTURE_EXEC(e[i], CK(cuMemAllocAsync(&p, BIG, S)); run_set(p, i + 1);
			     run_acc(out, p); CK(cuMemFreeAsync(p, S)));
	}
	replay("E2", e[2]);
	replay("E0", e[0]);
	replay("E1", e[1]);
	replay("E0", e[0]);
	MUST(peek(out) == 7);
	CK(cuGraphExecDestroy(e[1]));
	replay("E2", e[2]);
	CK(cuDeviceGraphMemTrim(victim_device));
	replay("E0", e[0]);
	MUST(peek(out) == 11);
}

VICTIM({ "any-order", any_order }, { "alloc-nodes", alloc_nodes });
