/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A free that the driver refuses has not happened: while a stream captures in global mode, memory
 * cannot be freed. Nothing is warned of, and the graph that refers to the memory stays sound.
 */
#include "victim.h"

static void in_capture(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), w = dev_alloc("w", BIG);
	CUgraphExec e;
	CUgraph g = NULL;

	poke(out, 0);
	poke(w, 1);
	CAPTURE_EXEC(e, run_acc(out, w));
	replay("E", e);
	CK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_GLOBAL));
	tell("free", cuMemFree(w));
	tell("end", cuStreamEndCapture(S, &g));
	replay("E", e);
	MUST(peek(out) == 2);
	dev_free(w);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 2);
}

/* A pointer into the middle of an allocation, and one that is freed already. */
static void wrong_pointer(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), w = dev_alloc("w", BIG),
		    gone = dev_alloc("gone", BIG);
	CUgraphExec e;

	poke(out, 0);
	poke(w, 1);
	CAPTURE_EXEC(e, run_acc(out, w));
	dev_free(gone);
	tell("interior", cuMemFree(w + 4096));
	tell("twice", cuMemFree(gone));
	replay("E", e);
	MUST(peek(out) == 1);
}

VICTIM({ "in-capture", in_capture }, { "wrong-pointer", wrong_pointer });
