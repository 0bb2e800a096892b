/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches that depend on the weights: prefix KV, encoder, multi-modal. The end of a reload flushes
 * each by its callback; one without is acknowledged from outside while the reload is open. An
 * abort calls nobody.
 *
 * Threads: any. The lock guards the list; callbacks run without it, from the thread that ends
 * the reload, so a cache is never freed.
 */
#include <pthread.h>
#include <string.h>

#include "arena/intern.h"
#include "arena/reload.h"
#include "arena/slab.h"

#define NAME_BYTES_MAX 256

struct cache {
	uint32_t name; /* interned */
	arena_flush_fn flush;
	void *ctx;
	bool flushed; /* acknowledged for the open reload */
	struct cache *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cache *first, **last = &first;

static int name_check(const char *name)
{
	if (!name || !*name)
		return arena_fail(ARENA_E_INVALID, "cache: the name is empty: give it one");
	if (strnlen(name, NAME_BYTES_MAX) == NAME_BYTES_MAX)
		return arena_fail(ARENA_E_INVALID,
				  "cache: name %.40s... is longer than %d bytes: shorten it", name,
				  NAME_BYTES_MAX - 1);
	return 0;
}

/* Lock held. */
static struct cache *find(const char *name)
{
	struct cache *c = first;

	while (c && strcmp(interned(c->name), name) != 0)
		c = c->next;
	return c;
}

/* Lock held. */
static struct cache *add(const char *name)
{
	struct cache *c = pages_get(sizeof(*c));

	if (!c)
		return NULL;
	c->name = intern(name);
	if (!c->name) {
		pages_put(c, sizeof(*c));
		return NULL;
	}
	*last = c;
	last = &c->next;
	return c;
}

int cache_register(const char *name, arena_flush_fn flush, void *ctx)
{
	int err = name_check(name);
	struct cache *c;

	if (err)
		return err;
	pthread_mutex_lock(&lock);
	c = find(name);
	if (!c)
		c = add(name);
	if (c) {
		c->flush = flush;
		c->ctx = ctx;
	}
	pthread_mutex_unlock(&lock);
	return c ? 0 : arena_fail(ARENA_E_NOMEM, "cache %s: no host memory", name);
}

int cache_flushed(const char *name)
{
	int err = name_check(name);
	struct cache *c;

	if (err)
		return err;
	pthread_mutex_lock(&lock);
	c = find(name);
	if (c)
		c->flushed = true;
	pthread_mutex_unlock(&lock);
	return c ? 0
		 : arena_fail(ARENA_E_UNKNOWN,
			      "cache %s is not registered: arena_cache_register() comes first",
			      name);
}

void caches_begin(void)
{
	pthread_mutex_lock(&lock);
	for (struct cache *c = first; c; c = c->next)
		c->flushed = false;
	pthread_mutex_unlock(&lock);
}

/* The cache after @c (NULL: the first), as it is registered now. */
static struct cache *step(const struct cache *c, struct cache *copy)
{
	struct cache *next;

	pthread_mutex_lock(&lock);
	next = c ? c->next : first;
	if (next)
		*copy = *next;
	pthread_mutex_unlock(&lock);
	return next;
}

static const char *unflushed(struct cache *c, bool done, const char *why)
{
	/* The callback may have acknowledged it, or somebody else meanwhile. */
	pthread_mutex_lock(&lock);
	c->flushed |= done;
	done = c->flushed;
	pthread_mutex_unlock(&lock);
	return done ? NULL : why;
}

/* @return what is wrong with it, NULL: nothing. */
static const char *flush_one(struct cache *c, const struct cache *copy, uint64_t generation)
{
	bool done = copy->flush && copy->flush(copy->ctx, generation) == 0;

	return unflushed(c, done,
			 copy->flush ? "its flush callback failed" : "nobody acknowledged a flush");
}

static int tell_stale(uint32_t name, const char *wrong, struct slot_findings *out)
{
	struct slot_finding f = { .kind = FINDING_STALE_CACHE,
				  .severity = finding_severity(FINDING_STALE_CACHE),
				  .name = name,
				  .detail = intern(wrong) };

	return wrong && slot_findings_add(out, &f) ? ARENA_E_NOMEM : 0;
}

void caches_tell(void (*tell)(void *to, const char *name, bool flushed), void *to)
{
	pthread_mutex_lock(&lock);
	for (const struct cache *c = first; c; c = c->next)
		tell(to, interned(c->name), c->flushed);
	pthread_mutex_unlock(&lock);
}

int caches_flush(uint64_t generation, struct slot_findings *out)
{
	struct cache *c = NULL, copy;
	int err = 0;

	while ((c = step(c, &copy)) != NULL)
		err |= tell_stale(copy.name, flush_one(c, &copy, generation), out);
	return err;
}

int caches_stale(struct slot_findings *out)
{
	static const char why[] = "values changed before the abort: flush it before anything is "
				  "served";
	struct cache *c = NULL, copy;
	int err = 0;

	while ((c = step(c, &copy)) != NULL)
		err |= tell_stale(copy.name, unflushed(c, false, why), out);
	return err;
}
