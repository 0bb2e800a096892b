/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a reload covers is said before anything is transferred: a partial update inside its scope
 * passes, an accidental omission does not. Receipts are compared with the first full load.
 */
#include "slots.h"

#include <string.h>

#define LAYERS 2
#define PARTS  2

static struct arena *a[LAYERS];
static const char *const paths[LAYERS] = { "model.layers.0", "model.layers.1" };
static const char *const keys[LAYERS] = { "layers.0.w", "layers.1.w" };
static CUdeviceptr out, w[LAYERS];
static CUgraphExec e;

static void receive(int l, uint64_t part, uint64_t bytes)
{
	AK(arena_enter(a[l]));
	AK(arena_receive(keys[l], part, bytes));
	AK(arena_leave());
}

static void receive_all(int l)
{
	for (uint64_t part = 0; part < PARTS; part++)
		receive(l, part, 2 * N_INTS);
}

static void stage(int l, int v)
{
	CUdeviceptr live = slot_put_value(a[l], "w", v, ARENA_STAGED);

	MUST(!w[l] || live == w[l]);
	w[l] = live;
}

static void start(void)
{
	uint64_t id;

	arena_needed();
	out = dev_alloc("out", BIG);
	poke(out, 0);
	id = reload_begin(NULL);
	for (int l = 0; l < LAYERS; l++) {
		a[l] = layer(paths[l]);
		receive_all(l);
		stage(l, 1);
		commit(a[l]);
	}
	AK(arena_receive("model.norm", 0, 64));
	MUST(reload_end("cold", id) == ARENA_OK);
	CAPTURE_EXEC(e, run_acc(out, w[0]); run_acc(out, w[1]));
}

/* What the graph reads now, without launching it. */
static void must_read(int v0, int v1)
{
	MUST(peek(w[0]) == v0);
	MUST(peek(w[1]) == v1);
}

static void partial(void)
{
	struct arena_scope scope = ARENA_SCOPE_INIT;
	uint64_t id;

	start();
	scope.layers = &paths[0];
	scope.layers_count = 1;
	id = reload_begin(&scope);
	receive_all(0);
	stage(0, 10);
	told("outside", arena_layer_commit(a[1], S));
	commit(a[0]);
	reload_end("layer", id);
	must_read(10, 1);

	scope = (struct arena_scope)ARENA_SCOPE_INIT;
	scope.sources = &keys[1];
	scope.sources_count = 1;
	id = reload_begin(&scope);
	receive_all(1);
	stage(1, 20);
	commit(a[1]);
	reload_end("source", id);
	must_read(10, 20);
	replay("E", e);
	MUST(peek(out) == 30);
}

/* A full reload in which one layer's source is @how; the other layer is well. */
static void faulty(void (*how)(void))
{
	struct arena_scope scope = ARENA_SCOPE_INIT;
	uint64_t id;

	start();
	id = reload_begin(NULL);
	AK(arena_receive("model.norm", 0, 64));
	receive_all(0);
	how();
	for (int l = 0; l < LAYERS; l++)
		stage(l, 10);
	commit(a[0]);
	told("commit", arena_layer_commit(a[1], S));
	reload_end("R", id);
	must_read(10, 1);
	/* Of two models. */
	replay("E", e);
	MUST(!status().unsafe);

	scope.layers = &paths[1];
	scope.layers_count = 1;
	id = reload_begin(&scope);
	receive_all(1);
	stage(1, 10);
	commit(a[1]);
	reload_end("again", id);
	must_read(10, 10);
	replay("E", e);
}

static void nothing(void)
{
}

static void one_part(void)
{
	receive(1, 0, 2 * N_INTS);
}

static void twice(void)
{
	receive_all(1);
	receive(1, 1, 2 * N_INTS);
}

static void and_a_stranger(void)
{
	receive_all(1);
	AK(arena_enter(a[1]));
	AK(arena_receive("layers.1.bias", 0, 64));
	AK(arena_leave());
}

static void half_a_part(void)
{
	receive(1, 0, 2 * N_INTS);
	receive(1, 1, N_INTS);
}

static void omission(void)
{
	faulty(nothing);
}

static void missing_part(void)
{
	faulty(one_part);
}

static void duplicate(void)
{
	faulty(twice);
}

static void unexpected(void)
{
	faulty(and_a_stranger);
}

static void cut_short(void)
{
	faulty(half_a_part);
}

/* Reloads do not nest: the error names the one that is open, which goes on. */
static void nested(void)
{
	char text[512] = "", number[32];
	uint64_t id, second = 0;

	start();
	id = reload_begin(NULL);
	told("nested", arena_reload_begin(NULL, &second));
	arena_last_message(text, sizeof(text));
	snprintf(number, sizeof(number), "%llu", (unsigned long long)id);
	MUST(second == 0 && strstr(text, number));
	told("other", arena_reload_end(id + 1, NULL));
	AK(arena_receive("model.norm", 0, 64));
	for (int l = 0; l < LAYERS; l++) {
		receive_all(l);
		stage(l, 2);
		commit(a[l]);
	}
	reload_end("R", id);
	told("closed", arena_reload_end(id, NULL));
	replay("E", e);
	MUST(peek(out) == 4);
}

VICTIM({ "partial", partial }, { "omission", omission }, { "missing-part", missing_part },
       { "duplicate", duplicate }, { "unexpected", unexpected }, { "short", cut_short },
       { "nested", nested });
