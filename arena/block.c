/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: keep the blocks of block.h, give an object to those that something refers to, and end both.
 *
 * Invariants: a block is live in its shard's map while the allocator has it out; its object, if
 * any, is in range_blocks and live as long. Whoever ends the block ends the object. Blocks of one
 * shard do not overlap, dead or alive: what a new block lies over was freed unseen, or makes room.
 *
 * Threads: any. A shard's lock guards its map and counters; what is taken under it (slab and index
 * locks) is a leaf. Objects are ended without it, as that takes the holders lock.
 */
#include "arena/block.h"

#include "arena/exec.h"
#include "arena/range.h"
#include "arena/slab.h"
#include "arena/stack.h"
#include "arena/storage.h"
#include "arena/suspect.h"

#define WINDOW_MASK   (((uint32_t)1 << BLOCK_WINDOW_BITS) - 1)
#define HOST_SHIFT    6

enum { GIVEN, TAKEN }; /* of told */

_Static_assert(STACK_COUNT_MAX < 1u << (64 - BLOCK_SIZE_BITS), "a stack fits into extent");

struct block_shard block_shards[BLOCK_SHARDS];
static _Atomic uint64_t shards_used; /* a bit each, set for ever */
static struct spinlock watch_lock = SPINLOCK_INIT;
static unsigned watchers; /* guarded by watch_lock, as are all stores to quiet */

/* The number of the newest window, not 0 once there was one; and is it open? Written by
 * block_window(), which its caller serialises. */
static _Atomic uint32_t window;
static _Atomic bool window_open;

static counter_t mixed; /* see struct block_counters */

_Atomic uint32_t block_freed_count;
static struct spinlock waiting_lock = SPINLOCK_INIT; /* guards waiting */
static struct range *waiting;			     /* linked through all_next; pinned */

void block_watch(bool on)
{
	uint64_t used;

	spin_lock(&watch_lock);
	watchers += on ? 1 : -1u;
	used = load_relaxed(&shards_used);
	for (unsigned i = 0; i < BLOCK_SHARDS; i++)
		store_relaxed(&block_shards[i].quiet, watchers == 0 && (used >> i & 1) != 0);
	spin_unlock(&watch_lock);
}

void block_window(bool open)
{
	uint32_t next = (load_relaxed(&window) + 1) & WINDOW_MASK;

	if (open)
		store_relaxed(&window, next ? next : 1);
	if (open != load_relaxed(&window_open))
		block_watch(open);
	store_relaxed(&window_open, open);
}

bool block_window_is_open(void)
{
	return load_relaxed(&window_open);
}

static uint32_t window_now(void)
{
	return load_relaxed(&window_open) ? load_relaxed(&window) : 0;
}

/* ---- records; the shard's lock is held ---- */

static uint64_t end_of(const struct block_shard *s, const struct block *b)
{
	return block_base(&s->map, b) + block_bytes(b);
}

static struct block *block_at(struct block_shard *s, uint64_t addr)
{
	struct block *b = block_map_floor(&s->map, addr);

	return b != NULL && block_is_live(b) && addr < end_of(s, b) ? b : NULL;
}

/* @b, without an object, lives no more: it stays, with its granule and bytes. */
static void block_die(struct block_shard *s, struct block *b)
{
	b->extent &= BLOCK_SIZE_MASK;
	s->told[TAKEN].bytes += b->extent;
	b->key = b->key >> BLOCK_GRANULE_SHIFT << BLOCK_GRANULE_SHIFT | BLOCK_DEAD;
}

/* @b is live no more. @return its object, which the caller ends without the lock; NULL: none. */
static struct range *block_end(struct block_shard *s, struct block *b)
{
	struct range *r = NULL;

	if (block_state(b) == BLOCK_HELD) {
		r = b->object;
		b->extent = load_relaxed(&r->size_bytes);
	}
	block_die(s, b);
	return r;
}

/* ---- objects ---- */

bool block_pooled(const struct range *r)
{
	/* Relaxed: advice of the allocator, given before the memory is used otherwise. */
	return (load_relaxed(&r->pooled) & POOLED_OWN) != 0 ||
	       (r->outer != NULL && (load_relaxed(&r->outer->pooled) & POOLED_OWN) != 0);
}

/* Who owns the segment around @base; pinned. NULL: nobody knows it. */
static struct range *segment_of(uint64_t base)
{
	struct range_view v;

	return ledger_find(base, &v) && ledger_pin(&v) ? v.owner : NULL;
}

/* The window that the block was allocated in; 0: none. */
static uint32_t window_of(const struct block *b)
{
	return b->key >> BLOCK_WINDOW_SHIFT & WINDOW_MASK;
}

/* What the record of a block says of its birth, as bits of enum range_pooled. */
static uint8_t pooled_of(const struct block *b)
{
	uint32_t born = window_of(b);

	if (born == 0)
		return 0;
	return born == load_relaxed(&window) ? POOLED_WINDOW | POOLED_OWN : POOLED_WINDOW;
}

bool block_is_newborn(const struct range *r)
{
	return load_relaxed(&r->kind) == RANGE_BLOCK && r->born != 0 && r->born == window_now();
}

/* Give @b, which has none, an object. The lock of @s is held. */
static struct range *object_new(const struct block_shard *s, struct block *b)
{
	const struct range_desc d = { .base = block_base(&s->map, b),
				      .size_bytes = block_bytes(b),
				      .kind = RANGE_BLOCK,
				      .stack = (uint32_t)(b->extent >> BLOCK_SIZE_BITS) };
	struct range *outer = segment_of(d.base), *r;

	/* Memory of an arena has its names already: its slots. */
	r = outer != NULL && outer->scope == STORAGE_SCOPE ? NULL : range_new(&d, NULL);
	if (r == NULL) {
		if (outer != NULL)
			ledger_unpin(outer);
		return NULL;
	}
	r->outer = outer;
	/* Before anybody holds @r: pairs with the fence in range_mark_holders(). */
	if (outer != NULL)
		add_relaxed(&outer->inner, 1);
	store_relaxed(&r->pooled, pooled_of(b));
	r->born = (b->key & BLOCK_BORN) != 0 ? window_of(b) : 0;
	if (!range_enter_block(r))
		return NULL;
	b->object = r;
	b->key |= BLOCK_HELD;
	return r;
}

struct range *block_refer(uint64_t addr)
{
	/* Relaxed: whoever uses an address was told of it after it was handed out. */
	uint64_t used = load_relaxed(&shards_used);
	struct range *r = NULL;

	for (; used != 0 && r == NULL; used &= used - 1) {
		struct block_shard *s = &block_shards[__builtin_ctzll(used)];
		struct block *b;

		spin_lock(&s->lock);
		b = block_at(s, addr);
		if (b != NULL)
			r = block_state(b) == BLOCK_HELD ? b->object : object_new(s, b);
		if (r != NULL)
			r->scope = window_now();
		spin_unlock(&s->lock);
	}
	return r;
}

bool block_covers(uint64_t addr)
{
	bool found = false;

	for (uint64_t used = load_relaxed(&shards_used); used != 0 && !found; used &= used - 1) {
		struct block_shard *s = &block_shards[__builtin_ctzll(used)];

		spin_lock(&s->lock);
		found = block_at(s, addr) != NULL;
		spin_unlock(&s->lock);
	}
	return found;
}

bool block_born(uint64_t base, uint64_t end)
{
	bool born = false;

	for (uint64_t used = load_relaxed(&shards_used); used != 0 && !born; used &= used - 1) {
		struct block_shard *s = &block_shards[__builtin_ctzll(used)];
		const struct block *b;

		spin_lock(&s->lock);
		/* From the last one to the first. */
		for (b = block_map_floor(&s->map, end - 1);
		     !born && b != NULL && end_of(s, b) > base;
		     b = block_map_floor(&s->map, block_base(&s->map, b) - 1))
			born = block_is_live(b) && (b->key & BLOCK_BORN) != 0;
		spin_unlock(&s->lock);
	}
	return born;
}

/* Wait to be told, unless nobody holds it. The pin of a live range goes over to the list. */
static void wait_to_be_told(struct range *r)
{
	spin_lock(&waiting_lock);
	r->all_next = waiting;
	waiting = r;
	add_relaxed(&block_freed_count, 1);
	spin_unlock(&waiting_lock);
}

/* A window allocates in [base, end): what waits there and was allocated in one, too, is pooled. */
static void wait_no_more(uint64_t base, uint64_t end)
{
	struct range **at = &waiting, *gone = NULL, *r;

	spin_lock(&waiting_lock);
	while ((r = *at) != NULL) {
		if ((load_relaxed(&r->pooled) & POOLED_WINDOW) == 0 || r->base >= end ||
		    r->base + r->size_bytes <= base) {
			at = &r->all_next;
			continue;
		}
		*at = r->all_next;
		r->all_next = gone;
		gone = r;
		or_relaxed(&r->pooled, POOLED_OWN);
		add_relaxed(&block_freed_count, -1u);
	}
	spin_unlock(&waiting_lock);
	for (; (r = gone) != NULL; range_unpin(r))
		gone = r->all_next;
}

/* Is @r, which is gone, missed by an exec? What is pooled is judged by its segment, dead or not. */
static bool is_missed(struct range *r)
{
	bool held;

	if (block_pooled(r))
		return false;
	held = range_mark_holders(r);
	return suspect_points(r) || held;
}

static void object_end(struct range *r, uint32_t stack, bool tell)
{
	range_leave(r, stack);
	/* Pairs with the loads of state in look-ups and in exec.c. */
	store_release(&r->state, RANGE_DEAD);
	if (is_missed(r) && tell)
		wait_to_be_told(r);
	else
		range_unpin(r);
}

void block_freed(struct range *r, uint32_t stack)
{
	object_end(r, stack, true);
}

__attribute__((cold, noinline)) void block_tell_freed_slow(void)
{
	struct range *list, *next;

	spin_lock(&waiting_lock);
	list = waiting;
	waiting = NULL;
	store_relaxed(&block_freed_count, 0);
	spin_unlock(&waiting_lock);
	for (; list != NULL; list = next) {
		next = list->all_next;
		/* Found empty when its graphs are gone, or have other parameters by now. */
		guard_freed(list, load_relaxed(&list->stack_close));
		suspect_freed(list, load_relaxed(&list->stack_close));
		range_unpin(list);
	}
}

/* ---- events ---- */

/* Does a block live in [base, end) that was allocated while nobody captured? */
static bool has_ordinary(struct block_shard *s, uint64_t base, uint64_t end)
{
	bool found = false;

	spin_lock(&s->lock);
	for (struct block *b; !found && (b = block_map_floor(&s->map, end - 1)) != NULL;) {
		end = block_base(&s->map, b);
		if (end < base)
			break;
		found = block_is_live(b) && window_of(b) == 0;
	}
	spin_unlock(&s->lock);
	return found;
}

/* Memory of captures lies around @addr from now on. */
static __attribute__((cold, noinline)) void segment_pooled(struct block_shard *s, uint64_t addr)
{
	struct range_view v;

	if (!ledger_find(addr, &v) || !ledger_pin(&v))
		return;
	if ((load_relaxed(&v.owner->pooled) & POOLED_OWN) == 0) {
		store_relaxed(&v.owner->pooled, POOLED_OWN);
		if (has_ordinary(s, v.base, v.base + v.size_bytes))
			counter_bump(&mixed);
	}
	ledger_unpin(v.owner);
}

/* First use of a shard. Its lock is held. */
static __attribute__((cold, noinline)) bool shard_start(struct block_shard *s)
{
	bool is_host = s == &block_shards[BLOCK_SHARD_HOST];

	if (block_map_init(&s->map, is_host ? HOST_SHIFT : BLOCK_DEVICE_SHIFT) != 0)
		return false;
	spin_lock(&watch_lock);
	or_release(&shards_used, (uint64_t)1 << (s - block_shards));
	store_relaxed(&s->quiet, watchers == 0);
	spin_unlock(&watch_lock);
	return true;
}

/* Take a block in [base, end) out: freed unseen, if it lives. @return false: there is none. */
static bool drop_one(struct block_shard *s, uint64_t base, uint64_t end, struct range **object)
{
	struct block *b = block_map_floor(&s->map, end - 1);

	*object = NULL;
	if (b == NULL || end_of(s, b) <= base)
		return false;
	if (block_is_live(b)) {
		*object = block_end(s, b);
		s->overlaps++;
	}
	block_map_hide(&s->map, b);
	return true;
}

static __attribute__((cold, noinline)) void drop_all(struct block_shard *s, uint64_t base,
						     uint64_t end)
{
	struct range *object;
	bool dropped;

	do {
		spin_lock(&s->lock);
		dropped = drop_one(s, base, end, &object);
		spin_unlock(&s->lock);
		if (object != NULL)
			object_end(object, 0, false);
	} while (dropped);
}

/* @return false: something lives there, nothing was entered. Lock held. */
static bool enter(struct block_shard *s, uint64_t base, uint64_t size_bytes, uint32_t stack)
{
	struct block *b = size_bytes <= BLOCK_SIZE_MASK ? block_map_add(&s->map, base) : NULL;

	if (b == NULL) {
		counter_bump(&range_counts.dropped);
		return true;
	}
	/* A dead one overlaps nothing, so neither does a part of it. */
	if (block_is_live(b) ||
	    (b->extent < size_bytes && !block_map_claim(&s->map, b, size_bytes)))
		return false;
	b->key += BLOCK_LIVE - BLOCK_DEAD + ((uint64_t)window_now() << BLOCK_WINDOW_SHIFT);
	b->extent = size_bytes | (uint64_t)stack << BLOCK_SIZE_BITS;
	s->told[GIVEN].count++;
	s->told[GIVEN].bytes += size_bytes;
	return true;
}

/* A thread that captures got the block at @base, which is live. Lock held. */
static __attribute__((cold, noinline)) void bear(struct block_shard *s, uint64_t base)
{
	struct block *b = s->map.entries != NULL ? block_map_get(&s->map, base) : NULL;

	if (b != NULL && block_state(b) == BLOCK_LIVE)
		b->key |= BLOCK_BORN;
}

QUICK_CODE bool block_enter(struct block_shard *s, uint64_t base, int64_t bytes)
{
	uint64_t granule = base >> BLOCK_DEVICE_SHIFT;
	uint64_t key = granule << BLOCK_GRANULE_SHIFT | BLOCK_DEAD;
	struct block *b = NULL;
	bool entered;

	/* As in block_event_quick(). */
	if (SELDOM(bytes <= 0) || SELDOM(!load_relaxed(&s->quiet)) || SELDOM(!spin_try(&s->lock)))
		return false;
	if (!SELDOM((base & BLOCK_DEVICE_MASK) != 0) && !SELDOM((uint64_t)bytes > BLOCK_SIZE_MASK))
		b = block_map_seek(&s->map, granule, key);
	if (!SELDOM(b == NULL) && !SELDOM(!block_map_claim(&s->map, b, (uint64_t)bytes))) {
		b->extent = (uint64_t)bytes;
		entered = block_turn(s, b, key, 0, (uint64_t)bytes);
	} else {
		entered = enter(s, base, (uint64_t)bytes, 0);
	}
	spin_unlock(&s->lock);
	return entered;
}

void block_opened(unsigned shard, uint64_t base, uint64_t size_bytes, bool captures, uint32_t stack)
{
	struct block_shard *s = &block_shards[shard];
	bool entered;

	do {
		spin_lock(&s->lock);
		entered = (s->map.entries == NULL && !shard_start(s)) ||
			  enter(s, base, size_bytes, stack);
		if (entered && captures)
			bear(s, base);
		spin_unlock(&s->lock);
		if (__builtin_expect(!entered, 0))
			drop_all(s, base, base + size_bytes);
	} while (!entered);
	if (__builtin_expect(captures, 0))
		segment_pooled(s, base);
	if (load_relaxed(&window_open) && load_relaxed(&block_freed_count) != 0)
		wait_no_more(base, base + size_bytes);
	if (__builtin_expect(ledger_opened != NULL, 0)) {
		struct range *r = block_refer(base);

		if (r != NULL)
			ledger_opened(r);
	}
	infer_born(RANGE_BLOCK, base, size_bytes, stack);
}

struct range *block_closed(unsigned shard, uint64_t base)
{
	struct block_shard *s = &block_shards[shard];
	struct range *r = NULL;
	struct block *b;

	spin_lock(&s->lock);
	b = s->map.entries != NULL ? block_map_get(&s->map, base) : NULL;
	if (b != NULL && block_is_live(b)) {
		s->told[TAKEN].count++;
		r = block_end(s, b);
	} else {
		s->unknown_frees++;
	}
	if (r != NULL && r->scope != 0 && load_relaxed(&window_open) &&
	    r->scope == load_relaxed(&window))
		or_relaxed(&r->pooled, POOLED_OWN);
	spin_unlock(&s->lock);
	return r;
}

void block_forget(uint64_t base, uint64_t size_bytes)
{
	for (uint64_t used = load_relaxed(&shards_used); used != 0; used &= used - 1)
		drop_all(&block_shards[__builtin_ctzll(used)], base, base + size_bytes);
}

void block_read_counters(struct block_counters *out)
{
	*out = (struct block_counters){ .mixed = load_relaxed(&mixed) };
	for (uint64_t used = load_relaxed(&shards_used); used != 0; used &= used - 1) {
		struct block_shard *s = &block_shards[__builtin_ctzll(used)];

		spin_lock(&s->lock);
		out->live += s->told[GIVEN].count - s->told[TAKEN].count - s->overlaps;
		out->bytes += s->told[GIVEN].bytes - s->told[TAKEN].bytes;
		out->allocations += s->told[GIVEN].count;
		out->frees += s->told[TAKEN].count;
		out->unknown_frees += s->unknown_frees;
		out->overlaps += s->overlaps;
		spin_unlock(&s->lock);
	}
}
