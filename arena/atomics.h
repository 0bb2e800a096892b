/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Atomic helpers whose names carry the memory order; the only user of stdatomic.h.
 *
 * They are macros over _Atomic objects, so that one set serves every width. Each use says in a
 * comment what it pairs with, unless it is relaxed and nothing depends on the order.
 */
#ifndef ARENA_ATOMICS_H
#define ARENA_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define load_relaxed(p)		atomic_load_explicit((p), memory_order_relaxed)
#define load_acquire(p)		atomic_load_explicit((p), memory_order_acquire)
#define store_relaxed(p, v)	atomic_store_explicit((p), (v), memory_order_relaxed)
#define store_release(p, v)	atomic_store_explicit((p), (v), memory_order_release)
#define add_relaxed(p, v)	atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define add_acq_rel(p, v)	atomic_fetch_add_explicit((p), (v), memory_order_acq_rel)
#define sub_acq_rel(p, v)	atomic_fetch_sub_explicit((p), (v), memory_order_acq_rel)
#define or_relaxed(p, v)	atomic_fetch_or_explicit((p), (v), memory_order_relaxed)
#define or_release(p, v)	atomic_fetch_or_explicit((p), (v), memory_order_release)
#define and_release(p, v)	atomic_fetch_and_explicit((p), (v), memory_order_release)
#define swap_acq_rel(p, v)	atomic_exchange_explicit((p), (v), memory_order_acq_rel)
/* Strong compare and swap: @expected is a pointer and is overwritten on failure. */
#define cas_acq_rel(p, expected, v)                                                           \
	atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_acq_rel,   \
						memory_order_acquire)
/* TSan does not model fences: what is ordered by one must be atomic on both sides, as it is. */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif
/* Full fence: orders a store before it against a load after it (Dekker pattern). */
#define fence_seq_cst()		atomic_thread_fence(memory_order_seq_cst)
/* Orders nothing in the processor; its other half is membarrier(2). */
#define fence_compiler()	atomic_signal_fence(memory_order_seq_cst)
#define fence_acquire()		atomic_thread_fence(memory_order_acquire)
#define fence_release()		atomic_thread_fence(memory_order_release)

/* A word that the quick paths read - launches, block events, getenv() - and hardly anybody writes.
 * They share a line: the program has pushed us out of the caches, and each line that is missing
 * costs as much as the work itself. */
#define QUICK_WORD		__attribute__((section("quick_words")))

/* What they run lies together, too, each from the begin of a line. */
#define QUICK_CODE __attribute__((hot, aligned(64)))

/* What seldom is true. A quick path goes straight on: by the time of the next call nobody remembers
 * where it branched, and each branch that is taken costs as much as a line. */
#define SELDOM(x) __builtin_expect((x), 0)

#if defined(__has_feature)
#define HAS_CLANG_TSAN __has_feature(thread_sanitizer)
#else
#define HAS_CLANG_TSAN 0
#endif

/* load_acquire() where nothing else in memory is near, or only a call that the compiler cannot look
 * into. It moves nothing across an atomic load: parameters on the stack, which a tail jump leaves
 * where they are, are taken from there and put back. x86 acquires with each load. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !HAS_CLANG_TSAN
#define load_folded(p) (*(const __typeof__(load_acquire(p)) *)(p))
#else
#define load_folded(p) load_acquire(p)
#endif

/* A counter that many threads bump and nobody orders anything by. */
typedef _Atomic uint64_t counter_t;
#define counter_bump(c)		((void)add_relaxed((c), 1))

/* A spin lock for sections of a few instructions that never call out. */
struct spinlock { atomic_flag flag; };
#define SPINLOCK_INIT	{ ATOMIC_FLAG_INIT }

static inline void spin_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* Sleeping lets a holder run that was preempted, even under a real-time priority. */
#define SPIN_LIMIT	1000

static inline void spin_lock(struct spinlock *l)
{
	unsigned spins = 0;

	/* Pairs with the clear in spin_unlock(). */
	while (atomic_flag_test_and_set_explicit(&l->flag, memory_order_acquire)) {
		if (++spins % SPIN_LIMIT != 0)
			spin_pause();
		else
			nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	}
}

/* @return false: somebody else has it. */
static inline bool spin_try(struct spinlock *l)
{
	/* Pairs with the clear in spin_unlock(). */
	return !atomic_flag_test_and_set_explicit(&l->flag, memory_order_acquire);
}

static inline void spin_unlock(struct spinlock *l)
{
	atomic_flag_clear_explicit(&l->flag, memory_order_release);
}

#endif
