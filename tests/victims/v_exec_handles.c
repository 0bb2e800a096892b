/* SPDX-License-Identifier: Apache-2.0 */
/* The driver gives the handle of a destroyed exec to the next one: they are not the same. */
#include "victim.h"

#define TRIES 64

static void reused(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), a = dev_alloc("a", BIG), b = dev_alloc("b", BIG);
	CUgraphExec e, old;

	poke(out, 0);
	poke(a, 1);
	poke(b, 2);
	CAPTURE_EXEC(e, run_acc(out, a));
	replay("A", e);
	old = e;
	for (int i = 0; i < TRIES && (i == 0 || e != old); i++) {
		CK(cuGraphExecDestroy(e));
		CAPTURE_EXEC(e, run_acc(out, b));
	}
	tell("reused", e == old);
	dev_free(a);
	replay("B", e);
	MUST(peek(out) == 3);
	dev_free(b);
	victim_only_harmless(false);
	replay("B", e);
	MUST(peek(out) == 3);
}

VICTIM({ "reused", reused });
