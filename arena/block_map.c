/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash is open, with linear probing, and no entry leaves it: a full one is made anew, without
 * what is dead; twice as large if it is half alive, so that each entry that is added pays for a few
 * steps of it. The tree has six levels of 64; granules of 512 bytes make it
 *
 *   bit  50    45 44    39 38    33 32    27 26    21 20             9 8       0
 *       +--------+--------+--------+--------+--------+-----------------+---------+
 *       |   0    |   1    |   2    |   3    |   4    |  5, leaf: 2 MiB | in the  |  level
 *       | 32 TiB | 512 GiB|  8 GiB | 128 MiB|  2 MiB | word, bit       | granule |  of a child
 *       +--------+--------+--------+--------+--------+-----------------+---------+
 *
 * Invariants: the bits of a leaf say what is there; a bit above says that something may be below
 * it, and is cleared by the search that finds nothing. A node stays once it was made. The leaf that
 * was used last is known, and so are its parents' bits: an event close by touches nothing else.
 *
 * Threads: see block_map.h.
 */
#include "arena/block_map.h"

#include <errno.h>
#include <stddef.h>

#include "arena/ledger.h"
#include "arena/slab.h"

#define DIGIT_BITS 6
#define DIGIT	   63
#define LEAF_LEVEL 5
_Static_assert(DIGIT_BITS *(LEAF_LEVEL + 2) == BLOCK_GRANULE_BITS, "the tree has all granules");
#define CAP_LOG2_MIN 8

static struct slab nodes = SLAB_INIT(struct block_node);

static uint64_t bit(unsigned i)
{
	return (uint64_t)1 << i;
}

static unsigned top_bit(uint64_t bits)
{
	return 63 - (unsigned)__builtin_clzll(bits);
}

/* ---- the tree; addresses in granules ---- */

static unsigned digit(uint64_t granule, unsigned level)
{
	return granule >> (DIGIT_BITS * (LEAF_LEVEL + 1 - level)) & DIGIT;
}

/* Fill path[0..LEAF_LEVEL] with the nodes around @granule; missing ones are made if @make.
 * @return how many levels there are. */
static unsigned walk(struct block_map *m, uint64_t granule, struct block_node **path, bool make)
{
	unsigned level;

	path[0] = &m->root;
	for (level = 0; level < LEAF_LEVEL; level++) {
		struct block_node **child = &path[level]->child[digit(granule, level)];

		if (*child == NULL && make)
			*child = slab_get(&nodes);
		if (*child == NULL)
			break;
		path[level + 1] = *child;
	}
	return level + 1;
}

static uint64_t leaf_number(uint64_t granule)
{
	return granule >> 2 * DIGIT_BITS;
}

/* The leaf around @granule, made if @make; its parents know of it. NULL: there is none. */
static __attribute__((noinline)) struct block_node *leaf_look(struct block_map *m, uint64_t granule,
							      bool make)
{
	struct block_node *path[LEAF_LEVEL + 1];

	if (walk(m, granule, path, make) <= LEAF_LEVEL)
		return NULL;
	for (unsigned level = 0; level < LEAF_LEVEL; level++)
		path[level]->bits |= bit(digit(granule, level));
	m->leaf = path[LEAF_LEVEL];
	m->leaf_number = leaf_number(granule);
	return m->leaf;
}

static struct block_node *leaf_at(struct block_map *m, uint64_t granule, bool make)
{
	return m->leaf != NULL && m->leaf_number == leaf_number(granule)
		       ? m->leaf
		       : leaf_look(m, granule, make);
}

static void bit_clear(struct block_map *m, uint64_t granule)
{
	struct block_node *leaf = leaf_at(m, granule, false);
	unsigned i = digit(granule, LEAF_LEVEL);

	leaf->word[i] &= ~bit(granule & DIGIT);
	if (leaf->word[i] == 0)
		leaf->bits &= ~bit(i);
}

/* The greatest granule <= @granule that is set in its leaf. @return false: there is none. */
static inline bool leaf_floor(const struct block_node *leaf, uint64_t granule, uint64_t *out)
{
	unsigned i = digit(granule, LEAF_LEVEL);
	uint64_t below = leaf->word[i] & (~(uint64_t)0 >> (DIGIT - (granule & DIGIT)));
	uint64_t number = granule >> DIGIT_BITS;

	if (below == 0) {
		below = leaf->bits & (bit(i) - 1);
		if (below == 0)
			return false;
		number = (number & ~(uint64_t)DIGIT) | top_bit(below);
		below = leaf->word[top_bit(below)];
	}
	*out = number << DIGIT_BITS | top_bit(below);
	return true;
}

/* There is nothing below child @i of @n. */
static void forget_child(struct block_map *m, struct block_node *n, unsigned i)
{
	n->bits &= ~bit(i);
	/* It may be the leaf whose parents no longer know of it. */
	m->leaf = NULL;
}

/* The last granule that is set below @n, which is node @number of @level. What turns out to be
 * empty is forgotten on the way. @return false: there is none. */
static bool last_below(struct block_map *m, struct block_node *n, unsigned level, uint64_t number,
		       uint64_t *out)
{
	while (n->bits != 0) {
		unsigned i = top_bit(n->bits);
		uint64_t next = number << DIGIT_BITS | i;

		if (level == LEAF_LEVEL) {
			*out = next << DIGIT_BITS | top_bit(n->word[i]);
			return true;
		}
		if (last_below(m, n->child[i], level + 1, next, out))
			return true;
		forget_child(m, n, i);
	}
	return false;
}

/* The greatest granule <= @granule that is set. @return false: there is none. */
static bool bit_floor(struct block_map *m, uint64_t granule, uint64_t *out)
{
	struct block_node *path[LEAF_LEVEL + 1];
	unsigned level = walk(m, granule, path, false);

	if (level > LEAF_LEVEL && leaf_floor(path[LEAF_LEVEL], granule, out))
		return true;
	if (level > LEAF_LEVEL)
		level = LEAF_LEVEL;
	while (level-- > 0) {
		struct block_node *n = path[level];
		uint64_t number = granule >> DIGIT_BITS * (LEAF_LEVEL + 1 - level), bits;

		while ((bits = n->bits & (bit(digit(granule, level)) - 1)) != 0) {
			unsigned i = top_bit(bits);

			if (last_below(m, n->child[i], level + 1, (number & ~(uint64_t)DIGIT) | i,
				       out))
				return true;
			forget_child(m, n, i);
		}
	}
	return false;
}

/* ---- both ---- */

uint64_t block_bytes(const struct block *b)
{
	return block_state(b) == BLOCK_HELD ? load_relaxed(&b->object->size_bytes)
					    : b->extent & BLOCK_SIZE_MASK;
}

static int table_get(struct block_map *m, unsigned cap_log2)
{
	struct block *entries = pages_get(((size_t)1 << cap_log2) * sizeof(*entries));

	if (entries == NULL)
		return -ENOMEM;
	m->entries = entries;
	m->mask = (uint32_t)(((uint64_t)1 << cap_log2) - 1);
	m->hash_shift = (uint8_t)(64 - cap_log2);
	return 0;
}

int block_map_init(struct block_map *m, unsigned granule_shift)
{
	*m = (struct block_map){ .granule_shift = (uint8_t)granule_shift };
	return table_get(m, CAP_LOG2_MIN);
}

/* The table is full: what is dead goes, and it grows if that is not enough. */
static __attribute__((cold, noinline)) int make_anew(struct block_map *m)
{
	struct block *old = m->entries;
	size_t cap = (size_t)m->mask + 1, alive = 0;

	for (size_t i = 0; i < cap; i++)
		alive += block_is_live(&old[i]);
	if (table_get(m, 64 - m->hash_shift + (alive > cap * 3 / 8)) != 0)
		return -ENOMEM;
	for (size_t i = 0; i < cap; i++) {
		uint64_t granule = old[i].key >> BLOCK_GRANULE_SHIFT;

		if (block_is_live(&old[i]))
			*block_map_probe(m, granule) = old[i];
		else if (old[i].key != 0)
			bit_clear(m, granule);
	}
	m->count = (uint32_t)alive;
	pages_put(old, cap * sizeof(*old));
	return 0;
}

struct block *block_map_add(struct block_map *m, uint64_t base)
{
	uint64_t granule = block_granule(m, base);
	struct block *b;

	if (granule == 0 || granule >> BLOCK_GRANULE_BITS != 0)
		return NULL;
	b = block_map_probe(m, granule);
	if (b->key != 0)
		return b;
	/* Three quarters full: probes stay short. */
	if (m->count > m->mask / 4 * 3) {
		if (make_anew(m) != 0)
			return NULL;
		b = block_map_probe(m, granule);
	}
	/* So that it can be shown. */
	if (leaf_at(m, granule, true) == NULL)
		return NULL;
	*b = (struct block){ .key = granule << BLOCK_GRANULE_SHIFT | BLOCK_DEAD };
	m->count++;
	return b;
}

struct block *block_map_get(const struct block_map *m, uint64_t base)
{
	uint64_t granule = block_granule(m, base);
	struct block *b = granule != 0 ? block_map_probe(m, granule) : NULL;

	return b != NULL && b->key != 0 ? b : NULL;
}

/* The greatest granule <= @granule whose entry is not hidden. @return false: there is none. */
static inline bool granule_floor(struct block_map *m, uint64_t granule, uint64_t *out)
{
	const struct block_node *leaf = leaf_at(m, granule, false);

	return (leaf != NULL && leaf_floor(leaf, granule, out)) || bit_floor(m, granule, out);
}

struct block *block_map_floor(struct block_map *m, uint64_t addr)
{
	uint64_t last = ((uint64_t)1 << BLOCK_GRANULE_BITS) - 1, granule = addr >> m->granule_shift;

	if (!granule_floor(m, granule > last ? last : granule, &granule))
		return NULL;
	return block_map_probe(m, granule);
}

void block_map_hide(struct block_map *m, struct block *b)
{
	b->extent = 0;
	bit_clear(m, b->key >> BLOCK_GRANULE_SHIFT);
}

/* It has bytes from now on. */
static void show(struct block_map *m, const struct block *b)
{
	uint64_t granule = b->key >> BLOCK_GRANULE_SHIFT;
	struct block_node *leaf = leaf_at(m, granule, false);
	unsigned i = digit(granule, LEAF_LEVEL);

	leaf->bits |= bit(i);
	leaf->word[i] |= bit(granule & DIGIT);
}

/* The one below reaches into @b, if it does, only as long as @b is hidden. */
static __attribute__((noinline)) bool claim_far(struct block_map *m, struct block *b,
						uint64_t bytes)
{
	uint64_t base = block_base(m, b), granule = b->key >> BLOCK_GRANULE_SHIFT, at;
	uint64_t last = (base + bytes - 1) >> m->granule_shift;

	for (; granule_floor(m, last, &at) && at != granule; last = at - 1) {
		struct block *other = block_map_probe(m, at);
		uint64_t below = at << m->granule_shift;

		if (at < granule && below + block_bytes(other) <= base)
			break;
		if (block_is_live(other))
			return false;
		if (at < granule) {
			other->extent = base - below;
			break;
		}
		block_map_hide(m, other);
	}
	if (b->extent == 0)
		show(m, b);
	return true;
}

/* In one word of the leaf: what lies between @b and @last makes room. @return false: it lives. */
static inline bool clear_between(struct block_map *m, uint64_t *word, uint64_t granule,
				 uint64_t last)
{
	uint64_t between = *word & (bit(last & DIGIT) - bit(granule & DIGIT)) << 1;

	for (; between != 0; between &= between - 1) {
		uint64_t at = (granule & ~(uint64_t)DIGIT) | (unsigned)__builtin_ctzll(between);
		struct block *other = block_map_seek(m, at, at << BLOCK_GRANULE_SHIFT | BLOCK_DEAD);

		if (SELDOM(other == NULL))
			return false;
		other->extent = 0;
		*word &= ~bit(at & DIGIT);
	}
	return true;
}

/* A small piece, and the one below it, mostly lie in one word of the leaf that was used last. */
QUICK_CODE bool block_map_claim(struct block_map *m, struct block *b, uint64_t bytes)
{
	uint64_t granule = b->key >> BLOCK_GRANULE_SHIFT, below, *word;
	uint64_t last = granule + ((bytes - 1) >> m->granule_shift);
	struct block *other;

	if (SELDOM(m->leaf == NULL) || SELDOM(m->leaf_number != leaf_number(granule)) ||
	    SELDOM((granule ^ last) > DIGIT))
		return claim_far(m, b, bytes);
	word = &m->leaf->word[digit(granule, LEAF_LEVEL)];
	below = *word & (bit(granule & DIGIT) - 1);
	if (SELDOM(below == 0))
		return claim_far(m, b, bytes);
	below = (granule & ~(uint64_t)DIGIT) | top_bit(below);
	other = block_map_probe(m, below);
	if (SELDOM(block_bytes(other) > (granule - below) << m->granule_shift)) {
		if (block_is_live(other))
			return false;
		other->extent = (granule - below) << m->granule_shift;
	}
	if (SELDOM(!clear_between(m, word, granule, last)))
		return false;
	*word |= bit(granule & DIGIT);
	return true;
}
