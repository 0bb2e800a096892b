/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing with linear probing, at most half full; removal closes the gap, so there are no
 * tombstones and the table never needs to be rebuilt in place. The caller serialises every call.
 */
#include "arena/map.h"

#include <errno.h>

#include "arena/slab.h"

#define CAP_MIN 256 /* one page of slots */

static uint32_t home(const struct map *m, uint64_t key)
{
	/* Fibonacci hashing: handles are heap addresses, their low bits say little. */
	return (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & (m->cap - 1);
}

/* The slot that holds @key, or the free one where it would go. The table has a free slot. */
static struct map_slot *probe(const struct map *m, uint64_t key)
{
	uint32_t at = home(m, key);

	while (m->slots[at].key != 0 && m->slots[at].key != key)
		at = (at + 1) & (m->cap - 1);
	return &m->slots[at];
}

void *map_get(const struct map *m, uint64_t key)
{
	return m->cap && key ? probe(m, key)->value : NULL;
}

static int grow(struct map *m)
{
	struct map bigger = { .cap = m->cap ? 2 * m->cap : CAP_MIN, .count = m->count };

	bigger.slots = pages_get(bigger.cap * sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->cap; i++)
		if (m->slots[i].key)
			*probe(&bigger, m->slots[i].key) = m->slots[i];
	if (m->cap)
		pages_put(m->slots, m->cap * sizeof(*m->slots));
	*m = bigger;
	return 0;
}

int map_put(struct map *m, uint64_t key, void *value)
{
	struct map_slot *slot = m->cap ? probe(m, key) : NULL;

	/* Overwriting needs no room, so it cannot fail. */
	if (!slot || !slot->key) {
		if (2 * (m->count + 1) > m->cap && grow(m))
			return -ENOMEM;
		slot = probe(m, key);
		m->count++;
	}
	*slot = (struct map_slot){ key, value };
	return 0;
}

void map_remove(struct map *m, uint64_t key)
{
	uint32_t gap, at;

	if (!m->cap || !key || !probe(m, key)->key)
		return;
	gap = (uint32_t)(probe(m, key) - m->slots);
	/* Later entries of the run move into the gap, but never before their home. */
	for (at = (gap + 1) & (m->cap - 1); m->slots[at].key; at = (at + 1) & (m->cap - 1)) {
		uint32_t from_home = (at - home(m, m->slots[at].key)) & (m->cap - 1);

		if (from_home >= ((at - gap) & (m->cap - 1))) {
			m->slots[gap] = m->slots[at];
			gap = at;
		}
	}
	m->slots[gap] = (struct map_slot){ 0, NULL };
	m->count--;
}
