/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings stored once: a hash table of chains over entries that never change nor move.
 *
 * An entry is complete before its number enters a chain; entries lie in blocks that are made
 * when the first of them is used. Both look-ups take no lock, only a new string does.
 *
 * Any thread.
 */
#include <string.h>

#include "arena/intern.h"
#include "arena/atomics.h"
#include "arena/slab.h"

#define BUCKETS	      4096
#define BLOCK_ENTRIES 1024
#define BLOCKS	      1024
#define STRINGS_BYTES ((size_t)64 << 10)

struct entry {
	const char *string;
	uint32_t hash;
	uint32_t next; /* in the bucket, 0: last */
};

static _Atomic uint32_t buckets[BUCKETS];
static struct entry *_Atomic blocks[BLOCKS];
static struct spinlock lock = SPINLOCK_INIT;
static uint32_t newest; /* guarded by lock, as the two below */
static char *strings;	/* unused rest of the newest string page */
static size_t strings_bytes;

static uint32_t hash_of(const char *s)
{
	uint32_t h = 2166136261u; /* FNV-1a */

	for (; *s != '\0'; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	return h;
}

static struct entry *entry_at(uint32_t id)
{
	/* Pairs with the release in entry_room(). */
	struct entry *block = load_acquire(&blocks[id / BLOCK_ENTRIES]);

	return block != NULL ? &block[id % BLOCK_ENTRIES] : NULL;
}

static uint32_t find(const char *s, uint32_t hash)
{
	/* Pairs with the release in add(): the entry is complete. */
	uint32_t id = load_acquire(&buckets[hash % BUCKETS]);

	while (id != 0) {
		const struct entry *e = entry_at(id);

		if (e->hash == hash && strcmp(e->string, s) == 0)
			break;
		id = e->next;
	}
	return id;
}

/* Room for entry @id. Lock held. */
static struct entry *entry_room(uint32_t id)
{
	struct entry *block;

	if (id >= BLOCKS * BLOCK_ENTRIES)
		return NULL;
	if (entry_at(id) == NULL) {
		block = pages_get(BLOCK_ENTRIES * sizeof(*block));
		if (block == NULL)
			return NULL;
		/* Pairs with the load in entry_at(). */
		store_release(&blocks[id / BLOCK_ENTRIES], block);
	}
	return entry_at(id);
}

/* A copy of @s that stays for ever. Lock held. */
static const char *keep(const char *s)
{
	size_t size_bytes = strlen(s) + 1;
	char *copy;

	if (size_bytes > STRINGS_BYTES / 4) {
		copy = pages_get(size_bytes);
	} else {
		if (size_bytes > strings_bytes) {
			copy = pages_get(STRINGS_BYTES);
			if (copy == NULL)
				return NULL;
			strings = copy;
			strings_bytes = STRINGS_BYTES;
		}
		copy = strings;
		strings += size_bytes;
		strings_bytes -= size_bytes;
	}
	return copy != NULL ? memcpy(copy, s, size_bytes) : NULL;
}

/* Lock held. */
static uint32_t add(const char *s, uint32_t hash)
{
	struct entry *e = entry_room(newest + 1);
	const char *copy = e != NULL ? keep(s) : NULL;

	if (copy == NULL)
		return 0;
	*e = (struct entry){ .string = copy,
			     .hash = hash,
			     .next = load_relaxed(&buckets[hash % BUCKETS]) };
	/* Publishes the entry; pairs with the load in find(). */
	store_release(&buckets[hash % BUCKETS], ++newest);
	return newest;
}

static __attribute__((noinline)) uint32_t intern_slow(const char *s, uint32_t hash)
{
	uint32_t id;

	spin_lock(&lock);
	id = find(s, hash);
	if (id == 0)
		id = add(s, hash);
	spin_unlock(&lock);
	return id;
}

uint32_t intern(const char *s)
{
	uint32_t hash, id;

	if (s == NULL || *s == '\0')
		return 0;
	hash = hash_of(s);
	id = find(s, hash);
	return id != 0 ? id : intern_slow(s, hash);
}

const char *interned(uint32_t id)
{
	const struct entry *e = id != 0 && id < BLOCKS * BLOCK_ENTRIES ? entry_at(id) : NULL;

	return e != NULL && e->string != NULL ? e->string : "";
}
