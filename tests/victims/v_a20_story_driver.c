/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A20, NVlabs/NVBit#134 and others: the one story that four builds tell - here over the driver
 * API, linked with -lcuda; a20_story.cu (static and shared runtime) and tests/gpu/a20_torch.py
 * tell it too. All four must leave the same sequence of events.
 */
#include "victim.h"

#define STORY (48 * MIB) /* a size that nothing else in these processes has */

static void story(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), p = dev_alloc("story", STORY);
	CUgraphExec e;

	poke(out, 0);
	poke(p, 7);
	CAPTURE_EXEC(e, run_acc(out, p));
	replay("E", e);
	MUST(peek(out) == 7);
	dev_free(p);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 7);
}

VICTIM({ "story", story });
