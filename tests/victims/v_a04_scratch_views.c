/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A04, vllm-project/vllm#48902: nine scratch tensors are made again with their kernel. A collector
 * writes six of them back into the old memory and cannot reach the other three.
 */
#include "slots.h"

#define VIEWS	  9
#define REACHABLE 6

static CUdeviceptr out, view[VIEWS];
static struct arena *experts;
static char names[VIEWS][16];

static CUgraphExec start(void)
{
	CUgraphExec e;

	experts = layer("model.layers.0.experts");
	out = dev_alloc("out", BIG);
	poke(out, 0);
	for (int i = 0; i < VIEWS; i++) {
		snprintf(names[i], sizeof(names[i]), "scratch%d", i);
		view[i] = dev_alloc(names[i], BIG);
		poke(view[i], 1);
		slot_bind(experts, names[i], view[i], BIG);
	}
	CAPTURE_EXEC(e, for (int i = 0; i < VIEWS; i++) run_acc(out, view[i]));
	replay("E", e);
	return e;
}

static void reload(int reachable)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();
	uint64_t id = reload_begin(NULL);
	CUdeviceptr fresh[VIEWS];

	for (int i = 0; i < VIEWS; i++) {
		fresh[i] = dev_alloc("fresh", BIG);
		poke(fresh[i], 2);
		slot_bind(experts, names[i], fresh[i], BIG);
	}
	for (int i = 0; i < reachable; i++) {
		CK(cuMemcpyDtoDAsync(view[i], fresh[i], 4096, S));
		settle();
		slot_bind(experts, names[i], view[i], BIG);
		dev_free(fresh[i]);
	}
	for (int i = reachable; i < VIEWS; i++)
		dev_free(view[i]);
	reload_end("R", id);
	verify("V", s);
	victim_only_harmless(reachable == VIEWS);
	replay("E", e);
}

static void buggy(void)
{
	reload(REACHABLE);
}

static void fixed(void)
{
	reload(VIEWS);
	MUST(peek(out) == VIEWS * 3);
}

VICTIM({ "buggy", buggy }, { "fixed", fixed });
