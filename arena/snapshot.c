/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots and their comparison with what slots are bound to now.
 *
 * The comparison has three steps. A mark says in 40 bytes whether a slot is still bound as it was
 * and whether the memory is still that memory; where it is not, a question is put down; all are
 * answered in one pass over the execs; then each change is told (change.c).
 *
 * Marks lie in the order of the registry, those of an arena together, and each pins the range that
 * its slot lay in.
 *
 * Threads: any. Takes the registry lock, and the holders lock inside it.
 */
#include "arena/snapshot.h"

#include "arena/binding.h"
#include "arena/change.h"
#include "arena/slab.h"

struct span {
	const struct arena *arena;
	uint32_t first, count;
};

struct arena_snapshot {
	struct mark *marks;
	struct detail *details;
	struct span *spans;
	uint32_t count, cap, details_cap, spans_count, spans_cap;
};

static struct slab snapshots = SLAB_INIT(struct arena_snapshot);

/* ---- take ---- */

static int no_memory(const char *what)
{
	return arena_fail(ARENA_E_NOMEM, "no host memory for %s", what);
}

static int ranges_copy(const struct slot *slot, struct detail *d)
{
	size_t size_bytes = slot->ranges_count * sizeof(*d->ranges);

	if (slot->ranges_count == 0)
		return 0;
	d->ranges = pages_get(size_bytes);
	if (d->ranges == NULL)
		return -1;
	for (uint32_t i = 0; i < slot->ranges_count; i++)
		d->ranges[i] = slot->ranges[i];
	d->ranges_count = slot->ranges_count;
	return 0;
}

/* There is room for one more mark. Registry and holders lock held. */
static int mark_slot(struct arena_snapshot *s, const struct slot *slot)
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
	if (m->is_object && ranges_copy(slot, d))
		return -1;
	/* The binding pins it, dead or alive. */
	if (!m->is_object && binding_extent(slot, slot->binding, &x) &&
	    ledger_pin(&(struct range_view){ .owner = x.owner, .generation = x.generation }))
		m->owner = x.owner;
	s->count++;
	return 0;
}

static int mark_arena(struct arena_snapshot *s, const struct arena *a)
{
	int err = 0;

	s->spans[s->spans_count++] = (struct span){ a, s->count, a->slots_count };
	ledger_holders_lock();
	for (const struct slot *slot = a->slots; slot != NULL && !err; slot = slot->next)
		err = mark_slot(s, slot);
	ledger_holders_unlock();
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
	       pages_grow(&s->spans, &s->spans_cap, arenas_count, sizeof(*s->spans));
}

int snapshot_take(struct arena_snapshot **out)
{
	struct arena_snapshot *s = slab_get(&snapshots);
	int err;

	if (s == NULL)
		return no_memory("a snapshot");
	*s = (struct arena_snapshot){ .marks = NULL };
	registry_lock();
	err = reserve(s);
	for (const struct arena *a = registry_first(); a != NULL && !err; a = a->next)
		err = mark_arena(s, a);
	registry_unlock();
	if (err) {
		snapshot_free(s);
		return no_memory("a snapshot");
	}
	*out = s;
	return ARENA_OK;
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

static int ask_span(struct work *w, const struct span *span)
{
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

	registry_lock();
	t.failed = answer(&w, a) != 0;
	for (uint32_t i = 0; i < w.changes_count && !t.failed; i++)
		change_tell(&t, &w.changes[i], &w.queries[w.changes[i].first_query]);
	registry_unlock();
	pages_put(w.changes, w.changes_cap * sizeof(*w.changes));
	pages_put(w.queries, w.queries_cap * sizeof(*w.queries));
	return t.failed ? no_memory("findings") : ARENA_OK;
}
