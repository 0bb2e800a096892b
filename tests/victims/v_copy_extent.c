/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy touches more than its first byte: the memory of one tensor may be of many mappings, and
 * any of them may go. What lies between the rows of a pitched copy is not touched.
 */
#include "victim.h"

#define PIECE (2 * MIB)

static CUdeviceptr r, flat;

/* Three pieces of one reservation, and room for a copy of them. */
static void start(void)
{
	static const char *const names[] = { "head", "middle", "tail" };

	r = vmm_reserve("r", 3 * PIECE, 0);
	for (size_t i = 0; i < 3; i++) {
		vmm_map(r + i * PIECE, vmm_create(PIECE, false), PIECE);
		name_range(names[i], r + i * PIECE, PIECE);
	}
	flat = dev_alloc("flat", 3 * PIECE);
}

static void copied(void)
{
	CUgraphExec from, to;

	start();
	CAPTURE_EXEC(from, CK(cuMemcpyDtoDAsync(flat, r + PIECE, 2 * PIECE, S)));
	CAPTURE_EXEC(to, CK(cuMemcpyDtoDAsync(r, flat, PIECE + 4, S)));
	replay("from", from);
	replay("to", to);
	settle();
	vmm_unmap(r + 2 * PIECE, PIECE);
	victim_only_harmless(false);
	replay("from", from);
	replay("to", to);
}

static void filled(void)
{
	CUgraphExec e;

	start();
	CAPTURE_EXEC(e, CK(cuMemsetD8Async(r, 0, 3 * PIECE, S)));
	replay("E", e);
	settle();
	vmm_unmap(r + PIECE, PIECE);
	victim_only_harmless(false);
	replay("E", e);
}

/* Rows at the start of the first and of the last piece. */
static void rows(void)
{
	CUDA_MEMCPY2D c = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = 0,
		.srcPitch = 2 * PIECE,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstPitch = 4096,
		.WidthInBytes = 4096,
		.Height = 2,
	};
	CUgraphExec e;

	start();
	c.srcDevice = r;
	c.dstDevice = flat;
	if (cuMemcpy2D(&c))
		victim_skip("the pitch is too large for this driver");
	CAPTURE_EXEC(e, CK(cuMemcpy2DAsync(&c, S)));
	replay("E", e);
	settle();
	vmm_unmap(r + PIECE, PIECE);
	replay("E", e);
	settle();
	vmm_unmap(r + 2 * PIECE, PIECE);
	victim_only_harmless(false);
	replay("E", e);
}

/* The tail goes between the capture and instantiate. */
static void early(void)
{
	CUgraphExec e;
	CUgraph g;

	start();
	CAPTURE(g, CK(cuMemcpyDtoDAsync(flat, r, 3 * PIECE, S)));
	vmm_unmap(r + 2 * PIECE, PIECE);
	e = instantiate(g);
	victim_only_harmless(false);
	replay("E", e);
}

VICTIM({ "copied", copied }, { "filled", filled }, { "rows", rows }, { "early", early });
