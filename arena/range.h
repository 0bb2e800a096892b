/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of the ledger: made, pinned, listed, closed. Private to ledger.c, vmm.c, range.c.
 *
 *   range_new -> range_enter (live) -> range_claim -> range_leave (closing) -> range_gone (dead)
 *                                                  \-> range_reopen (live again)
 *
 * A range has a pin of its own until it is gone. The one thread that claimed a range may use it
 * without a further pin until it calls range_gone() or range_reopen().
 */
#ifndef ARENA_RANGE_H
#define ARENA_RANGE_H

#include "index.h"
#include "infer.h"
#include "ledger.h"

/* Set by ledger_init(), constant after it. */
extern struct index *range_live;	/* all kinds but reservations */
extern struct index *range_reserved;	/* reservations */
extern struct index *range_blocks;	/* blocks that something refers to (block.h) */

/* Rare events, see struct ledger_counters. */
struct range_counts { counter_t overlaps, dropped, refused, unknown, invented; };
extern struct range_counts range_counts;

/* @param owner a pinned reservation, whose pin the new range takes over; NULL: itself.
 * @return NULL when there is no memory (counted). */
struct range *range_new(const struct range_desc *d, struct range *owner);
/* @brief Put a new range into its index and list. @return false: no memory (counted), gone. */
bool range_enter(struct range *r);

/* @brief @r was opened by this thread: tell who wants to know (ledger_opened). @return @r. */
static inline struct range *range_told(struct range *r)
{
	if (__builtin_expect(ledger_opened != NULL, 0))
		ledger_opened(r);
	infer_born((enum range_kind)r->kind, r->base, r->size_bytes,
		   load_relaxed(&r->stack_open));
	return r;
}

bool range_pin(struct range *r, uint64_t generation);
void range_unpin(struct range *r);

/* @brief The same as range_enter() for the object of a block, which is in no list; it ends in
 * block.c. @return false: no memory, @r is gone. */
bool range_enter_block(struct range *r);

/* @brief live -> closing. @return false when somebody else did. */
bool range_claim(struct range *r);
/* @brief Claim up to @max ranges of @kind with this context, or this scope, where not 0. */
unsigned range_claim_some(enum range_kind kind, uint64_t context, uint64_t scope,
			  struct range **out, unsigned max);
/* @brief Take a claimed range out of its index. */
void range_leave(struct range *r, uint32_t stack);
void range_reopen(struct range *r);
/* @brief Dead -> live: @r was kept by a pin, which is its own again. */
void range_revive(struct range *r);
/* @brief Closing -> dead; its holders are marked. @param tell emit freed-while-referenced. */
void range_gone(struct range *r, bool tell);

/*
 * @brief Who owns what is mapped at @addr? A mapping of the reservation @owner counts until the
 * driver has unmapped it. Slow where the index shows nothing.
 * @return NULL: nothing is mapped there.
 */
struct range *range_mapping(struct range *owner, uint64_t addr);

/* @brief Mark the execs that hold @owner, or a block in it, if any may. */
bool range_mark_holders(struct range *owner);

/*
 * @brief A consistent copy of the range at or below @addr that is in @state.
 * @return its own generation, 0: none.
 */
uint64_t range_look(const struct index *ix, enum range_state state, uint64_t addr,
		    struct range_view *v);
/*
 * @brief The same of the live range with the greatest base that meets [base, *last]; *last moves
 * below it, so that a loop goes down through all of them. One that another thread is just opening
 * or closing is passed over.
 */
uint64_t range_below(const struct index *ix, uint64_t base, uint64_t *last, struct range_view *v);
static inline bool range_view_has(const struct range_view *v, uint64_t addr)
{
	return addr - v->base < v->size_bytes;
}

/* @brief Close the live ranges of @ix (of @owner, if not NULL) in [base, base+size) whose free
 * was not seen. */
void range_retire(struct index *ix, uint64_t base, uint64_t size_bytes,
		  const struct range *owner);

struct device_span;
/* @brief Where the ranges of @kind are, in no order. @return how many; at most @max are written. */
uint32_t range_spans(enum range_kind kind, struct device_span *out, uint32_t max);

/* @brief Set content_undefined on all live ranges of @kind and @scope, and have their holders
 * judged. Holders lock held. */
void range_undefine_some(enum range_kind kind, uint64_t scope);
void range_undefine(struct range *r);
void range_define(struct range *r);

/* vmm.c: what of a reservation was mapped before. */
void vmm_note_unmapped(struct range *mapped);
void vmm_forget(struct range *reservation);

#endif
