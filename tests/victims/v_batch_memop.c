/* SPDX-License-Identifier: Apache-2.0 */
/* A batch mem-op node writes to an address; so does the same operation captured from a stream. */
#include "victim.h"

static CUdeviceptr w;

static CUstreamBatchMemOpParams write_value(void)
{
	return (CUstreamBatchMemOpParams){
		.writeValue = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
				.address = w,
				.value = 9 },
	};
}

static void finish(CUgraphExec e)
{
	replay("E", e);
	MUST(peek(w) == 9);
	dev_free(w);
	victim_only_harmless(false);
	replay("E", e);
}

static void added(void)
{
	CUstreamBatchMemOpParams op;
	CUgraphNode node;
	CUgraph g;

	w = dev_alloc("w", BIG);
	poke(w, 0);
	op = write_value();
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { .ctx = victim_context, .count = 1, .paramArray = &op };

	CK(cuGraphCreate(&g, 0));
	CK(cuGraphAddBatchMemOpNode(&node, g, NULL, 0, &p));
	finish(instantiate(g));
}

static void captured(void)
{
	CUstreamBatchMemOpParams op;
	CUgraphExec e;

	w = dev_alloc("w", BIG);
	poke(w, 0);
	op = write_value();
	CAPTURE_EXEC(e, CK(cuStreamBatchMemOp(S, 1, &op, 0)));
	finish(e);
}

VICTIM({ "added", added }, { "captured", captured });
