/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A03, vllm-project/vllm#48251: a derived view is bound anew; a copy in another precision keeps its
 * address and its old value. The first is an address fault, the second is not.
 */
#include "slots.h"

static CUdeviceptr out, kv, w_uv, src, sinks;
static struct arena *attention;

static CUdeviceptr derive(const char *name, CUdeviceptr from)
{
	CUdeviceptr p = dev_alloc(name, BIG);

	CK(cuMemcpyDtoDAsync(p, from, 4096, S));
	settle();
	return p;
}

static CUgraphExec start(void)
{
	CUgraphExec e;

	attention = layer("model.layers.0.self_attn");
	out = dev_alloc("out", BIG);
	kv = dev_alloc("kv", BIG);
	src = dev_alloc("src", BIG);
	poke(out, 0);
	poke(kv, 1);
	poke(src, 10);
	w_uv = derive("W_UV", kv);
	sinks = derive("sinks", src);
	slot_bind(attention, "W_UV", w_uv, BIG);
	slot_bind(attention, "sinks", sinks, BIG);
	CAPTURE_EXEC(e, run_acc(out, w_uv); run_acc(out, sinks));
	replay("E", e);
	MUST(peek(out) == 11);
	return e;
}

static void rebound(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();

	poke(kv, 2);
	poke(src, 20);
	slot_bind(attention, "W_UV", derive("W_UV2", kv), BIG);
	verify("V", s);
	replay("E", e);
}

/* Both are derived into the memory that the graph reads. */
static void fixed(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();

	poke(kv, 2);
	poke(src, 20);
	CK(cuMemcpyDtoDAsync(w_uv, kv, 4096, S));
	CK(cuMemcpyDtoDAsync(sinks, src, 4096, S));
	slot_bind(attention, "W_UV", w_uv, BIG);
	slot_bind(attention, "sinks", sinks, BIG);
	verify("V", s);
	replay("E", e);
	MUST(peek(out) == 11 + 22);
}

VICTIM({ "rebound", rebound }, { "fixed", fixed });
