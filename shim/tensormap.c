/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of encoded descriptors: sets of eight, found by a hash of the content, compared in full,
 * replaced in turn.
 *
 * Any thread. One spin lock for a few hundred bytes of work; it is reached by encodes and by
 * parameters of 128 bytes or more, and not at all before the first encode.
 */
#include <string.h>

#include "arena/slab.h"
#include "shim/coverage.h"
#include "shim/tensormap.h"

/* A layer of a model keeps a handful of descriptors; 4096 hold a large model. Eager GEMMs that
 * encode anew for each call turn the table over: no harm to what was captured before, as a node
 * keeps what it was born with; but what was encoded long before it is captured may be forgotten
 * then. Parameters that may hold such a one are counted (tensormap_forgot()). */
#define SETS 512
#define WAYS 8

struct descriptor {
	uint64_t words[TENSORMAP_BYTES / 8];
	uint64_t address;
	bool used;
};

struct set {
	struct descriptor ways[WAYS];
	unsigned turn; /* the way to replace next */
};

static struct spinlock lock = SPINLOCK_INIT;
static struct set *_Atomic sets; /* SETS of them; contents guarded by lock */
static _Atomic bool forgot;

static struct set *set_of(struct set *all, const uint64_t *words)
{
	uint64_t h = 0;

	for (int i = 0; i < TENSORMAP_BYTES / 8; i++)
		h = (h ^ words[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
	return &all[h % SETS];
}

static struct descriptor *find(struct set *set, const uint64_t *words)
{
	for (int i = 0; i < WAYS; i++) {
		struct descriptor *d = &set->ways[i];

		if (d->used && memcmp(d->words, words, TENSORMAP_BYTES) == 0)
			return d;
	}
	return NULL;
}

static struct descriptor *take_turn(struct set *set)
{
	struct descriptor *d = &set->ways[set->turn++ % WAYS];

	if (d->used) {
		coverage_count(TENSOR_MAP_EVICTED);
		store_relaxed(&forgot, true);
	}
	return d;
}

/* Lock held. */
static struct set *all_sets(void)
{
	struct set *all = load_relaxed(&sets);

	if (all == NULL) {
		all = pages_get(SETS * sizeof(*all));
		/* Pairs with the acquire in tensormap_find(). */
		store_release(&sets, all);
	}
	return all;
}

void tensormap_remember(const void *bytes, uint64_t address)
{
	uint64_t words[TENSORMAP_BYTES / 8];
	struct descriptor *d;
	struct set *all;

	memcpy(words, bytes, sizeof(words));
	spin_lock(&lock);
	all = all_sets();
	if (all) {
		struct set *set = set_of(all, words);

		d = find(set, words);
		if (d == NULL)
			d = take_turn(set);
		memcpy(d->words, words, sizeof(words));
		d->address = address;
		d->used = true;
	}
	spin_unlock(&lock);
	if (all == NULL)
		coverage_count(NO_MEMORY);
}

bool tensormap_any(void)
{
	/* Relaxed: whoever holds a descriptor was told of it after it was remembered. */
	return load_relaxed(&sets) != NULL;
}

bool tensormap_forgot(void)
{
	return load_relaxed(&forgot);
}

bool tensormap_find(const void *bytes, uint64_t *address)
{
	/* Pairs with the release in all_sets(): the pages are there. */
	struct set *all = load_acquire(&sets);
	uint64_t words[TENSORMAP_BYTES / 8];
	const struct descriptor *d;

	if (all == NULL)
		return false;
	memcpy(words, bytes, sizeof(words));
	spin_lock(&lock);
	d = find(set_of(all, words), words);
	if (d)
		*address = d->address;
	spin_unlock(&lock);
	return d != NULL;
}
