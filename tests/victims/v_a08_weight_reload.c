/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A08, gittensor-ai-lab/sparkinfer#147: an engine frees all layers and allocates them anew; the
 * decode graph goes on with the old addresses. Where the allocator gives the same addresses back,
 * nothing faults and the layers read each other's weights.
 */
#include "victim.h"

#define LAYERS 8

static CUdeviceptr out, w[LAYERS];

static void load(const char *prefix, const int *order)
{
	char name[16];

	for (int i = 0; i < LAYERS; i++) {
		int l = order[i];

		snprintf(name, sizeof(name), "%s%d", prefix, l);
		w[l] = dev_alloc(name, BIG);
	}
}

static void fill(int factor)
{
	for (int l = 0; l < LAYERS; l++)
		poke(w[l], factor * (l + 1));
}

static void decode(void)
{
	for (int l = 0; l < LAYERS; l++)
		run_acc(out, w[l]);
}

static CUgraphExec start(CUdeviceptr *first)
{
	CUgraphExec e;

	out = dev_alloc("out", BIG);
	poke(out, 0);
	load("w", (const int[]){ 0, 1, 2, 3, 4, 5, 6, 7 });
	fill(1);
	CAPTURE_EXEC(e, decode());
	replay("E", e);
	MUST(peek(out) == 36);
	for (int l = 0; l < LAYERS; l++)
		first[l] = w[l];
	return e;
}

/* Every old address is somebody's memory again: reading it does not fault. */
static bool all_back(const CUdeviceptr *first)
{
	for (int i = 0; i < LAYERS; i++) {
		bool back = false;

		for (int l = 0; l < LAYERS; l++)
			back = back || w[l] == first[i];
		if (!back)
			return false;
	}
	return true;
}

static void reload(const int *order)
{
	CUdeviceptr first[LAYERS];
	CUgraphExec e = start(first);

	for (int l = 0; l < LAYERS; l++)
		dev_free(w[l]);
	load("n", order);
	fill(2);
	victim_only_harmless(all_back(first));
	replay("E", e);
}

static void same_order(void)
{
	reload((const int[]){ 7, 6, 5, 4, 3, 2, 1, 0 });
}

static void permuted(void)
{
	reload((const int[]){ 0, 1, 2, 3, 4, 5, 6, 7 });
}

/* The graph is dropped before the reload and captured again after it. */
static void fixed(void)
{
	CUdeviceptr first[LAYERS];
	CUgraphExec e = start(first);

	CK(cuGraphExecDestroy(e));
	for (int l = 0; l < LAYERS; l++)
		dev_free(w[l]);
	load("n", (const int[]){ 0, 1, 2, 3, 4, 5, 6, 7 });
	fill(2);
	poke(out, 0);
	CAPTURE_EXEC(e, decode());
	replay("E", e);
	MUST(peek(out) == 72);
}

VICTIM({ "buggy", same_order }, { "permuted", permuted }, { "fixed", fixed });
