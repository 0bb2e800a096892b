/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address -> block, for block.c: 16 bytes in a hash by base, and one bit in a tree of bitmaps that
 * finds the block below an address. A block that was taken back stays, dead: its allocator hands
 * the same piece out again sooner or later, and then neither hash nor tree changes. Where other
 * pieces are carved meanwhile, it is hidden: it has no bytes and is not in the tree, but its entry
 * waits. All that are dead go when the table is full.
 *
 * Threads: the caller serialises every call. Memory is never given back, nor asked from malloc.
 */
#ifndef ARENA_BLOCK_MAP_H
#define ARENA_BLOCK_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/atomics.h"

struct range;

/*
 *	key	 63     22  21   20        2 1   0	extent	 63     42 41      0
 *		+---------+----+-----------+-----+		+---------+---------+
 *		| granule |born|  window   |state|		|  stack  |  bytes  |
 *		+---------+----+-----------+-----+		+---------+---------+
 *
 * Did a thread that captured allocate it? The window that it was allocated in, 0: none; its number
 * may come back after half a million captures, and then one block is pooled that is not. The stack
 * of its allocation, 0: none. Sizes are below 4 TiB. Of a dead one, granule and bytes count; a
 * hidden one is dead and has none.
 */
#define BLOCK_WINDOW_SHIFT  2
#define BLOCK_WINDOW_BITS   19
#define BLOCK_BORN	    ((uint64_t)1 << (BLOCK_WINDOW_SHIFT + BLOCK_WINDOW_BITS))
#define BLOCK_GRANULE_SHIFT (BLOCK_WINDOW_SHIFT + BLOCK_WINDOW_BITS + 1)
#define BLOCK_GRANULE_BITS  42
#define BLOCK_DEVICE_SHIFT  9 /* of device blocks: PyTorch rounds up to 512 bytes */
/* Bits that no base of a device block has: its granule is all of it. */
#define BLOCK_DEVICE_MASK   (~((((uint64_t)1 << BLOCK_GRANULE_BITS) - 1) << BLOCK_DEVICE_SHIFT))
#define BLOCK_SIZE_BITS	    42
#define BLOCK_SIZE_MASK	    (((uint64_t)1 << BLOCK_SIZE_BITS) - 1)

enum block_state { BLOCK_FREE, BLOCK_LIVE, BLOCK_DEAD, BLOCK_HELD /* live, with an object */ };

struct block {
	uint64_t key;			/* 0: a free entry */
	union {
		uint64_t extent;
		struct range *object;	/* of a held one */
	};
};
_Static_assert(sizeof(struct block) == 16, "budget: host bytes a block, four a cache line");

/* A word of which children may have a block below them, and the children; or in a leaf the bits of
 * 64 granules each. */
struct block_node {
	uint64_t bits;
	union {
		struct block_node *child[64];
		uint64_t word[64];
	};
};

struct block_map {
	struct block *entries;	/* NULL: block_map_init() was not called */
	uint32_t mask, count;	/* of all entries, less one; that are in use, by dead ones too */
	uint8_t granule_shift, hash_shift;
	struct block_node *leaf; /* that was used last, and the number of its addresses */
	uint64_t leaf_number;
	struct block_node root;
};

static inline enum block_state block_state(const struct block *b)
{
	return (enum block_state)(b->key & 3);
}

static inline bool block_is_live(const struct block *b)
{
	return (b->key & 1) != 0;
}

static inline uint64_t block_base(const struct block_map *m, const struct block *b)
{
	return b->key >> BLOCK_GRANULE_SHIFT << m->granule_shift;
}

/* The number of the granule that begins at @base; one that no block has: none does. */
static inline uint64_t block_granule(const struct block_map *m, uint64_t base)
{
	return base >> m->granule_shift | base << (64 - m->granule_shift);
}

static inline uint64_t block_map_home(const struct block_map *m, uint64_t granule)
{
	/* The odd number next to 2^64 over the golden ratio. */
	return granule * 0x9e3779b97f4a7c15u >> m->hash_shift;
}

/* The entry of @granule, not 0, or the free one where it belongs. */
static inline struct block *block_map_probe(const struct block_map *m, uint64_t granule)
{
	uint64_t i = block_map_home(m, granule);

	while (m->entries[i].key >> BLOCK_GRANULE_SHIFT != granule && m->entries[i].key != 0)
		i = (i + 1) & m->mask;
	return &m->entries[i];
}

/* The entry with @key, whose granule is @granule, or NULL. */
static inline struct block *block_map_seek(const struct block_map *m, uint64_t granule,
					   uint64_t key)
{
	struct block *b = &m->entries[block_map_home(m, granule)];

	while (SELDOM(b->key != key)) {
		if (b->key == 0)
			return NULL;
		/* Read anew what only this loop needs: else registers are saved for it. */
		__asm__("" : : : "memory");
		if (b++ == &m->entries[m->mask])
			b = m->entries;
	}
	return b;
}

/* @brief @param granule_shift log2 of what every base is a multiple of. @return 0 or -ENOMEM. */
int block_map_init(struct block_map *m, unsigned granule_shift);

/* @brief The entry of @base, hidden if it is new. Pointers from earlier calls are void.
 * @return NULL: no memory, or no base that fits. */
struct block *block_map_add(struct block_map *m, uint64_t base);
/* @brief @return the entry of @base, in whatever state; NULL: there is none. */
struct block *block_map_get(const struct block_map *m, uint64_t base);
/* @brief The entry with the greatest base <= @addr that is not hidden, dead or alive.
 * @return NULL: there is none. */
struct block *block_map_floor(struct block_map *m, uint64_t addr);
/* @brief Bytes of @b; 0: it is hidden. */
uint64_t block_bytes(const struct block *b);
/* @brief @b, which is dead, is found by addresses no more. */
void block_map_hide(struct block_map *m, struct block *b);
/* @brief @b, which is dead, is to have @bytes, and is found: what else is dead there is hidden, or
 * ends where @b begins. The caller sets the extent. @return false: something lives there. */
bool block_map_claim(struct block_map *m, struct block *b, uint64_t bytes);

#endif
