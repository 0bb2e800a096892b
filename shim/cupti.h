/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUPTI, as the rest of the shim sees it: calls that frame what may matter to a window (window.h),
 * and what only CUPTI can tell. libarena_cupti.so is opened when the first window is.
 *
 * Any thread, but never inside host.event() of cupti/recorder.h. While no window is wanted, each
 * call here is one relaxed load. errno is kept.
 */
#ifndef SHIM_CUPTI_H
#define SHIM_CUPTI_H

#include "arena/atomics.h"
#include "arena/exec.h"
#include "arena/witness.h"
#include "cupti/recorder.h"
#include "shim/hooks.h"
#include "shim/window.h"

/* A window is wanted. Relaxed: whoever misses it misses the window, not more. */
extern _Atomic bool cupti_wanted;
/* Events that this thread was told since it began to make its newest exec. */
extern _Thread_local unsigned cupti_told __attribute__((tls_model("initial-exec")));
/* ARENA_CUPTI=alone. Constant once the shim is on. */
extern bool cupti_alone;

/* @brief Read the options. By the thread that starts the shim. */
void cupti_start(void);
/* @brief CUDA is initialised: a window that is always open opens now. */
void cupti_initialised(void);
/* @brief A forked child: nothing is attached, whatever the parent had open. */
void cupti_forget(void);

void cupti_begin_slow(void) __attribute__((cold));
void cupti_work_slow(void) __attribute__((cold));
/* @brief A template is about to be captured, created or cloned: a window may open. */
static inline void cupti_begin(void)
{
	if (__builtin_expect(load_relaxed(&cupti_wanted), 0))
		cupti_begin_slow();
}

/* @brief A template is worked on: a window that is open stays open. */
static inline void cupti_work(void)
{
	if (__builtin_expect(load_relaxed(&witness_on), 0))
		cupti_work_slow();
}

/* @brief Are births taken from CUPTI only, now? Without a window there is nobody else to ask. */
static inline bool cupti_is_alone(void)
{
	return __builtin_expect(cupti_alone, 0) && load_relaxed(&witness_on);
}

/* @brief First expression of a wrapper that works on templates, in place of record_on(); false
 * also when the birth of what it makes is taken from CUPTI. */
#define template_on(symbol)                   \
	({                                    \
		bool on_ = record_on(symbol); \
		if (on_)                      \
			cupti_work();         \
		on_ && !cupti_is_alone();     \
	})

/* @brief Something was met that interposition does not see: ARENA_CUPTI=auto wants a window. */
void cupti_needed(void);

/* @brief The program says that captures are to come (@begins), or that they are done: a window
 * opens now, and closes as after a capture. */
void cupti_phase(bool begins);

void cupti_launching_slow(CUgraphExec exec) __attribute__((cold, noinline));
/* @brief A graph is about to be launched, and not into a capture. */
static inline void cupti_launching(CUgraphExec exec)
{
	if (__builtin_expect(load_relaxed(&witness_on), 0))
		cupti_launching_slow(exec);
}

/* @brief The driver is about to make a graph for the application itself, or (!@on) did. */
static inline void cupti_expect_graph(bool on)
{
	/* Off in any case: the window may have closed meanwhile. */
	if (!on || load_relaxed(&witness_on))
		witness_expect_graph(on);
}

/* @brief The driver changed the parameters of @node, as the application asked: CUPTI tells nobody.
 */
static inline void cupti_changed(CUgraphNode node)
{
	if (__builtin_expect(load_relaxed(&witness_on), 0))
		witness_changed((uint64_t)node);
}

/* @brief An exec is about to be made, or (!@on) is made or was refused. */
static inline void cupti_instantiating(bool on)
{
	if (on)
		cupti_work();
	/* Without a window none is due. */
	cupti_told = !load_relaxed(&witness_on);
	/* Without a window, too: one may open before the driver tells. */
	if (on)
		witness_exec_begin(true);
	else
		witness_exec_end(true);
}

/* @brief What was walked of @graph, compared with what CUPTI told. @param exec 0: it is not made of
 * it just now. @param b may be NULL. */
void cupti_compare(CUgraphExec exec, CUgraph graph, const struct exec_builder *b);

/* @brief The @index-th body of conditional node @node, where nobody else could tell. 0: not told.
 */
uint64_t cupti_body(CUgraphNode node, uint32_t index);

/* ---- guests.c: other users of CUPTI ---- */

/* @brief @guest (GUEST_) is about to use CUPTI: our window is closed when this returns. */
void cupti_guest(unsigned guest);
void cupti_guest_left(unsigned guest);
/* @brief It finalised CUPTI, under our window too. */
void cupti_guest_finalised(void);

/* ---- for the report ---- */

struct cupti_facts {
	char library[RECORDER_TEXT_BYTES], other[RECORDER_TEXT_BYTES];
	uint32_t version;
	uint64_t windows, yielded, lost, busy, attach_ns, finalize_ns;
	uint64_t events[RECORDER_KIND_COUNT];
};
void cupti_read_facts(struct cupti_facts *out);

/* ---- cupti_event.c ---- */

extern counter_t cupti_events[RECORDER_KIND_COUNT];
/* @brief host.event() of cupti/recorder.h. */
void cupti_event(const struct recorder_event *e);

#endif
