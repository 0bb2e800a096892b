/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of a caching allocator that move without any driver call: what A03, A05 to A07, A10, A11
 * and A13 are in PyTorch. No slot is bound; each has a twin that is well.
 */
#include "blocks.h"

#define TENSOR (64 * (size_t)1024)

static struct pool pool;
static CUdeviceptr out, w;

static CUgraphExec start(void)
{
	CUgraphExec e;

	out = dev_alloc("out", BIG);
	w = block_alloc(&pool, "W_UV", TENSOR);
	poke(out, 0);
	poke(w, 1);
	CAPTURE_EXEC(e, run_acc(out, w));
	replay("E", e);
	return e;
}

/* A03, A07: a derived tensor is computed anew, and the old one dropped. */
static void derived(void)
{
	CUgraphExec e = start();
	CUdeviceptr fresh = block_alloc(&pool, "fresh", TENSOR);

	poke(fresh, 2);
	block_free(&pool, w);
	replay("E", e);
}

static void in_place(void)
{
	CUgraphExec e = start();
	CUdeviceptr fresh = block_alloc(&pool, "fresh", TENSOR);

	poke(fresh, 2);
	CK(cuMemcpyDtoD(w, fresh, TENSOR));
	/* It returns before the device is done, and the replay is in a stream of its own. */
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
	block_free(&pool, fresh);
	replay("E", e);
	MUST(peek(out) == 1 + 2);
}

/* A13: dropped first, so that another tensor gets the address. */
static void reused(void)
{
	CUgraphExec e = start();

	block_free(&pool, w);
	MUST(block_alloc(&pool, "other", TENSOR) == w);
	poke(w, 100);
	replay("E", e);
}

/* A05: as long as the old tensor lives, the graph reads old weights; nobody can know without a
 * slot. Then it goes. */
static void kept_for_a_while(void)
{
	CUgraphExec e = start();
	CUdeviceptr shuffled = block_alloc(&pool, "shuffled", TENSOR);

	poke(shuffled, 2);
	replay("E", e);
	block_free(&pool, w);
	replay("E", e);
}

/* A06: the graph is captured again; what the old one held is nobody's concern. */
static void recaptured(void)
{
	CUgraphExec e = start();

	CK(cuGraphExecDestroy(e));
	block_free(&pool, w);
	w = block_alloc(&pool, "again", 2 * TENSOR);
	poke(w, 2);
	CAPTURE_EXEC(e, run_acc(out, w));
	replay("E", e);
	MUST(peek(out) == 1 + 2);
}

/* A10: each larger capture grows a shared workspace. */
static void workspace(void)
{
	CUdeviceptr ws = 0;
	CUgraphExec e[3];

	for (size_t i = 0; i < 3; i++) {
		if (ws)
			block_free(&pool, ws);
		ws = block_alloc(&pool, (const char *[]){ "ws1", "ws2", "ws4" }[i], TENSOR << i);
		CAPTURE_EXEC(e[i], run_set(ws, (int)i));
	}
	replay("E2", e[2]);
	replay("E0", e[0]);
}

/* A program that ends: tensors first, then graphs. */
static void ends(void)
{
	CUgraphExec e = start();

	block_free(&pool, w);
	CK(cuGraphExecDestroy(e));
	w = block_alloc(&pool, "next", TENSOR);
	CAPTURE_EXEC(e, run_set(w, 1));
	replay("E", e);
	block_free(&pool, w);
}

/* A fill and a copy go over two tensors that lie side by side; the second one goes. */
static void side_by_side(void)
{
	CUgraphExec filled, copied;
	CUdeviceptr second;

	out = dev_alloc("out", BIG);
	w = block_alloc(&pool, "first", TENSOR);
	second = block_alloc(&pool, "second", TENSOR);
	MUST(second == w + TENSOR);
	CAPTURE_EXEC(filled, CK(cuMemsetD8Async(w, 0, TENSOR + 4, S)));
	CAPTURE_EXEC(copied, CK(cuMemcpyDtoDAsync(out, w, 2 * TENSOR, S)));
	replay("filled", filled);
	replay("copied", copied);
	block_free(&pool, second);
	replay("filled", filled);
	replay("copied", copied);
}

VICTIM({ "derived", derived }, { "in-place", in_place }, { "reused", reused },
       { "kept-for-a-while", kept_for_a_while }, { "recaptured", recaptured },
       { "workspace", workspace }, { "ends", ends }, { "side-by-side", side_by_side });
