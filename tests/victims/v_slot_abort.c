/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reload whose body fails: the caller's reason is kept, live values stay old, and the process is
 * unsafe - under strict no graph is launched, also none without slots - until a later full reload
 * passes. A reload that only ends with findings is not unsafe.
 */
#include "slots.h"

static struct arena *a[2];
static CUdeviceptr out, w[2], plain;
static CUgraphExec e, other;
static int sum; /* what out must be: a refused launch adds nothing */

static void load(int v)
{
	for (int l = 0; l < 2; l++) {
		w[l] = slot_put_value(a[l], "w", v, ARENA_STAGED);
		commit(a[l]);
	}
}

static void serve(int v)
{
	if (replay("E", e) == CUDA_SUCCESS)
		sum += 2 * v;
	if (replay("other", other) == CUDA_SUCCESS)
		sum += 100;
	MUST(peek(out) == sum);
}

static void start(void)
{
	uint64_t id;

	arena_needed();
	a[0] = layer("model.layers.0");
	a[1] = layer("model.layers.1");
	out = dev_alloc("out", BIG);
	plain = dev_alloc("plain", BIG);
	poke(out, 0);
	poke(plain, 100);
	id = reload_begin(NULL);
	load(1);
	MUST(reload_end("cold", id) == ARENA_OK);
	CAPTURE_EXEC(e, run_acc(out, w[0]); run_acc(out, w[1]));
	CAPTURE_EXEC(other, run_acc(out, plain));
	serve(1);
}

static void aborted(void)
{
	const char *const path = "model.layers.0";
	struct arena_scope scope = ARENA_SCOPE_INIT;
	uint64_t id;

	start();
	id = reload_begin(NULL);
	slot_put_value(a[0], "w", 10, ARENA_STAGED);
	reload_abort("aborted", id, "loader raised: no such shard");
	MUST(peek(w[0]) == 1 && status().unsafe && !status().reload_open);
	serve(1);

	/* A partial reload that passes does not make the process safe. */
	scope.layers = &path;
	scope.layers_count = 1;
	id = reload_begin(&scope);
	slot_put_value(a[0], "w", 1, ARENA_STAGED);
	commit(a[0]);
	reload_end("partial", id);
	MUST(status().unsafe);
	serve(1);

	id = reload_begin(NULL);
	load(20);
	reload_end("full", id);
	MUST(!status().unsafe && peek(w[0]) == 20);
	serve(20);
}

/* Captured while the process is unsafe: no better than the others. */
static void captured_unsafe(void)
{
	CUgraphExec fresh;
	uint64_t id;

	start();
	id = reload_begin(NULL);
	reload_abort("aborted", id, "cancelled");
	CAPTURE_EXEC(fresh, run_acc(out, plain));
	replay("fresh", fresh);
	id = reload_begin(NULL);
	load(2);
	reload_end("full", id);
	replay("fresh", fresh);
}

VICTIM({ "aborted", aborted }, { "captured-unsafe", captured_unsafe });
