/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot that is not what a snapshot says, and what is told about it. Private to snapshot.c and
 * change.c; the registry lock is held.
 */
#ifndef ARENA_CHANGE_H
#define ARENA_CHANGE_H

#include "arena/exec.h"
#include "arena/snapshot.h"

/* What is looked at for every slot. */
struct mark {
	struct slot *slot;
	uint64_t number;	/* of the binding */
	struct range *owner;	/* pinned; NULL: memory that nobody knows, or an object's handle */
	uint64_t generation;
	bool is_object;		/* what its ranges are bound to is in its detail */
	bool is_scratch;
};

/* The rest of what it was. */
struct detail {
	struct arena_spec spec;
	uint64_t base, object;
	struct range_mark *ranges;
	uint32_t ranges_count;
};

/* A slot that may not be what it was. */
struct change {
	const struct mark *m;
	const struct detail *d;
	const struct slot *slot;
	uint32_t first_query;	/* one for the slot, or one for each range of an object */
};

/* Where findings go. */
struct telling {
	struct slot_findings *out;
	bool failed;		/* no memory */
};

static inline bool mark_lives(const struct mark *m)
{
	/* Acquire pairs with the stores of state in range.c; the pin keeps the generation. */
	return m->owner == NULL || load_acquire(&m->owner->state) == RANGE_LIVE;
}

static inline bool range_mark_alive(const struct range_mark *r)
{
	struct range_view v;

	/* Unmapped for a while is not gone (rule 3). */
	return ledger_lives(r->base, r->generation) ||
	       (ledger_find_reserved(r->base, &v) && v.generation == r->generation);
}

static inline bool change_moved(const struct change *c)
{
	return c->slot->base != c->d->base;
}

/* Is it other memory, wherever it is? */
static inline bool change_other(const struct change *c)
{
	return c->slot->generation != c->m->generation;
}

/* @param answers to the questions about @c, from its first one on. */
void change_tell(struct telling *t, const struct change *c, const struct exec_query *answers);

#endif
