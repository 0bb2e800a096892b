/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table with open addressing, at most half full.
 *
 * Threads: one.
 */
#include "intern.h"

#include <string.h>

struct intern {
	struct pool *pool;
	const char **slots;
	size_t count, size; /* size is a power of two */
};

static size_t hash_text(const char *s)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (; *s; s++)
		hash = (hash ^ (unsigned char)*s) * 0x100000001b3;
	return (size_t)(hash ^ hash >> 32);
}

static const char **find(const struct intern *i, const char *s)
{
	size_t at = hash_text(s) & (i->size - 1);

	while (i->slots[at] && strcmp(i->slots[at], s) != 0)
		at = (at + 1) & (i->size - 1);
	return &i->slots[at];
}

/* The old table stays in the pool: all of them together are smaller than the new one. */
static void grow(struct intern *i)
{
	const char **old = i->slots;
	size_t old_size = i->size;

	i->size = old_size ? old_size * 2 : 256;
	i->slots = pool_take(i->pool, i->size * sizeof(*i->slots));
	for (size_t at = 0; at < old_size; at++)
		if (old[at])
			*find(i, old[at]) = old[at];
}

struct intern *intern_new(struct pool *p)
{
	struct intern *i = pool_take(p, sizeof(*i));

	i->pool = p;
	grow(i);
	return i;
}

const char *intern_text(struct intern *i, const char *s)
{
	const char **slot;

	if (!s)
		return NULL;
	slot = find(i, s);
	if (*slot)
		return *slot;
	if (++i->count * 2 > i->size) {
		grow(i);
		slot = find(i, s);
	}
	*slot = pool_text(i->pool, s);
	return *slot;
}
