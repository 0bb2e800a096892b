/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks: what a caching allocator (PyTorch's) carves out of the segments that it got from the
 * driver. An allocation and a free are told one by one, a million may live, and almost none is ever
 * captured: so a block is 16 bytes in a map of its device (block_map.h), and gets a struct range
 * (RANGE_BLOCK, with a generation) only when something refers to it: a captured word, a slot. The
 * 16 bytes outlive the block, so that the next one in its place is as quickly noted; the object
 * does not, so that a graph that holds it never takes the next one for it.
 *
 * Blocks in memory of an arena (what a MemPool carves out of a slot) get none: that is the slot's.
 *
 * A ref to a block is sound while the block lives and its segment is there (ledger_health()). The
 * segment may be unmapped and mapped again under it: that is a pause, the blocks stay.
 *
 * Memory that captures allocate is theirs (design rule 8): freed while the graph still uses it,
 * carved again by the next capture of the same pool. Such a block is pooled, and its refs are
 * judged by its segment alone. A block is pooled when
 *
 *   1. it was allocated in a capture window, and is referred to before the next one opens; or
 *   2. something referred to it in a capture window, and it is freed in the same window; or
 *   3. captures allocate in its segment: a thread that captures got a block in it; or
 *   4. it was allocated in a capture window, and a later window allocates there again before its
 *      free was told (block_tell_freed()).
 *
 * A window is the time in which any stream of the process captures. 2 is what cudagraph trees do
 * with the inputs of a recording; it also means that the free of an ordinary tensor inside the
 * capture that reads it is not seen. 4 is for threads that do not capture themselves (autograd's),
 * whose blocks are referred to by a later graph only.
 *
 * By 3, what lies in a segment is judged by the segment from then on. Where
 * ordinary blocks lived in it already, that is counted (mixed): a private pool into which
 * something was copied before its first capture, or a default one that served a stream which is
 * not captured. Those blocks cannot count as ordinary for it: cudagraph trees copy the inputs of a
 * recording into the pool before they capture, and an input that the graph returns as well (saved
 * for the backward pass) is freed long after. Slots that are bound there are judged as anywhere.
 *
 * Threads: any. A shard (one for each device) has a lock of its own; none is shared by devices,
 * unless a block is referred to. Nothing here calls the driver.
 *
 * An event comes once for each operation of an eager program, and finds little of us in the caches:
 * block_event_quick() does what nearly all of them need, and touches the first cache line of the
 * shard and the one of the block.
 */
#ifndef ARENA_BLOCK_H
#define ARENA_BLOCK_H

#include "arena/block_map.h"
#include "arena/ledger.h"

#define BLOCK_SHARDS	 64
#define BLOCK_SHARD_HOST (BLOCK_SHARDS - 1)	/* of CPU tensors; the others: devices */

struct block_shard {
	struct spinlock lock; /* guards the rest, but quiet */
	_Atomic bool quiet;   /* it is in use, and nobody watches (block_watch()) */
	struct block_told {   /* of what was handed out; of what was taken back */
		uint64_t count, bytes; /* the second one's bytes: also what was given up for lost */
	} told[2];
	struct block_map map; /* begins in the first cache line */
	uint64_t unknown_frees, overlaps;
} __attribute__((aligned(128)));
_Static_assert(offsetof(struct block_shard, map.hash_shift) < 64, "what an event touches");

/* Hidden: else its address is one more word to read. */
extern struct block_shard block_shards[BLOCK_SHARDS] __attribute__((visibility("hidden")));

/* @b, whose key is @key and which has no object, is handed out with @bytes (@freed is 0), or taken
 * back (@freed is all ones, and @bytes is of no matter). @return false: it cannot be. */
static inline bool block_turn(struct block_shard *s, struct block *b, uint64_t key, uint64_t freed,
			      uint64_t bytes)
{
	uint64_t size = bytes ^ ((bytes ^ b->extent) & freed);

	/* What is hidden has no bytes, and nobody gets none; what lives may have a stack. */
	if (SELDOM(size - 1 >= b->extent) || SELDOM(size > BLOCK_SIZE_MASK))
		return false;
	b->key = key ^ BLOCK_LIVE ^ BLOCK_DEAD;
	b->extent = size;
	s->told[freed & 1].count++;
	s->told[freed & 1].bytes += size;
	return true;
}

/*
 * @brief An event of a device: a block that the shard had before, in the same place, is handed out
 * with @bytes > 0; or is taken back, with @bytes < 0, and nothing refers to it. What was dead there
 * overlaps nothing: neither does what takes its place, if it has no more bytes.
 * @return false: it is another event, or a special time; nothing happened: block_enter(),
 * block_opened() or block_closed() do it.
 *
 * Both kinds go the same way, without a branch that is taken (SELDOM()), in four lines of code.
 */
static inline bool block_event_quick(struct block_shard *s, uint64_t base, int64_t bytes)
{
	uint64_t granule = base >> BLOCK_DEVICE_SHIFT;
	uint64_t freed = (uint64_t)(bytes >> 63); /* all ones: it is */
	/* Whole: of no window, as what is dead. */
	uint64_t key = (granule << BLOCK_GRANULE_SHIFT) + BLOCK_DEAD + freed;
	struct block *b;
	bool hit;

	_Static_assert(BLOCK_DEAD - 1 == BLOCK_LIVE, "the key of either kind");
	/* Relaxed: who watches was not told of what others allocate at the same time. Who does not
	 * get the lock at once waits for it elsewhere. */
	if (SELDOM(!load_relaxed(&s->quiet)) || SELDOM((base & BLOCK_DEVICE_MASK) != 0) ||
	    SELDOM(!spin_try(&s->lock)))
		return false;
	b = block_map_seek(&s->map, granule, key);
	hit = !SELDOM(b == NULL) && block_turn(s, b, key, freed, (uint64_t)bytes);
	spin_unlock(&s->lock);
	return hit;
}

/* @brief The same for any block that is handed out where none lives: a fifth of the events of a
 * decode step, as pieces of many sizes begin at the same places. */
bool block_enter(struct block_shard *s, uint64_t base, int64_t bytes);

/* @brief Somebody wants to know of each event, or does not any more: none is quick meanwhile.
 * Calls nest. */
void block_watch(bool on);

/* @brief The allocator handed out a block. @param captures this thread captures a stream. */
void block_opened(unsigned shard, uint64_t base, uint64_t size_bytes, bool captures,
		  uint32_t stack);
/*
 * @brief It got the block at @base back, and nobody has it again yet.
 * @return NULL, nearly always; or its object, for block_freed().
 */
struct range *block_closed(unsigned shard, uint64_t base);
/* @brief The rest of the free of a block that something refers to. Keeps holders marked; the
 * freed-while-referenced finding waits for block_tell_freed(). */
void block_freed(struct range *r, uint32_t stack);

/* @brief A capture window opens or closes. The caller serialises. */
void block_window(bool open);
bool block_window_is_open(void);

/*
 * @brief Tell the frees that waited, of memory that an exec holds still. A program that ends frees
 * its tensors, then its graphs: so a free is told only when graphs go on - one is launched that
 * refers to it, one is made, or somebody asks (a snapshot, a reload). Takes the holders lock.
 */
void block_tell_freed_slow(void);
extern _Atomic uint32_t block_freed_count;	/* that wait */
static inline void block_tell_freed(void)
{
	/* Relaxed: who frees in another thread at the same time is told later. */
	if (__builtin_expect(load_relaxed(&block_freed_count) != 0, 0))
		block_tell_freed_slow();
}

/* ---- for ledger.c and range.c ---- */

/* @brief The live block around @addr, made an object. @return NULL: there is none. */
struct range *block_refer(uint64_t addr);
/* @brief Is there a live block around @addr? */
bool block_covers(uint64_t addr);
/* @brief Lives there a block in [base, end) that was allocated by a thread that captured? */
bool block_born(uint64_t base, uint64_t end);
/* @brief Was the block @r allocated by a thread that captured, in the window that is open now?
 * Captures at the same time are told apart no further. @r is pinned. */
bool block_is_newborn(const struct range *r);
/* @brief [base, base+size_bytes) went back to the driver: whatever blocks live there are gone. */
void block_forget(uint64_t base, uint64_t size_bytes);
/* @brief Is the block's memory its graphs', so that only its segment counts? @r is pinned. */
bool block_pooled(const struct range *r);

/* mixed: segments with ordinary blocks in which captures allocate. */
struct block_counters { uint64_t live, bytes, allocations, frees, unknown_frees, overlaps, mixed; };
void block_read_counters(struct block_counters *out);

#endif
