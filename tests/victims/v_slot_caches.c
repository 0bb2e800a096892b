/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches that were computed with the old weights (prefix KV, encoder outputs) are flushed when a
 * reload ends, by a callback or by somebody else who says so; otherwise they are stale.
 */
#include "slots.h"

static struct arena *a;
static unsigned flushes;
static uint64_t flushed_generation;
static int flush_result;

static int flush(void *ctx, uint64_t generation)
{
	(*(unsigned *)ctx)++;
	flushed_generation = generation;
	return flush_result;
}

static int reload(const char *name, int v, const char *acknowledged)
{
	uint64_t id = reload_begin(NULL);

	slot_put_value(a, "w", v, ARENA_STAGED);
	commit(a);
	if (acknowledged)
		AK(arena_cache_flushed(acknowledged));
	return reload_end(name, id);
}

static void start(void)
{
	arena_needed();
	a = layer("model.layers.0");
	MUST(reload("cold", 1, NULL) == ARENA_OK);
}

static void callback(void)
{
	start();
	AK(arena_cache_register("prefix", flush, &flushes));
	reload("R1", 2, NULL);
	MUST(flushes == 1 && flushed_generation == status().generation);
	reload("R2", 3, NULL);
	MUST(flushes == 2 && flushed_generation == status().generation);
}

static void refuses(void)
{
	start();
	AK(arena_cache_register("prefix", flush, &flushes));
	flush_result = -1;
	reload("R1", 2, NULL);
	flush_result = 0;
	reload("R2", 3, NULL);
}

static void acknowledged(void)
{
	start();
	AK(arena_cache_register("encoder", NULL, NULL));
	reload("R1", 2, "encoder");
	reload("R2", 3, NULL);
	reload("R3", 4, "encoder");
	told("unknown", arena_cache_flushed("no-such-cache"));
}

VICTIM({ "callback", callback }, { "refuses", refuses }, { "acknowledged", acknowledged });
