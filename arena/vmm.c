/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory: mappings inside reservations (ledger.h), and what of a reservation was mapped
 * before, so that memory mapped again under an old generation is known to have no content yet.
 *
 * A mapping pins its reservation. Refs of graphs hang on the reservation: its holders are marked
 * when any part of it is unmapped, and judged by what is mapped at their addresses.
 *
 * Threads: any function from any thread.
 */
#include <errno.h>

#include "arena/event.h"
#include "arena/exec.h"
#include "arena/range.h"
#include "arena/slab.h"

#define SPANS 15

struct span {
	uint64_t start, end;
};

/* Spans that do not touch, in no order. When they are too many, two become one with their gap:
 * an advisory too much, never one too few. */
struct unmapped {
	uint64_t count;
	struct span spans[SPANS];
};

static struct slab histories = SLAB_INIT(struct unmapped);
static struct spinlock history_lock = SPINLOCK_INIT; /* guards all histories */

static bool touch(const struct span *a, const struct span *b)
{
	return a->start <= b->end && b->start <= a->end;
}

static struct span hull(const struct span *a, const struct span *b)
{
	return (struct span){ .start = a->start < b->start ? a->start : b->start,
			      .end = a->end > b->end ? a->end : b->end };
}

static uint64_t gap(const struct span *a, const struct span *b)
{
	return a->start > b->end ? a->start - b->end : b->start - a->end;
}

static void span_add(struct unmapped *u, struct span s)
{
	uint32_t kept = 0, nearest = 0;

	for (uint32_t i = 0; i < u->count; i++) {
		if (touch(&u->spans[i], &s))
			s = hull(&u->spans[i], &s);
		else
			u->spans[kept++] = u->spans[i];
	}
	if (kept == SPANS) {
		for (uint32_t i = 1; i < kept; i++)
			if (gap(&u->spans[i], &s) < gap(&u->spans[nearest], &s))
				nearest = i;
		s = hull(&u->spans[nearest], &s);
		u->spans[nearest] = u->spans[--kept];
	}
	u->spans[kept++] = s;
	u->count = kept;
}

void vmm_note_unmapped(struct range *mapped)
{
	struct range *reservation = mapped->owner;

	spin_lock(&history_lock);
	if (reservation->unmapped == NULL) {
		reservation->unmapped = slab_get(&histories);
		if (reservation->unmapped != NULL)
			reservation->unmapped->count = 0;
	}
	if (reservation->unmapped != NULL)
		span_add(reservation->unmapped,
			 (struct span){ mapped->base, mapped->base + mapped->size_bytes });
	spin_unlock(&history_lock);
}

void vmm_forget(struct range *reservation)
{
	if (reservation->unmapped != NULL)
		slab_put(&histories, reservation->unmapped);
	reservation->unmapped = NULL;
}

static bool was_mapped(const struct range *reservation, uint64_t base, uint64_t size_bytes)
{
	const struct unmapped *u;
	bool was = false;

	spin_lock(&history_lock);
	u = reservation->unmapped;
	for (uint32_t i = 0; u != NULL && i < u->count; i++)
		was |= u->spans[i].start < base + size_bytes && base < u->spans[i].end;
	spin_unlock(&history_lock);
	return was;
}

/* The reservation around @d->base, pinned; made up when none is known. */
static struct range *reservation_of(const struct range_desc *d)
{
	struct range_desc made_up = *d;
	struct range_view v;
	uint64_t generation = range_look(range_reserved, RANGE_LIVE, d->base, &v);
	struct range *r;

	if (generation != 0 && range_view_has(&v, d->base) && range_pin(v.range, generation))
		return v.range;
	made_up.kind = RANGE_RESERVED;
	made_up.scope = 0;
	r = ledger_open(&made_up);
	if (r == NULL)
		return NULL;
	counter_bump(&range_counts.invented);
	return range_pin(r, r->generation) ? r : NULL;
}

struct range *ledger_map(const struct range_desc *d)
{
	struct range *owner, *r;

	if (d->size_bytes == 0)
		return NULL;
	owner = reservation_of(d);
	if (owner == NULL)
		return NULL;
	range_retire(range_live, d->base, d->size_bytes, NULL);
	r = range_new(d, owner);
	if (r == NULL) {
		range_unpin(owner);
		return NULL;
	}
	if (was_mapped(owner, d->base, d->size_bytes))
		range_undefine(r);
	return range_enter(r) ? range_told(r) : NULL;
}

/* Mark the holders of the reservations that the mappings of @b belong to. Do any have some? */
static bool mark_owners(const struct unmap_batch *b)
{
	const struct range *before = NULL;
	bool held = false;

	for (uint32_t i = 0; i < b->count; i++) {
		struct range *owner = b->ranges[i]->owner;

		if (owner != before)
			held |= range_mark_holders(owner);
		before = owner;
	}
	return held;
}

/* Claim the mapping @v for @b. */
static void batch_add(struct unmap_batch *b, const struct range_view *v, uint64_t generation,
		      uint32_t stack)
{
	if (pages_grow(&b->ranges, &b->cap, b->count + 1, sizeof(*b->ranges)) != 0) {
		counter_bump(&range_counts.dropped);
		return;
	}
	if (!range_pin(v->range, generation))
		return;
	if (range_claim(v->range)) {
		range_leave(v->range, stack);
		b->ranges[b->count++] = v->range;
	}
	range_unpin(v->range);
}

void ledger_unmap_begin(uint64_t base, uint64_t size_bytes, uint32_t stack, struct unmap_batch *b)
{
	uint64_t last = base + size_bytes - 1, generation;
	struct range_view v;

	if (size_bytes == 0)
		return;
	while ((generation = range_below(range_live, base, &last, &v)) != 0)
		if (v.kind == RANGE_MAPPED)
			batch_add(b, &v, generation, stack);
	if (mark_owners(b))
		guard_unmapped(b->ranges, b->count, stack);
}
