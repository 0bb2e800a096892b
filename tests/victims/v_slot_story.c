/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reloads in a program that goes on when one fails. The runner lets each driver call that the
 * library makes fail in turn (tests/e2e/run_slot_faults.py): whatever fails, a layer has all of its
 * old values or all of its new ones, a reload that says it passed did, nothing is launched on a
 * mixture, and the next full reload that passes makes all well and leaves no memory behind.
 */
#include "slots.h"

#define LAYERS	 2
#define SLOTS	 3
#define ATTEMPTS 3

static struct arena *a[LAYERS];
static CUdeviceptr out, source, live[LAYERS][SLOTS];
static bool mixed; /* the library said that it gave up half way */

static bool put(int l, int k)
{
	struct arena_spec spec = spec_bytes(4 * N_INTS);
	char name[16];
	void *p = NULL;

	snprintf(name, sizeof(name), "w%d", k);
	if (arena_put(a[l], name, &spec, (const void *)source, ARENA_STAGED, &p, S))
		return false;
	MUST(!live[l][k] || live[l][k] == (CUdeviceptr)p);
	live[l][k] = (CUdeviceptr)p;
	return true;
}

static bool load_layer(int l)
{
	void *scratch = NULL;
	struct arena_spec spec = spec_bytes(256);
	int r;

	if (arena_get_or_alloc(a[l], "lock", &spec, ARENA_ZERO, &scratch, S))
		return false;
	for (int k = 0; k < SLOTS; k++)
		if (!put(l, k))
			return false;
	r = arena_layer_commit(a[l], S);
	mixed = r == ARENA_E_UNSAFE;
	return r == ARENA_OK;
}

/* All values of the layer, as they are: @was or @now. */
static int layer_version(int l, int was, int now)
{
	int first = live[l][0] ? peek(live[l][0]) : was;

	MUST(first == was || first == now);
	for (int k = 1; k < SLOTS && live[l][k]; k++)
		MUST(mixed || peek(live[l][k]) == first);
	return first;
}

/* A graph could not be read: what it refers to is not known, and strict does not serve on that. */
static _Noreturn void unproven(int r)
{
	MUST(r == ARENA_E_REFUSED && !status().unsafe);
	printf("unproven\n");
	exit(0);
}

static bool attempt(int was, int now)
{
	int r = ARENA_E_REFUSED;
	bool ok = true;
	uint64_t id;

	if (arena_reload_begin(NULL, &id))
		return false;
	mixed = false;
	poke(source, now);
	for (int l = 0; l < LAYERS && ok; l++)
		ok = load_layer(l);
	if (ok)
		r = arena_reload_end(id, NULL);
	else
		MUST(!arena_reload_abort(id, "a call failed", NULL));
	for (int l = 0; l < LAYERS; l++)
		MUST(layer_version(l, was, now) == now || r);
	if (status().verdict == ARENA_UNPROVEN)
		unproven(r);
	MUST(!r || status().unsafe);
	return !r;
}

static void reload(int was, int now)
{
	int tries = 1;

	while (!attempt(was, now))
		MUST(++tries <= ATTEMPTS);
	MUST(!status().unsafe && !status().reload_open);
}

static void decode(void)
{
	for (int l = 0; l < LAYERS; l++)
		for (int k = 0; k < SLOTS; k++)
			run_acc(out, live[l][k]);
}

static void serve(CUgraphExec e)
{
	CK(cuGraphLaunch(e, S));
	settle();
}

static void story(void)
{
	size_t before, after, total;
	CUgraphExec e;

	arena_needed();
	a[0] = layer("model.layers.0");
	a[1] = layer("model.layers.1");
	out = dev_alloc("out", BIG);
	source = dev_alloc("source", BIG);
	poke(out, 0);
	reload(0, 1);
	CAPTURE_EXEC(e, decode());
	serve(e);
	CK(cuMemGetInfo(&before, &total));
	for (int version = 2; version < 4; version++) {
		reload(version - 1, version);
		serve(e);
	}
	MUST(peek(out) == LAYERS * SLOTS * (1 + 2 + 3));
	CK(cuMemGetInfo(&after, &total));
	tell("lost", (long long)before - (long long)after);
}

VICTIM({ "story", story });
