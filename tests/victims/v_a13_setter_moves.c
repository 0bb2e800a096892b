/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A13, jcelerier/librediffusion#14: a setter frees and allocates the conditioning buffer that a
 * memcpy node reads. The picture is randomly old, garbage or black, because the allocator may or
 * may not give the address back.
 */
#include "victim.h"

static CUdeviceptr out, x, emb;

static CUgraphExec start(void)
{
	CUgraphExec e;

	out = dev_alloc("out", BIG);
	x = dev_alloc("x", BIG);
	emb = dev_alloc("emb", BIG);
	poke(out, 0);
	poke(emb, 1);
	CAPTURE_EXEC(e, CK(cuMemcpyDtoDAsync(x, emb, 4096, S)); run_acc(out, x));
	replay("E", e);
	MUST(peek(out) == 1);
	return e;
}

static void moved(void)
{
	CUgraphExec e = start();
	CUdeviceptr other = dev_alloc("emb2", BIG);

	dev_free(emb);
	poke(other, 2);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 1);
}

/* The address comes back: it is other memory all the same. */
static void back(void)
{
	CUgraphExec e = start();
	CUdeviceptr old = emb;

	dev_free(emb);
	emb = dev_alloc("emb2", BIG);
	if (emb != old)
		victim_skip("the allocator gave another address");
	poke(emb, 2);
	replay("E", e);
}

static void fixed(void)
{
	CUgraphExec e = start();

	poke(emb, 2);
	replay("E", e);
	MUST(peek(out) == 3);
}

VICTIM({ "moved", moved }, { "back", back }, { "fixed", fixed });
