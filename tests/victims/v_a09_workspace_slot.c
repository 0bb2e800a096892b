/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A09, flashinfer-ai/flashinfer#4398: a process-wide workspace grows; graphs hold the address of
 * the smaller one. Legal where the old one is retired and kept: a workspace has no value.
 */
#include "slots.h"

static struct arena *shared;
static CUdeviceptr out, ws;

static void bind_workspace(size_t bytes)
{
	struct arena_spec spec = spec_bytes(bytes);

	spec.flags = ARENA_SPEC_SCRATCH;
	AK(arena_bind(shared, "bmm_ws", &spec, (void *)ws));
}

static CUgraphExec start(void)
{
	CUgraphExec e;

	shared = layer("flashinfer");
	out = dev_alloc("out", BIG);
	poke(out, 0);
	ws = dev_alloc("ws", 2 * BIG);
	bind_workspace(2 * BIG);
	CAPTURE_EXEC(e, run_set(ws, 1); run_acc(out, ws));
	replay("E", e);
	return e;
}

static void grow(void)
{
	ws = dev_alloc("larger", 3 * BIG);
	bind_workspace(3 * BIG);
}

static void buggy(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();

	dev_free(ws);
	grow();
	verify("V", s);
	victim_only_harmless(false);
	replay("E", e);
}

static void retired(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();

	grow();
	verify("V", s);
	replay("E", e);
	MUST(peek(out) == 2);
}

VICTIM({ "buggy", buggy }, { "retired", retired });
