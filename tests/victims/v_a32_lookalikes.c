/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A32 (trap), pytorch/pytorch#160351, #137318: integers that look like pointers, and pointers one
 * past the end. What lay in no live range when it was captured is no reference.
 */
#include "victim.h"

#define UPPER_OFFSET 64

static void not_mapped(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), r = vmm_reserve("R", 2 * BIG, 0);
	CUmemGenericAllocationHandle upper = vmm_create(BIG, false);
	CUgraphExec e1, e2;

	vmm_map(r, vmm_create(BIG, false), BIG);
	CAPTURE_EXEC(e1, run_seed(out, r + BIG + UPPER_OFFSET, 16));
	CAPTURE_EXEC(e2, run_range(out, r, r + BIG));
	vmm_map(r + BIG, upper, BIG);
	replay("E1", e1);
	replay("E2", e2);
	MUST(peek(out) == (int)(BIG / sizeof(int)));
	vmm_unmap(r + BIG, BIG);
	replay("E1", e1);
	replay("E2", e2);
}

/* An 8-byte integer equal to memory that was live at capture: undecidable from the bytes. */
static void undecidable(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), a = dev_alloc("a", BIG);
	CUgraphExec e3;

	CAPTURE_EXEC(e3, run_seed(out, a, 16));
	dev_free(a);
	replay("E3", e3);
}

/* The end of a range is the base of its neighbour in the same segment. */
static void neighbours(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), r = vmm_reserve("R", 2 * BIG, 0);
	CUgraphExec e;

	vmm_map(r, vmm_create(2 * BIG, false), 2 * BIG);
	CAPTURE_EXEC(e, run_range(out, r, r + BIG));
	replay("E", e);
	MUST(peek(out) == (int)(BIG / sizeof(int)));
}

VICTIM({ "not-mapped", not_mapped }, { "undecidable", undecidable }, { "neighbours", neighbours });
