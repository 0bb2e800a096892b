/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address -> range: a 64-ary bitmap trie.
 *
 *   bit  50    45 44    39 38    33 32    27 26    21 20    15 14     9 8       0
 *       +--------+--------+--------+--------+--------+--------+--------+---------+
 *       |   0    |   1    |   2    |   3    |   4    |   5    |   6    | in the  |  level
 *       | 32 TiB | 512 GiB|  8 GiB | 128 MiB|  2 MiB | 32 KiB |  512 B | granule |  of a slot
 *       +--------+--------+--------+--------+--------+--------+--------+---------+
 *        \___ these only grow ____/  \____ a region: one lock for all writers __/
 *
 * A node is a word of 64 bits, which slots have something below, and 64 slots. A slot is
 *
 *   0            nothing
 *   node | 0     a child
 *   range | 1    (level 3 and below) a chain: the ranges of ONE granule, greatest base first,
 *                linked by index_next. It moves one level down when a second granule arrives.
 *
 * Invariants: while a range is entered, the bits and slots on its path lead to it; a child, once
 * published, stays where it is; a bit of level 2 and below is changed under the region's lock.
 * So a reader cannot miss a range that is entered during its whole search: what it meets on the
 * way may vanish, the path to that range does not. The one danger is a range that is taken out
 * of a chain and reused while a reader stands on it; node.taken tells.
 *
 * Threads: any function from any thread; index_floor() takes no lock.
 */
#include <errno.h>
#include <stddef.h>

#include "arena/index.h"
#include "arena/ledger.h"
#include "arena/slab.h"

#define GRANULE_SHIFT 9
#define DIGIT_BITS    6
#define SLOTS	      64
#define LEVELS	      7
#define REGION_LEVEL  3
#define ADDRESS_BITS  (GRANULE_SHIFT + DIGIT_BITS * LEVELS)
#define ADDRESS_MAX   (((uint64_t)1 << ADDRESS_BITS) - 1)

struct node {
	_Atomic uint64_t bits;
	/* Grows when a range leaves a chain of this node, or a chain leaves this node. */
	_Atomic uint32_t taken;
	struct spinlock lock; /* of a region, in its top node; unused elsewhere */
	void *_Atomic slot[SLOTS];
};

struct index {
	struct node root;
	counter_t count;
};

static struct slab nodes = SLAB_INIT(struct node);
static struct slab indexes = SLAB_INIT(struct index);

static unsigned digit(uint64_t addr, unsigned level)
{
	return (addr >> (ADDRESS_BITS - DIGIT_BITS * (level + 1))) & (SLOTS - 1);
}

static uint64_t bit(unsigned i)
{
	return (uint64_t)1 << i;
}

static unsigned top_bit(uint64_t bits)
{
	return 63 - (unsigned)__builtin_clzll(bits);
}

static bool is_chain(const void *slot)
{
	return (uintptr_t)slot & 1;
}

static struct range *chain_of(void *slot)
{
	return slot != NULL ? (struct range *)((char *)slot - 1) : NULL;
}

static void *slot_of(struct range *chain)
{
	return chain != NULL ? (char *)chain + 1 : NULL;
}

struct index *index_new(void)
{
	return slab_get(&indexes);
}

uint64_t index_count(const struct index *ix)
{
	return load_relaxed(&ix->count);
}

/* ---- readers ---- */

/*
 * The first range with base <= @addr in the chain in *@slot of @n; *out is NULL if there is none.
 * @return false when the chain changed meanwhile: some writer made progress, read it again.
 */
static bool chain_floor(const struct node *n, void *const _Atomic *slot, uint64_t addr,
			struct range **out)
{
	/* Pairs with take_note(): what left the chain before this load is not in the slot. */
	uint32_t taken = load_acquire(&n->taken);
	void *head = load_acquire(slot);
	struct range *r;

	if (!is_chain(head))
		return false;
	r = chain_of(head);
	for (;;) {
		uint64_t base = load_relaxed(&r->base);
		struct range *next = load_relaxed(&r->index_next);

		/*
		 * Pairs with the release stores to base and index_next by the next user of @r: if
		 * one of them was read, the change of .taken before it is seen here.
		 */
		fence_acquire();
		if (load_relaxed(&n->taken) != taken)
			return false;
		*out = base <= addr ? r : NULL;
		if (base <= addr || next == NULL)
			return true;
		r = next;
	}
}

/* The greatest range below @slot, or NULL: everything there was taken out meanwhile. */
static struct range *greatest(void *slot)
{
	const struct node *n = slot;

	if (slot == NULL)
		return NULL;
	if (is_chain(slot))
		return chain_of(slot);
	/* Pairs with the release in set_bits(): a set bit's slot is filled. */
	for (uint64_t bits = load_acquire(&n->bits); bits != 0; bits ^= bit(top_bit(bits))) {
		struct range *r = greatest(load_acquire(&n->slot[top_bit(bits)]));

		if (r != NULL)
			return r;
	}
	return NULL;
}

/* The greatest range left of the path to @addr, whose last node is path[level]. */
static struct range *left_of(const struct node *const *path, unsigned level, uint64_t addr)
{
	for (;; level--) {
		const struct node *n = path[level];
		/* Pairs with the release in set_bits(), as in greatest(). */
		uint64_t bits = load_acquire(&n->bits) & (bit(digit(addr, level)) - 1);

		for (; bits != 0; bits ^= bit(top_bit(bits))) {
			struct range *r = greatest(load_acquire(&n->slot[top_bit(bits)]));

			if (r != NULL)
				return r;
		}
		if (level == 0)
			return NULL;
	}
}

struct range *index_floor(const struct index *ix, uint64_t addr)
{
	const struct node *path[LEVELS];
	const struct node *n = &ix->root;
	unsigned level = 0;
	uint64_t digits; /* of the levels to go, the next one on top */

	if (addr > ADDRESS_MAX)
		addr = ADDRESS_MAX;
	digits = addr << (64 - ADDRESS_BITS);
	path[0] = n;
	for (;;) {
		void *const _Atomic *slot = &n->slot[digits >> (64 - DIGIT_BITS)];
		/* Pairs with the release that published the child or the chain. */
		void *have = load_acquire(slot);
		struct range *r;

		if (have == NULL)
			break;
		if (!is_chain(have)) {
			n = have;
			path[++level] = n;
			digits <<= DIGIT_BITS;
		} else if (chain_floor(n, slot, addr, &r)) {
			if (r != NULL)
				return r;
			break;
		}
	}
	return left_of(path, level, addr);
}

/* ---- writers ---- */

/* An empty node. One that lost a race in grow() comes back with the slab's link in it. */
static struct node *node_new(void)
{
	struct node *n = slab_get(&nodes);

	if (n != NULL)
		store_relaxed(&n->slot[SLOTS - 1], 0);
	return n;
}

static void take_note(struct node *n)
{
	/* Region lock held. Pairs with chain_floor(). */
	store_release(&n->taken, load_relaxed(&n->taken) + 1);
}

/* The child in @slot, made if need be; for levels without a lock. NULL: no memory. */
static struct node *grow(void *_Atomic *slot)
{
	void *have = load_acquire(slot);
	struct node *fresh;

	if (have != NULL)
		return have;
	fresh = node_new();
	if (fresh == NULL)
		return NULL;
	/* Publishes an empty node; pairs with the loads in index_floor(). */
	if (cas_acq_rel(slot, &have, (void *)fresh))
		return fresh;
	slab_put(&nodes, fresh);
	return have;
}

/* Nodes from the root to the region of @addr; only made if @make. */
static struct node *region_of(struct index *ix, uint64_t addr, struct node **path, bool make)
{
	struct node *n = &ix->root;

	for (unsigned level = 0; level < REGION_LEVEL; level++) {
		void *_Atomic *slot = &n->slot[digit(addr, level)];

		path[level] = n;
		n = make ? grow(slot) : load_acquire(slot);
		if (n == NULL)
			return NULL;
	}
	path[REGION_LEVEL] = n;
	return n;
}

/* Mark the path as occupied, deepest level first. Region lock held. */
static void set_bits(struct node **path, unsigned level, uint64_t addr)
{
	for (;; level--) {
		uint64_t mask = bit(digit(addr, level));

		/* Pairs with the loads of bits by readers; other regions share upper words. */
		if ((load_relaxed(&path[level]->bits) & mask) == 0)
			or_release(&path[level]->bits, mask);
		if (level == 0)
			return;
	}
}

/* Slot @i of @path[level] is empty now: nothing is said to be below it. Region lock held. Levels
 * 0 and 1 are shared by regions and keep their bits. */
static void clear_bits(struct node **path, unsigned level, uint64_t addr)
{
	for (; level >= REGION_LEVEL - 1; level--) {
		and_release(&path[level]->bits, ~bit(digit(addr, level)));
		if (level < REGION_LEVEL || load_relaxed(&path[level]->bits) != 0)
			return;
	}
}

/* Move the chain in *@slot of @parent one level down. Region lock held. */
static struct node *expand(struct node *parent, void *_Atomic *slot, unsigned child_level)
{
	void *chain = load_relaxed(slot);
	unsigned i = digit(load_relaxed(&chain_of(chain)->base), child_level);
	struct node *child = node_new();

	if (child == NULL)
		return NULL;
	store_relaxed(&child->slot[i], chain);
	store_relaxed(&child->bits, bit(i));
	/* Publishes the complete child; pairs with the loads in index_floor(). */
	store_release(slot, (void *)child);
	take_note(parent);
	return child;
}

/* Enter @r into the chain in *@slot, which may be empty. Region lock held. */
static void chain_enter(void *_Atomic *slot, struct range *r)
{
	struct range *prev = NULL, *next = chain_of(load_relaxed(slot));

	while (next != NULL && load_relaxed(&next->base) > load_relaxed(&r->base)) {
		prev = next;
		next = load_relaxed(&next->index_next);
	}
	/* Pairs with chain_floor(): who reads this stale link sees that @r had been taken. */
	store_release(&r->index_next, next);
	/* Publishes @r; pairs with the loads in chain_floor() and index_floor(). */
	if (prev != NULL)
		store_release(&prev->index_next, r);
	else
		store_release(slot, slot_of(r));
}

static bool same_granule(uint64_t a, uint64_t b)
{
	return a >> GRANULE_SHIFT == b >> GRANULE_SHIFT;
}

/* index_insert() below the region's top node, path[REGION_LEVEL]. Region lock held. */
static int region_insert(struct node **path, struct range *r)
{
	uint64_t base = load_relaxed(&r->base);
	unsigned level = REGION_LEVEL;

	for (;;) {
		struct node *n = path[level];
		void *_Atomic *slot = &n->slot[digit(base, level)];
		void *have = load_relaxed(slot);
		struct node *child = have;

		if (have == NULL ||
		    (is_chain(have) && same_granule(load_relaxed(&chain_of(have)->base), base))) {
			chain_enter(slot, r);
			set_bits(path, level, base);
			return 0;
		}
		if (is_chain(have))
			child = expand(n, slot, level + 1);
		if (child == NULL)
			return -ENOMEM;
		path[++level] = child;
	}
}

int index_insert(struct index *ix, struct range *r)
{
	struct node *path[LEVELS];
	uint64_t base = load_relaxed(&r->base);
	struct node *region;
	int err;

	if (base > ADDRESS_MAX)
		return -ERANGE;
	region = region_of(ix, base, path, true);
	if (region == NULL)
		return -ENOMEM;
	spin_lock(&region->lock);
	err = region_insert(path, r);
	spin_unlock(&region->lock);
	if (err == 0)
		counter_bump(&ix->count);
	return err;
}

/* Take @r out of the chain in *@slot. Region lock held. */
static bool chain_leave(struct node *n, void *_Atomic *slot, struct range *r)
{
	struct range *prev = NULL, *at = chain_of(load_relaxed(slot)), *next;

	while (at != NULL && at != r) {
		prev = at;
		at = load_relaxed(&at->index_next);
	}
	if (at == NULL)
		return false;
	/* @r keeps its link: a reader that stands on it walks on. */
	next = load_relaxed(&r->index_next);
	if (prev != NULL)
		store_release(&prev->index_next, next);
	else
		store_release(slot, slot_of(next));
	take_note(n);
	return true;
}

/* index_remove() below the region's top node, path[REGION_LEVEL]. Region lock held. */
static bool region_remove(struct node **path, struct range *r)
{
	uint64_t base = load_relaxed(&r->base);
	unsigned level = REGION_LEVEL;

	for (;;) {
		struct node *n = path[level];
		void *_Atomic *slot = &n->slot[digit(base, level)];
		void *have = load_relaxed(slot);

		if (is_chain(have)) {
			if (!chain_leave(n, slot, r))
				return false;
			if (load_relaxed(slot) == 0)
				clear_bits(path, level, base);
			return true;
		}
		if (have == NULL)
			return false;
		path[++level] = have;
	}
}

int index_remove(struct index *ix, struct range *r)
{
	struct node *path[LEVELS];
	uint64_t base = load_relaxed(&r->base);
	struct node *region = base > ADDRESS_MAX ? NULL : region_of(ix, base, path, false);
	bool found;

	if (region == NULL)
		return -ENOENT;
	spin_lock(&region->lock);
	found = region_remove(path, r);
	spin_unlock(&region->lock);
	if (!found)
		return -ENOENT;
	add_relaxed(&ix->count, (uint64_t)-1);
	return 0;
}
