/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A06, sgl-project/sglang#11289: weights that no slot names move during a reload. Capturing again
 * cures it, and the dead exec leaves nothing behind.
 */
#include "slots.h"

static void recaptured(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), w = dev_alloc("w", BIG);
	CUgraphExec e;
	uint64_t id;

	poke(out, 0);
	poke(w, 1);
	CAPTURE_EXEC(e, run_acc(out, w));
	replay("E", e);
	id = reload_begin(NULL);
	dev_free(w);
	dev_alloc("pad", BIG);
	w = dev_alloc("w2", BIG);
	poke(w, 2);
	reload_end("R", id);
	victim_only_harmless(false);
	replay("E", e);
	CK(cuGraphExecDestroy(e));
	CAPTURE_EXEC(e, run_acc(out, w));
	replay("E", e);
	MUST(peek(out) == 3);
	id = reload_begin(NULL);
	reload_end("R2", id);
}

VICTIM({ "recaptured", recaptured });
