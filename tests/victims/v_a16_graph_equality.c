/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A16, ggml-org/llama.cpp#21635, #21736: an update check compares node structures and misses that a
 * source lies in another buffer (v1), or in the same one with other extents (v2).
 */
#include "slots.h"

#include <string.h>

static CUdeviceptr out, k0;
static struct arena *kv;

static void bind_view(CUdeviceptr p, int64_t rows)
{
	struct arena_spec s = spec_bytes(BIG);

	s.ndim = 2;
	s.shape[0] = rows;
	s.shape[1] = 128;
	strcpy(s.dtype, "<f2");
	AK(arena_bind(kv, "k.src", &s, (void *)p));
}

static CUgraphExec start(void)
{
	CUgraphExec e;

	kv = layer("model.layers.0.kv");
	out = dev_alloc("out", BIG);
	k0 = dev_alloc("k0", BIG);
	poke(out, 0);
	poke(k0, 1);
	bind_view(k0, 256);
	CAPTURE_EXEC(e, run_acc(out, k0));
	return e;
}

static void switched(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();
	CUdeviceptr k1 = dev_alloc("k1", BIG);

	poke(k1, 2);
	bind_view(k1, 256);
	verify("V", s);
	replay("E", e);
	/* Nothing is sticky: bound to what was captured, the graph is sound again. */
	bind_view(k0, 256);
	verify("back", s);
	replay("E", e);
}

static void resized(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();

	bind_view(k0, 512);
	verify("V", s);
	/* The address is the one of the capture. */
	replay("E", e);
}

VICTIM({ "switched", switched }, { "resized", resized });
