/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is told about a slot that changed: kind, severity, old and new (design rules 1 and 4 to 7).
 *
 * Threads: any, under the registry lock.
 */
#include "arena/change.h"

#include "arena/intern.h"

static struct slot_finding finding_of(const struct change *c, enum finding_kind kind)
{
	/* Pinned by the snapshot: it tells who allocated it when it is dead, too. */
	const struct range *owner = c->m->owner;

	return (struct slot_finding){
		.old_stack = owner ? load_relaxed(&owner->stack_open) : 0,
		.old_closed = owner ? load_relaxed(&owner->stack_close) : 0,
		.kind = kind,
		.slot = c->slot,
		.path = c->slot->arena->path,
		.name = c->slot->name,
		.old_base = c->d->base,
		.new_base = c->slot->base,
		.old_generation = c->m->generation,
		.new_generation = c->slot->generation,
		.old_spec = c->d->spec,
		.new_spec = c->slot->spec,
	};
}

/* Execs that refer to the old memory, and others that refer to the new. */
struct holds {
	uint32_t old, now;
};

/* Who allocated what lives there, if it is still that generation. */
static uint32_t stack_of(uint64_t base, uint64_t generation)
{
	struct range_view v;

	if (!base || !ledger_find_inner(base, &v) || v.generation != generation)
		return 0;
	return ledger_stack(&v);
}

static void tell(struct telling *t, struct slot_finding *f, enum severity severity,
		 const struct holds *holds, const char *detail)
{
	f->severity = severity;
	f->execs_count = holds->old;
	f->detail = intern(detail);
	if (f->old_stack == 0)
		f->old_stack = stack_of(f->old_base, f->old_generation);
	f->new_stack = stack_of(f->new_base, f->new_generation);
	t->failed |= slot_findings_add(t->out, f) != 0;
}

/* Design rules 1 and 7: only a graph makes it an error, unless one was captured since. */
static enum severity weigh(const struct holds *holds, enum severity held, enum severity otherwise)
{
	if (holds->old == 0)
		return otherwise;
	return holds->now != 0 ? SEVERITY_INFO : held;
}

static void tell_missing(struct telling *t, const struct change *c, const struct holds *holds)
{
	struct slot_finding f = finding_of(c, FINDING_MISSING);
	bool gone = !mark_lives(c->m), owned = c->slot->kind == ARENA_VALUE;

	f.new_base = f.new_generation = 0;
	tell(t, &f,
	     gone ? weigh(holds, SEVERITY_ERROR, owned ? SEVERITY_ERROR : SEVERITY_INFO)
		  : weigh(holds, SEVERITY_WARN, SEVERITY_INFO),
	     holds, gone ? "its memory is gone" : "its memory lives, but it is bound to nothing");
}

/* The slot was bound again to its old address, which is other memory now (rule 4). */
static void tell_rebound(struct telling *t, const struct change *c, const struct holds *holds)
{
	struct slot_finding f = finding_of(c, FINDING_REPLACED);
	bool same = spec_equal(&c->d->spec, &c->slot->spec);

	tell(t, &f, weigh(holds, same ? SEVERITY_WARN : SEVERITY_ERROR, SEVERITY_INFO), holds,
	     same ? "bound again under the same spec" : "bound again under another spec");
}

/* What lives at @base after generation @old died? The segment around a block is older. */
static bool lives_instead(uint64_t base, uint64_t old, struct range_view *v)
{
	return ledger_refer(base, v) && v->generation > old;
}

/* Nobody bound the slot again, but its memory died: does something else live there? */
static void tell_dead(struct telling *t, const struct change *c, const struct holds *holds)
{
	struct slot_finding f = finding_of(c, FINDING_REPLACED);
	struct range_view v;

	if (!lives_instead(c->d->base, c->m->generation, &v)) {
		tell_missing(t, c, holds);
		return;
	}
	f.new_generation = v.generation;
	tell(t, &f, weigh(holds, SEVERITY_ERROR, SEVERITY_INFO), holds,
	     "its memory is gone, and other memory lives there");
}

static void tell_plain(struct telling *t, const struct change *c, const struct exec_query *q)
{
	const struct holds holds = { q->old_execs, q->now_execs };
	struct slot_finding f;

	if (c->slot->base == 0) {
		if (c->d->base != 0)
			tell_missing(t, c, &holds);
		return;
	}
	/* First bound since the snapshot; or scratch whose old memory is still there (rule 5). */
	if (c->d->base == 0 || (change_moved(c) && c->m->is_scratch && mark_lives(c->m)))
		return;
	if (change_moved(c)) {
		f = finding_of(c, FINDING_MOVED);
		tell(t, &f, weigh(&holds, SEVERITY_ERROR, SEVERITY_INFO), &holds, NULL);
	} else if (change_other(c)) {
		tell_rebound(t, c, &holds);
	} else if (!mark_lives(c->m)) {
		tell_dead(t, c, &holds);
	}
	if (!spec_equal(&c->d->spec, &c->slot->spec)) {
		f = finding_of(c, FINDING_RESPECIFIED);
		tell(t, &f, weigh(&holds, SEVERITY_ERROR, SEVERITY_WARN), &holds, NULL);
	}
}

/* ---- objects ---- */

/* What became of the ranges that an object's factory had allocated. */
struct loss {
	const struct range_mark *first; /* of those that the slot has not any more */
	uint32_t first_index, lost, dead;
	struct holds holds; /* of the lost ranges */
	struct holds kept;  /* of those it still has */
};

static bool has_range(const struct slot *slot, const struct range_mark *r)
{
	for (uint32_t i = 0; i < slot->ranges_count; i++)
		if (slot->ranges[i].base == r->base && slot->ranges[i].generation == r->generation)
			return slot->base != 0;
	return false;
}

static struct loss loss_of(const struct change *c, const struct exec_query *answers)
{
	struct loss l = { .first = NULL };

	for (uint32_t i = 0; i < c->d->ranges_count; i++) {
		const struct range_mark *r = &c->d->ranges[i];
		const struct exec_query *q = &answers[i];
		bool alive = range_mark_alive(r), lost = !alive || !has_range(c->slot, r);

		l.dead += !alive;
		l.lost += lost;
		if (lost && l.first == NULL) {
			l.first = r;
			l.first_index = i;
		}
		if (lost) {
			l.holds.old += q->old_execs;
			l.holds.now += q->now_execs;
		} else {
			l.kept.old += q->old_execs;
		}
	}
	return l;
}

/* Ranges went: moved; all of them went and nothing came: missing; other memory came: replaced. */
static void tell_loss(struct telling *t, const struct change *c, const struct loss *l)
{
	const struct slot *slot = c->slot;
	bool same = slot->object == c->d->object;
	struct slot_finding f = finding_of(c, FINDING_MOVED);
	struct range_view v;

	f.old_base = l->first->base;
	f.old_generation = l->first->generation;
	f.new_base = f.new_generation = 0;
	/* A new object that has its memory elsewhere moved, whatever lies at the old place. */
	if (!same && l->first_index < slot->ranges_count) {
		f.new_base = slot->ranges[l->first_index].base;
		f.new_generation = slot->ranges[l->first_index].generation;
		f.kind = f.new_base == f.old_base ? FINDING_REPLACED : FINDING_MOVED;
	} else if (!range_mark_alive(l->first) && lives_instead(f.old_base, f.old_generation, &v)) {
		f.kind = FINDING_REPLACED;
		f.new_base = f.old_base;
		f.new_generation = v.generation;
	} else if (same && l->dead == c->d->ranges_count) {
		f.kind = FINDING_MISSING;
	}
	tell(t, &f, weigh(&l->holds, SEVERITY_ERROR, SEVERITY_INFO), &l->holds,
	     "memory that the object's factory allocated");
}

static void tell_object(struct telling *t, const struct change *c, const struct exec_query *answers)
{
	struct loss l = loss_of(c, answers);
	enum severity dropped = l.dead ? SEVERITY_ERROR : SEVERITY_WARN;
	struct slot_finding f;

	if (c->slot->base == 0) {
		f = finding_of(c, FINDING_MISSING);
		tell(t, &f, weigh(&l.holds, dropped, SEVERITY_INFO), &l.holds,
		     "the object was dropped");
		return;
	}
	if (l.lost != 0)
		tell_loss(t, c, &l);
	if (c->slot->object == c->d->object)
		return;
	f = finding_of(c, FINDING_REPLACED);
	/* A successor with the same memory: what a graph reads is its state. */
	if (l.holds.old != 0)
		tell(t, &f, weigh(&l.holds, SEVERITY_ERROR, SEVERITY_INFO), &l.holds,
		     "another object, with other memory");
	else
		tell(t, &f, weigh(&l.kept, SEVERITY_WARN, SEVERITY_INFO), &l.kept,
		     "another object");
}

void change_tell(struct telling *t, const struct change *c, const struct exec_query *answers)
{
	if (!c->m->is_object)
		tell_plain(t, c, answers);
	else if (c->d->base != 0)
		tell_object(t, c, answers);
}
