/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A31 (trap), NVIDIA/TransformerEngine#3543, openxla/xla#35315: addresses are reserved once, and
 * new memory is mapped, filled and replayed at the same address.
 */
#include "victim.h"

static CUdeviceptr out, r;
static CUmemGenericAllocationHandle h;

static CUgraphExec start(void)
{
	CUgraphExec e;

	out = dev_alloc("out", BIG);
	r = vmm_reserve("R", BIG, 0);
	h = vmm_create(BIG, false);
	vmm_map(r, h, BIG);
	poke(out, 0);
	poke(r, 1);
	CAPTURE_EXEC(e, run_acc(out, r));
	replay("E", e);
	return e;
}

static void remap(void)
{
	vmm_unmap(r, BIG);
	vmm_release(h);
	h = vmm_create(BIG, false);
	vmm_map(r, h, BIG);
}

static void filled(void)
{
	CUgraphExec e = start();

	for (int i = 0; i < 3; i++) {
		remap();
		poke(r, 10);
		replay("E", e);
	}
	MUST(peek(out) == 31);
}

/* Filled by a kernel instead of a copy. */
static void by_kernel(void)
{
	CUgraphExec e = start();

	remap();
	run_set(r, 10);
	replay("E", e);
	MUST(peek(out) == 11);
}

/* Nobody fills it: worth a remark, no fault of the address. */
static void unfilled(void)
{
	CUgraphExec e = start();

	remap();
	replay("E", e);
	replay("E", e);
}

/* Two mappings inside one reservation, as expandable segments make them; one goes away. */
static void segments(void)
{
	CUmemGenericAllocationHandle h2 = vmm_create(BIG, false);
	CUgraphExec e, e2;

	out = dev_alloc("out", BIG);
	poke(out, 0);
	r = vmm_reserve("R", 4 * BIG, 0);
	h = vmm_create(BIG, false);
	vmm_map(r, h, BIG);
	vmm_map(r + BIG, h2, BIG);
	poke(r, 1);
	poke(r + BIG, 2);
	CAPTURE_EXEC(e, run_acc(out, r));
	CAPTURE_EXEC(e2, run_acc(out, r + BIG));
	replay("E", e);
	replay("E2", e2);
	vmm_unmap(r + BIG, BIG);
	replay("E", e);
	MUST(peek(out) == 4);
	victim_only_harmless(false);
	replay("E2", e2);
	vmm_map(r + BIG, h2, BIG);
	poke(r + BIG, 2);
	replay("E2", e2);
	MUST(peek(out) == 6);
}

VICTIM({ "filled", filled }, { "by-kernel", by_kernel }, { "unfilled", unfilled },
       { "segments", segments });
