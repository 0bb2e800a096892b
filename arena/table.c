/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a CUgraphExec to its mirror: a chained hash.
 *
 * Readers (exec_find) take no lock: a hit is proven by the handle in the object; a miss is
 * believed only if no chain was taken apart meanwhile, which the version tells (odd while a
 * writer is at it). Tables only grow; old ones are kept, since a reader may still be in one.
 *
 * Threads: exec_find() from any; everything else under the holders lock of ledger.c.
 */
#include "arena/table.h"

#include "arena/ledger.h"
#include "arena/slab.h"

#define TABLE_LOG2_MIN 6

struct table {
	unsigned shift; /* 64 - log2 of the number of buckets */
	struct exec *_Atomic *buckets;
};

static struct exec *_Atomic first_buckets[1 << TABLE_LOG2_MIN];
static struct table first_table = { 64 - TABLE_LOG2_MIN, first_buckets };
static QUICK_WORD struct table *_Atomic table = &first_table;
static QUICK_WORD _Atomic uint64_t version;
static uint64_t live; /* guarded by the holders lock */

static struct exec *_Atomic *bucket(const struct table *t, uint64_t handle)
{
	return &t->buckets[handle * 0x9e3779b97f4a7c15u >> t->shift];
}

struct exec *table_find(uint64_t handle)
{
	/* Acquire pairs with grow(). */
	struct exec *e = load_acquire(bucket(load_acquire(&table), handle));

	/* Acquire pairs with the release stores of table_insert() and table_remove(). */
	while (e && load_acquire(&e->handle) != handle)
		e = load_acquire(&e->next);
	return e;
}

static __attribute__((cold, noinline)) struct exec *exec_find_slow(uint64_t handle)
{
	struct exec *e;

	ledger_holders_lock();
	e = table_find(handle);
	ledger_holders_unlock();
	return e;
}

struct exec *exec_find(uint64_t handle)
{
	/* Pairs with chains_open(): an even number that did not change means whole chains. */
	uint64_t before = load_acquire(&version);
	struct exec *e = handle ? table_find(handle) : NULL;

	if (__builtin_expect(e != NULL, 1))
		return e;
	/* The loads of the chain are acquire, so this one is not moved up. */
	if ((before & 1) == 0 && load_relaxed(&version) == before)
		return NULL;
	return exec_find_slow(handle);
}

/* Around any change that could make a reader leave its chain. Holders lock held. */
static void chains_open(void)
{
	store_release(&version, load_relaxed(&version) + 1);
}

static void chains_close(void)
{
	store_release(&version, load_relaxed(&version) + 1);
}

static void grow(void)
{
	struct table *old = load_relaxed(&table), *bigger;
	size_t old_count = (size_t)1 << (64 - old->shift);
	/* One piece: the table and its buckets. */
	char *p = pages_get(sizeof(*bigger) + 2 * old_count * sizeof(*bigger->buckets));

	if (!p)
		return; /* longer chains do no harm */
	bigger = (struct table *)p;
	bigger->shift = old->shift - 1;
	bigger->buckets = (struct exec * _Atomic *)(p + sizeof(*bigger));
	chains_open();
	for (size_t i = 0; i < old_count; i++) {
		struct exec *e = load_relaxed(&old->buckets[i]), *next;

		for (; e; e = next) {
			struct exec *_Atomic *to = bucket(bigger, load_relaxed(&e->handle));

			next = load_relaxed(&e->next);
			/* Release: a reader that comes here this way sees the odd version. */
			store_release(&e->next, load_relaxed(to));
			store_relaxed(to, e);
		}
	}
	/* Pairs with the acquire in table_find(): the buckets are filled. */
	store_release(&table, bigger);
	chains_close();
}

void table_insert(struct exec *e, uint64_t handle)
{
	struct exec *_Atomic *to;

	if (++live > (uint64_t)1 << (64 - load_relaxed(&table)->shift))
		grow();
	to = bucket(load_relaxed(&table), handle);
	store_release(&e->next, load_relaxed(to));
	/* Pair with the acquires in table_find(): the object is complete. */
	store_release(&e->handle, handle);
	store_release(to, e);
}

void table_remove(struct exec *e)
{
	struct exec *_Atomic *at = bucket(load_relaxed(&table), load_relaxed(&e->handle));

	while (load_relaxed(at) != e)
		at = &load_relaxed(at)->next;
	chains_open();
	store_release(at, load_relaxed(&e->next));
	store_release(&e->handle, 0);
	chains_close();
	live--;
}

struct exec *table_next(struct exec *e)
{
	const struct table *t = load_relaxed(&table);
	struct exec *_Atomic *at = t->buckets, *_Atomic *end = at + ((size_t)1 << (64 - t->shift));

	if (e) {
		if (load_relaxed(&e->next))
			return load_relaxed(&e->next);
		at = bucket(t, load_relaxed(&e->handle)) + 1;
	}
	for (; at < end; at++)
		if (load_relaxed(at))
			return load_relaxed(at);
	return NULL;
}

uint64_t table_count(void)
{
	return live;
}
