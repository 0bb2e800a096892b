/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bindings: where a slot's storage is, and where it was. A graph keeps the bindings it was captured
 * under (design rule 1): a ref whose word lies in a binding that its slot has left since the
 * node was born is stale (slot-moved), as long as the slot is not scratch and has not come back.
 *
 * A slot that owns or watches one piece of memory has one binding at a time, [base, base + bytes of
 * its spec); an object slot has one for each of its ranges, and its base is the handle.
 *
 * Time is a counter that every change takes a number from; births are stamped with the newest.
 * Threads: changes under the registry lock; queries any thread, under the holders lock.
 */
#ifndef ARENA_BINDING_H
#define ARENA_BINDING_H

#include "arena/exec.h"
#include "arena/registry.h"

extern _Atomic uint32_t binding_clock;		/* newest number; births are stamped with it */
extern _Atomic uint32_t binding_born;		/* the clock at the newest birth */

/* @brief The clock for a birth that happens now. */
static inline uint32_t binding_birth(void)
{
	/* Relaxed: words that race with a change of bindings are the program's race. */
	uint32_t clock = load_relaxed(&binding_clock);

	if (load_relaxed(&binding_born) != clock)
		store_relaxed(&binding_born, clock);
	return clock;
}

/*
 * @brief Bind @s to [base, base + s->spec.bytes), or to its ranges if it is an object. The old
 * binding is retired; a retired one of the same slot, base, generation and spec is taken back
 * (ping-pong), or at least its number, if something was born meanwhile. Marks the execs that hold
 * memory the slot is or was bound to. Registry lock held; takes the holders lock. Without memory
 * the slot is bound but not watched, which is counted as dropped.
 */
void binding_set(struct slot *s, uint64_t base);
/* @brief The slot has no storage now; its last binding stays known (missing, not moved). */
void binding_clear(struct slot *s);

/* One binding that a word fell into. */
struct binding_view {
	struct slot *slot;
	uint64_t base, bytes, generation;	/* as it was bound */
	uint64_t number;			/* of the binding, never used twice */
	uint64_t now_base;			/* where the slot is now, 0: nowhere */
};
/* @brief Are there any bindings at all? One relaxed load: nothing else is asked without slots. */
bool binding_any(void);

/* A captured word as bindings see it. */
struct binding_ref {
	uint64_t addr, generation;
	uint32_t birth;
};
/*
 * @brief What the bindings make of a ref that the ledger finds as @health (STALE_REASON_COUNT:
 * sound). A slot that was left, whose extent has a hole, or whose layer a reload refused for its
 * values, makes a sound ref stale; memory that
 * came back at the same address, and that the same slot was bound to again, makes it sound.
 * Holders lock held.
 */
enum stale_reason binding_judge(const struct binding_ref *r, enum stale_reason health);
/* @brief Does a ref that lies in memory that @s is or was bound to mean @s, or does it mean another
 * slot that was bound there when it was captured? Holders lock held. */
bool binding_means(const struct slot *s, const struct binding_ref *r);
/* @brief The binding to tell with a ref that is stale for @reason. Holders lock held. */
bool binding_about(const struct binding_ref *r, enum stale_reason reason,
		   struct binding_view *out);

/*
 * @brief Which refs mean binding @number of @s; or any binding of it at @base under @generation?
 * It need not be known any more: then nothing refers to it, and @out has no owner. Holders lock
 * held. @return has it one?
 */
bool binding_extent(const struct slot *s, uint64_t number, struct exec_extent *out);
void binding_extent_at(const struct slot *s, uint64_t base, uint64_t generation,
		       struct exec_extent *out);
/*
 * @brief Tell what else @of->slot was at @of->base under the spec @of->again, before or after: refs
 * to memory of other generations there mean the same (rule 4). @of may have no owner.
 * @return 0, or what @tell returned instead. Holders lock held.
 */
int binding_each_again(const struct exec_extent *of,
		       int (*tell)(void *ctx, const struct exec_extent *x), void *ctx);

#endif
