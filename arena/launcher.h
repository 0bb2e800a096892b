/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which launch each thread is in the middle of: from guard_launch() to guard_launched() (exec.h).
 * A publication (order.h) marks execs and then waits for the launches that did not see the mark.
 *
 * Dekker's pattern, with all of its cost on the publisher's side: a launch stores its exec and
 * loads the mark, in program order; the publisher stores marks, makes every thread of the
 * process execute a fence (membarrier(2)), and loads the execs. One of them sees the other. Where
 * the kernel has no membarrier, launches execute a fence of their own.
 *
 * Threads: enter and leave by any, for itself; the rest by any.
 */
#ifndef ARENA_LAUNCHER_H
#define ARENA_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "atomics.h"

struct exec;

struct launcher {
	struct exec *_Atomic exec;	/* NULL: none */
	struct launcher *next;		/* all of them; constant once linked */
	bool needs_fence;		/* constant */
	_Atomic bool taken;		/* by a thread that lives */
	char pad[46];
};
_Static_assert(sizeof(struct launcher) == 64, "one cache line a thread");

/* What the quick paths ask of the thread: one object, so that it is one line, and one offset to
 * read. Initial-exec: a preloaded library's slots are there from the start, and __tls_get_addr
 * would be a call and one more DT_NEEDED. */
struct quick_thread {
	struct launcher *launcher; /* NULL: it did not launch yet */
	/* What it launched last, which may be gone by now. NULL: nothing, or launches need a
	 * fence. */
	struct exec *exec;
	uint64_t handle;
	unsigned inside; /* calls that the library itself is making into the driver */
} __attribute__((aligned(32)));
extern _Thread_local struct quick_thread quick_thread
	__attribute__((tls_model("initial-exec")));
#define launcher_self quick_thread.launcher
extern counter_t launcher_lost;		/* launches that were not noted: no memory */

/* @brief First launch of a thread. @return NULL: no memory. */
struct launcher *launcher_claim(void);

static inline void launcher_enter(struct exec *e)
{
	struct launcher *self = launcher_self;

	if (__builtin_expect(self == NULL, 0))
		self = launcher_claim();
	if (__builtin_expect(self == NULL, 0))
		return;
	/* Pairs with the load in launcher_wait(), see above. */
	store_relaxed(&self->exec, e);
	fence_compiler();
	if (__builtin_expect(self->needs_fence, 0))
		fence_seq_cst();
}

/* @brief @e is the mirror of @handle: the next time it is launched more quickly. */
static inline void launcher_know(struct exec *e, uint64_t handle)
{
	if (launcher_self == NULL || launcher_self->needs_fence)
		return;
	quick_thread.exec = e;
	quick_thread.handle = handle;
}

static inline void launcher_leave(void)
{
	/* Pairs with the load in launcher_wait(): the stamps of the launch are seen. */
	if (launcher_self != NULL)
		store_release(&launcher_self->exec, NULL);
}

/*
 * @brief After marks were set: wait for launches, by other threads, of execs whose mark has one of
 * @bits. No lock held.
 * @return false: one did not come back within @limit_ms.
 */
bool launcher_wait(uint32_t bits, unsigned limit_ms);
/* @brief In a forked child, where no other thread is left. */
void launcher_forget(void);

#endif
