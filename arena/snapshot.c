/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots and their comparison with what slots are bound to now.
 *
 * The comparison has three steps. A mark says in 40 bytes whether a slot is still bound as it was
 * and whether the memory is still that memory; where it is not, a question is put down; all are
 * answered in one pass over the execs; then each change is told (change.c).
 *
 * Marks lie in the order of the registry, those of an arena together, and each pins the range that
 * its slot lay in. Of an arena in which nothing was bound since, only the memory is looked at, once
 * for neighbours that share it.
 *
 * Threads: any. Takes the registry lock, and the holders lock inside it.
 */
#include "arena/snapshot.h"

#include "arena/binding.h"
#include "arena/block.h"
#include "arena/change.h"
#include "arena/slab.h"
#include "arena/tag.h"

/* The marks of an arena. */
struct span {
	const struct arena *arena;
	uint64_t changes; /* of the arena, when they were made */
	uint32_t first, count;
	uint32_t first_watch, watches;
	bool has_objects; /* whose ranges are looked at one by one */
	bool has_older;	  /* marks of an older snapshot */
};

struct arena_snapshot {
	struct mark *marks;
	struct detail *details;
	struct span *spans;
	uint32_t *watch; /* marks, the first of each run of neighbours in one range */
	uint32_t count, cap, details_cap, spans_count, spans_cap, watches, watch_cap;
	uint64_t misfits; /* of tags, that are older */
};

static struct slab snapshots = SLAB_INIT(struct arena_snapshot);

/* ---- take ---- */

static int no_memory(const char *what)
{
	return arena_fail(ARENA_E_NOMEM, "no host memory for %s", what);
}

static int ranges_copy(const struct range_mark *from, uint32_t count, struct detail *d)
{
	d->ranges = NULL;
	d->ranges_count = 0;
	if (count == 0)
		return 0;
	d->ranges = pages_get(count * sizeof(*d->ranges));
	if (d->ranges == NULL)
		return -1;
	for (uint32_t i = 0; i < count; i++)
		d->ranges[i] = from[i];
	d->ranges_count = count;
	return 0;
}

/* There is room for one more mark. Registry and holders lock held. */
static int mark_slot(struct arena_snapshot *s, struct slot *slot)
{
	struct mark *m = &s->marks[s->count];
	struct detail *d = &s->details[s->count];
	struct exec_extent x;

	*m = (struct mark){ .slot = slot,
			    .number = slot->binding,
			    .generation = slot->generation,
			    .is_object = slot->kind == ARENA_OBJECT,
			    .is_scratch = slot_is_scratch(slot) };
	*d = (struct detail){ .spec = slot->spec, .base = slot->base, .object = slot->object };
	if (m->is_object && ranges_copy(slot->ranges, slot->ranges_count, d))
		return -1;
	/* The binding pins it, dead or alive. */
	if (!m->is_object && binding_extent(slot, slot->binding, &x) &&
	    ledger_pin(&(struct range_view){ .owner = x.owner, .generation = x.generation }))
		m->owner = x.owner;
	s->count++;
	return 0;
}

/* The slot was found wrong: what graphs were captured with is what it was in @older. */
static int mark_kept(struct arena_snapshot *s, const struct arena_snapshot *older, uint32_t i)
{
	struct mark *m = &s->marks[s->count];
	struct detail *d = &s->details[s->count];

	*m = older->marks[i];
	*d = older->details[i];
	if (ranges_copy(older->details[i].ranges, older->details[i].ranges_count, d))
		return -1;
	if (m->owner != NULL &&
	    !ledger_pin(&(struct range_view){ .owner = m->owner, .generation = m->generation }))
		m->owner = NULL;
	s->count++;
	return 0;
}

static void watch_marks(struct arena_snapshot *s, struct span *span)
{
	const struct range *before = NULL;

	for (uint32_t i = span->first; i < s->count; i++) {
		const struct mark *m = &s->marks[i];

		span->has_objects |= m->is_object;
		if (m->owner != NULL && m->owner != before)
			s->watch[s->watches++] = i;
		before = m->owner;
	}
	span->watches = s->watches - span->first_watch;
}

static bool is_kept(const struct slot *slot, const struct arena_snapshot *older)
{
	uint32_t i = slot->kept - 1;

	return older != NULL && i < older->count && older->marks[i].slot == slot;
}

static int mark_arena(struct arena_snapshot *s, const struct arena *a,
		      const struct arena_snapshot *older)
{
	struct span *span = &s->spans[s->spans_count++];
	int err = 0;

	*span = (struct span){
		.arena = a, .first = s->count, .count = a->slots_count, .first_watch = s->watches
	};
	ledger_holders_lock();
	span->changes = a->changes;
	for (struct slot *slot = a->slots; slot != NULL && !err; slot = slot->next) {
		if (is_kept(slot, older)) {
			span->has_older = true;
			err = mark_kept(s, older, slot->kept - 1);
		} else {
			err = mark_slot(s, slot);
		}
	}
	ledger_holders_unlock();
	watch_marks(s, span);
	return err;
}

/* Room for all that is registered now. Registry lock held. */
static int reserve(struct arena_snapshot *s)
{
	uint32_t slots_count = 0, arenas_count = 0;

	for (const struct arena *a = registry_first(); a != NULL; a = a->next) {
		slots_count += a->slots_count;
		arenas_count++;
	}
	return pages_grow(&s->marks, &s->cap, slots_count, sizeof(*s->marks)) ||
	       pages_grow(&s->details, &s->details_cap, slots_count, sizeof(*s->details)) ||
	       pages_grow(&s->watch, &s->watch_cap, slots_count, sizeof(*s->watch)) ||
	       pages_grow(&s->spans, &s->spans_cap, arenas_count, sizeof(*s->spans));
}

int snapshot_take(const struct arena_snapshot *older, struct arena_snapshot **out)
{
	struct arena_snapshot *s = slab_get(&snapshots);
	int err;

	if (s == NULL)
		return no_memory("a snapshot");
	*s = (struct arena_snapshot){ .marks = NULL };
	block_tell_freed();
	registry_lock();
	err = reserve(s);
	for (const struct arena *a = registry_first(); a != NULL && !err; a = a->next)
		err = mark_arena(s, a, older);
	s->misfits = tag_snapshot();
	registry_unlock();
	if (err) {
		snapshot_free(s);
		return no_memory("a snapshot");
	}
	*out = s;
	return ARENA_OK;
}

static bool is_wrong(const struct slot_finding *f)
{
	return f->slot != NULL && f->severity == SEVERITY_ERROR &&
	       (f->kind == FINDING_MOVED || f->kind == FINDING_MISSING ||
		f->kind == FINDING_REPLACED || f->kind == FINDING_RESPECIFIED);
}

bool snapshot_keep(const struct arena_snapshot *s, const struct slot_findings *found)
{
	bool any = false;

	registry_lock();
	for (uint32_t i = 0; i < s->count; i++)
		s->marks[i].slot->kept = 0;
	/* A finding only reads its slot; the registry lock allows us more. */
	for (uint32_t i = 0; i < found->count; i++)
		if (is_wrong(&found->list[i]))
			((struct slot *)found->list[i].slot)->kept = UINT32_MAX;
	for (uint32_t i = 0; i < s->count; i++) {
		struct slot *slot = s->marks[i].slot;

		any |= slot->kept != 0;
		slot->kept = slot->kept != 0 ? i + 1 : 0;
	}
	registry_unlock();
	return any;
}

uint64_t snapshot_misfits(const struct arena_snapshot *s)
{
	return s->misfits;
}

void snapshot_free(struct arena_snapshot *s)
{
	if (s == NULL)
		return;
	for (uint32_t i = 0; i < s->count; i++) {
		if (s->marks[i].owner != NULL)
			ledger_unpin(s->marks[i].owner);
		pages_put(s->details[i].ranges,
			  s->details[i].ranges_count * sizeof(*s->details[i].ranges));
	}
	pages_put(s->marks, s->cap * sizeof(*s->marks));
	pages_put(s->details, s->details_cap * sizeof(*s->details));
	pages_put(s->watch, s->watch_cap * sizeof(*s->watch));
	pages_put(s->spans, s->spans_cap * sizeof(*s->spans));
	slab_put(&snapshots, s);
}

/* ---- compare ---- */

/* ---- questions ---- */

/* One comparison. */
struct work {
	const struct arena_snapshot *s;
	struct change *changes;
	struct exec_query *queries;
	uint32_t changes_count, changes_cap, queries_count, queries_cap;
};

/* Who refers to what the slot was bound to, and who else to what it is bound to now? */
static void ask_plain(const struct change *c, struct exec_query *q)
{
	if (change_moved(c) || change_other(c))
		binding_extent_at(c->slot, c->d->base, c->m->generation, &q->old);
	else
		binding_extent(c->slot, c->m->number, &q->old);
	q->old.slot = c->slot;
	q->old.base = c->d->base;
	q->old.again = &c->d->spec;
	/* What was captured before the slot was bound reads its memory all the same (guard.c). */
	q->old.since = 0;
	if (c->slot->binding != c->m->number)
		binding_extent(c->slot, c->slot->binding, &q->now);
}

/* The same of range @i of an object; its successor is the range that was allocated in its turn. */
static void ask_range(const struct change *c, uint32_t i, struct exec_query *q)
{
	const struct range_mark *r = &c->d->ranges[i], *n = &c->slot->ranges[i];

	binding_extent_at(c->slot, r->base, r->generation, &q->old);
	if (c->slot->base != 0 && i < c->slot->ranges_count && n->generation != r->generation)
		binding_extent_at(c->slot, n->base, n->generation, &q->now);
}

/* Registry and holders lock held. */
static int ask(struct work *w, uint32_t i)
{
	const struct mark *m = &w->s->marks[i];
	const struct detail *d = &w->s->details[i];
	struct change c = { m, d, m->slot, w->queries_count };
	uint32_t more = m->is_object ? d->ranges_count : 1;

	if (pages_grow(&w->changes, &w->changes_cap, w->changes_count + 1, sizeof(c)) ||
	    pages_grow(&w->queries, &w->queries_cap, w->queries_count + more, sizeof(*w->queries)))
		return -1;
	for (uint32_t k = 0; k < more; k++) {
		struct exec_query *q = &w->queries[w->queries_count + k];

		*q = (struct exec_query){ .old_execs = 0 };
		if (m->is_object)
			ask_range(&c, k, q);
		else
			ask_plain(&c, q);
	}
	w->queries_count += more;
	w->changes[w->changes_count++] = c;
	return 0;
}

/* ---- verify ---- */

/* Is an object that was not made again still whole? */
static bool is_whole(const struct detail *d)
{
	for (uint32_t i = 0; i < d->ranges_count; i++)
		if (!range_mark_alive(&d->ranges[i]))
			return false;
	return true;
}

/* Nothing was bound since, and the memory is there. Holders lock held. */
static bool is_settled(const struct arena_snapshot *s, const struct span *span)
{
	const uint32_t *watch = s->watch + span->first_watch;

	if (span->has_objects || span->has_older || span->arena->changes != span->changes)
		return false;
	for (uint32_t i = 0; i < span->watches; i++)
		if (!mark_lives(&s->marks[watch[i]]))
			return false;
	return true;
}

static int ask_span(struct work *w, const struct span *span)
{
	if (is_settled(w->s, span))
		return 0;
	for (uint32_t i = span->first; i < span->first + span->count; i++) {
		const struct mark *m = &w->s->marks[i];

		if (m->slot->binding == m->number && mark_lives(m) &&
		    (!m->is_object || is_whole(&w->s->details[i])))
			continue;
		if (ask(w, i))
			return -1;
	}
	return 0;
}

/* Registry lock held. */
static int answer(struct work *w, const struct arena *a)
{
	const struct arena_snapshot *s = w->s;
	int err = 0;

	ledger_holders_lock();
	for (uint32_t i = 0; i < s->spans_count && !err; i++)
		if (a == NULL || s->spans[i].arena == a)
			err = ask_span(w, &s->spans[i]);
	if (!err && w->queries_count != 0)
		err = exec_answer(w->queries, w->queries_count);
	ledger_holders_unlock();
	return err;
}

int snapshot_verify(const struct arena_snapshot *s, const struct arena *a,
		    struct slot_findings *out)
{
	struct telling t = { .out = out };
	struct work w = { .s = s };

	block_tell_freed();
	registry_lock();
	t.failed = answer(&w, a) != 0;
	for (uint32_t i = 0; i < w.changes_count && !t.failed; i++)
		change_tell(&t, &w.changes[i], &w.queries[w.changes[i].first_query]);
	registry_unlock();
	pages_put(w.changes, w.changes_cap * sizeof(*w.changes));
	pages_put(w.queries, w.queries_cap * sizeof(*w.queries));
	return t.failed ? no_memory("findings") : ARENA_OK;
}
