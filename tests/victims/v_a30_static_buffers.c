/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A30 (trap), microsoft/onnxruntime#9978, chengzeyi/stable-fast#75: new values are copied into
 * the buffers that a graph reads; temporaries of the update are freed at once.
 */
#include "victim.h"

#define STEPS 100

static void in_place(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), w = dev_alloc("w", BIG), in = dev_alloc("in", BIG);
	CUdeviceptr t;
	CUgraphExec e;

	poke(out, 0);
	poke(w, 1);
	poke(in, 1);
	CAPTURE_EXEC(e, run_acc(out, w); run_acc(out, in));
	replay("E", e);
	t = dev_alloc("t", BIG);
	poke(t, 10);
	CK(cuMemcpyDtoDAsync(w, t, 4096, S));
	settle();
	dev_free(t);
	t = async_alloc("t2", BIG);
	CK(cuMemsetD32Async(t, 100, N_INTS, S));
	CK(cuMemcpyAsync(in, t, 4096, S));
	async_free(t);
	for (int i = 0; i < STEPS; i++) {
		poke(in, i);
		replay("E", e);
	}
	MUST(peek(out) == 2 + STEPS * 10 + STEPS * (STEPS - 1) / 2);
}

VICTIM({ "in-place", in_place });
