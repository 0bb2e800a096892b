/* SPDX-License-Identifier: Apache-2.0 */
/* A __device__ array is memory of its module, and goes with it. */
#include "victim.h"

static void unloaded(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), table;
	CUmodule other = victim_module();
	CUgraphExec e;
	size_t bytes;

	CK(cuModuleGetGlobal(&table, &bytes, other, "g_table"));
	name_range("g_table", table, bytes);
	MUST(bytes == 4096);
	poke(out, 0);
	poke(table, 3);
	CAPTURE_EXEC(e, run_acc(out, table));
	replay("E", e);
	MUST(peek(out) == 3);
	CK(cuModuleUnload(other));
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 3);
}

/* Asked twice, it is the same memory; another copy of the module has its own. */
static void kept(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), table, again, theirs;
	CUmodule mine = victim_module(), other = victim_module();
	CUgraphExec e;

	CK(cuModuleGetGlobal(&table, NULL, mine, "g_table"));
	CK(cuModuleGetGlobal(&theirs, NULL, other, "g_table"));
	poke(out, 0);
	poke(table, 3);
	CAPTURE_EXEC(e, run_acc(out, table));
	CK(cuModuleGetGlobal(&again, NULL, mine, "g_table"));
	MUST(again == table && theirs != table);
	CK(cuModuleUnload(other));
	replay("E", e);
	MUST(peek(out) == 3);
}

VICTIM({ "unloaded", unloaded }, { "kept", kept });
