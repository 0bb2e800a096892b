/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A18, sgl-project/sglang#32718: a counter that replays read but never initialise lies in pages
 * that a pause drops and a resume maps anew at the same address. No address is wrong; the value is.
 */
#include "slots.h"

static CUdeviceptr out, r;
static CUmemGenericAllocationHandle handle;

static CUgraphExec start(void)
{
	CUgraphExec e;

	out = dev_alloc("out", BIG);
	poke(out, 0);
	r = vmm_reserve("R", BIG, 0);
	handle = vmm_create(BIG, false);
	vmm_map(r, handle, BIG);
	poke(r, 0);
	slot_bind(layer("graph.pool"), "tickets", r, BIG);
	CAPTURE_EXEC(e, run_ticket(r, out));
	replay("E", e);
	MUST(peek(out) == 0);
	return e;
}

static void pause_and_resume(void)
{
	settle();
	vmm_unmap(r, BIG);
	vmm_release(handle);
	handle = vmm_create(BIG, false);
	vmm_map(r, handle, BIG);
}

static void buggy(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();

	pause_and_resume();
	verify("V", s);
	replay("E", e);
}

static void fixed(void)
{
	CUgraphExec e = start();
	struct arena_snapshot *s = snap();
	int backup = peek(r);

	pause_and_resume();
	poke(r, backup);
	verify("V", s);
	replay("E", e);
	MUST(peek(out) == 1);
}

VICTIM({ "buggy", buggy }, { "fixed", fixed });
