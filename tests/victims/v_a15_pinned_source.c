/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A15, microsoft/onnxruntime#32121: a memcpy node records the host address of a pinned staging
 * buffer. Recycled by a pool: other contents, which nobody can see. Really freed: an address
 * fault like any other.
 */
#include "victim.h"

static CUdeviceptr out, a, b, d;
static CUdeviceptr *h;

static CUgraphExec start(void)
{
	CUgraphExec e;

	out = dev_alloc("out", BIG);
	a = dev_alloc("a", BIG);
	b = dev_alloc("b", BIG);
	d = dev_alloc("d", BIG);
	h = host_alloc("h", 4096);
	poke(a, 1);
	poke(b, 2);
	h[0] = a;
	CAPTURE_EXEC(e, CK(cuMemcpyHtoDAsync(d, h, 4096, S)); run_chase(out, d));
	replay("E", e);
	MUST(peek(out) == 1);
	return e;
}

static void recycled(void)
{
	CUgraphExec e = start();

	h[0] = b;
	replay("E", e);
	MUST(peek(out) == 2);
}

static void freed(void)
{
	CUgraphExec e = start();

	host_free(h);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 1);
}

VICTIM({ "recycled", recycled }, { "freed", freed });
