/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A10, vllm-project/vllm#46067: each larger capture grows a shared workspace by freeing it, so
 * the graphs captured before are dead before serving starts. No reload is involved.
 */
#include "victim.h"

static CUdeviceptr grow(const char *name, CUdeviceptr old, size_t bytes)
{
	if (old)
		dev_free(old);
	return dev_alloc(name, bytes);
}

static void buggy(void)
{
	CUdeviceptr ws = 0;
	CUgraphExec e[3];

	ws = grow("ws4", ws, 4 * MIB);
	CAPTURE_EXEC(e[0], run_set(ws, 1));
	ws = grow("ws64", ws, 64 * MIB);
	CAPTURE_EXEC(e[1], run_set(ws, 2));
	ws = grow("ws256", ws, 256 * MIB);
	CAPTURE_EXEC(e[2], run_set(ws, 3));
	replay("E3", e[2]);
	victim_only_harmless(false);
	replay("E1", e[0]);
	replay("E2", e[1]);
	MUST(peek(ws) == 3);
}

/* The largest capture comes first, and all share its workspace. */
static void fixed(void)
{
	CUdeviceptr ws = dev_alloc("ws256", 256 * MIB);
	CUgraphExec e[3];

	for (int i = 0; i < 3; i++)
		CAPTURE_EXEC(e[i], run_set(ws, i + 1));
	replay("E3", e[2]);
	replay("E1", e[0]);
	MUST(peek(ws) == 1);
}

VICTIM({ "buggy", buggy }, { "fixed", fixed });
