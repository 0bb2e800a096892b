/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: remember what a reload writes into memory that captures allocated, and find the slots that
 * lie there (born.h).
 *
 * Writes are noted by address: what is bound there may be told only when the reload ends. Those to
 * memory of captures are few, so all slots are looked through only if there are any.
 *
 * Threads: any. The spin lock guards the lists, and is a leaf.
 */
#include "arena/born.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "arena/binding.h"
#include "arena/body.h"
#include "arena/intern.h"
#include "arena/range.h"
#include "arena/slab.h"
#include "arena/table.h"

#define SPANS_MAX (1u << 16)

struct span {
	uint64_t base, end;
};

/* Sorted; neither overlapping nor adjacent. */
struct spans {
	struct span *list; /* guarded by the lock, as is cap */
	uint32_t cap;
	_Atomic uint32_t count; /* written under the lock */
};

_Atomic uint32_t born_watched;
counter_t born_left_out;

static struct spinlock lock = SPINLOCK_INIT;
/* What was written; and TOLD: the allocations that have a finding, of born_verify(). */
#define TOLD BORN_HOWS
static struct spans spans[TOLD + 1];
static bool has_captured; /* something was, while the reload was open; guarded by the lock */

void born_watch(bool on)
{
	spin_lock(&lock);
	for (struct spans *s = spans; s <= spans + TOLD; s++) {
		pages_put(s->list, s->cap * sizeof(*s->list));
		s->list = NULL;
		s->cap = 0;
		store_relaxed(&s->count, 0);
	}
	/* One that begins now has opened its window, or comes to born_capture_begins() after this.
	 */
	has_captured = block_window_is_open();
	spin_unlock(&lock);
	/* Relaxed: who writes in another thread while a reload begins is not of it. */
	store_relaxed(&born_watched, on);
}

void born_capture_begins(void)
{
	spin_lock(&lock);
	has_captured = true;
	spin_unlock(&lock);
}

/* ---- what is written ---- */

/* Does memory of an allocation node live in [base, end)? */
static bool has_graph_memory(uint64_t base, uint64_t end)
{
	uint64_t last = end - 1;
	struct range_view v;

	while (range_below(range_live, base, &last, &v) != 0)
		if (v.kind == RANGE_GRAPH)
			return true;
	return false;
}

/* The first span that ends at @addr or behind it. Lock held. */
static uint32_t first_to(const struct spans *s, uint64_t addr)
{
	uint32_t low = 0, high = load_relaxed(&s->count);

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (s->list[mid].end < addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Merge [base, end) with what it touches. Lock held. @return false: there is no room. */
static bool note(struct spans *s, uint64_t base, uint64_t end)
{
	uint32_t count = load_relaxed(&s->count), at = first_to(s, base), behind = at;

	for (; behind < count && s->list[behind].base <= end; behind++) {
		base = s->list[behind].base < base ? s->list[behind].base : base;
		end = s->list[behind].end > end ? s->list[behind].end : end;
	}
	if (behind == at &&
	    (count == SPANS_MAX || pages_grow(&s->list, &s->cap, count + 1, sizeof(*s->list)) != 0))
		return false;
	memmove(s->list + at + 1, s->list + behind, (count - behind) * sizeof(*s->list));
	s->list[at] = (struct span){ base, end };
	store_relaxed(&s->count, count + 1 - (behind - at));
	return true;
}

void born_written(uint64_t addr, uint64_t size_bytes, enum born_how how)
{
	uint64_t end = addr + size_bytes;
	bool noted;

	if (load_relaxed(&born_watched) == 0 || end <= addr ||
	    (!block_born(addr, end) && !has_graph_memory(addr, end)))
		return;
	spin_lock(&lock);
	noted = note(&spans[how], addr, end);
	spin_unlock(&lock);
	if (!noted)
		counter_bump(&born_left_out);
}

/* Does @s touch [base, end)? Lock held. */
static bool touches(const struct spans *s, uint64_t base, uint64_t end)
{
	uint32_t i = first_to(s, base + 1);

	return i < load_relaxed(&s->count) && s->list[i].base < end;
}

/* Was anything of [base, end) written? */
static bool is_written(enum born_how how, uint64_t base, uint64_t end)
{
	bool hit;

	spin_lock(&lock);
	hit = touches(&spans[how], base, end) && (how == BORN_COPIED || !has_captured);
	spin_unlock(&lock);
	return hit;
}

/* ---- the slots that lie there ---- */

/* Does @e overwrite what was written to [base, end)? Holders lock held. */
static bool overwrites(const struct exec *e, enum born_how how, uint64_t base, uint64_t end)
{
	for (uint32_t i = 0; i < e->body->owners_count; i++) {
		const struct exec_owner *o = &e->body->owners[i];
		uint64_t from = load_relaxed(&o->range->base);
		uint64_t to = from + load_relaxed(&o->range->size_bytes);

		if (o->refs == 0 || (!o->bears && !o->own) || to <= base || end <= from)
			continue;
		if (load_relaxed(&o->range->state) == RANGE_LIVE &&
		    is_written(how, from > base ? from : base, to < end ? to : end))
			return true;
	}
	return false;
}

/* The serial of the first exec whose capture allocated what was written in @s, and which overwrites
 * it.
 * @return 0: there is none. Registry lock held. */
static uint64_t overwriter_of(const struct slot *s, enum born_how how)
{
	uint64_t end = s->base + s->spec.bytes, serial = 0;

	if (!is_written(how, s->base, end))
		return 0;
	ledger_holders_lock();
	for (struct exec *e = table_next(NULL); e != NULL; e = table_next(e))
		if ((serial == 0 || e->serial < serial) && overwrites(e, how, s->base, end))
			serial = e->serial;
	ledger_holders_unlock();
	return serial;
}

static int tell(const struct slot *s, uint64_t serial, enum born_how how, struct slot_findings *out)
{
	struct slot_finding f = {
		.kind = FINDING_BORN_IN_CAPTURE,
		.severity = how == BORN_COPIED ? SEVERITY_ERROR : SEVERITY_WARN,
		.slot = s,
		.path = s->arena->path,
		.name = s->name,
		.old_base = s->base,
		.new_base = s->base,
		.old_generation = s->generation,
		.new_generation = s->generation,
		.old_spec = s->spec,
		.new_spec = s->spec,
		.execs_count = 1,
	};
	struct range_view v;
	char text[192];

	if (ledger_find_inner(s->base, &v))
		f.old_stack = f.new_stack = ledger_stack(&v);
	snprintf(text, sizeof(text),
		 "the capture of graph exec %" PRIu64 " allocated it, so each replay overwrites "
		 "what the reload %s: %sallocate it before the capture",
		 serial,
		 how == BORN_COPIED ? "copied there" : "wrote there or elsewhere in its allocation",
		 how == BORN_COPIED ? "" : "if that is to last, ");
	f.detail = intern(text);
	return slot_findings_add(out, &f);
}

/* The allocation of @s has a finding from now on. @return had it one already? */
static bool was_told(const struct slot *s)
{
	uint64_t base = s->base, end = base + s->spec.bytes;
	struct range_view v;
	bool was;

	if (ledger_find_inner(s->base, &v)) {
		base = v.base;
		end = base + v.size_bytes;
	}
	spin_lock(&lock);
	was = touches(&spans[TOLD], base, end);
	note(&spans[TOLD], base, end); /* without room: it is told again */
	spin_unlock(&lock);
	return was;
}

static int verify_slot(const struct slot *s, enum born_how how, struct slot_findings *out)
{
	uint64_t serial = 0;

	if (s->kind == ARENA_BOUND && s->base != 0 && !slot_is_scratch(s))
		serial = overwriter_of(s, how);
	if (serial == 0 || (was_told(s) && how == BORN_WRITTEN))
		return 0;
	return tell(s, serial, how, out);
}

static int verify(const struct arena *a, enum born_how how, struct slot_findings *out)
{
	int err = 0;

	for (const struct arena *i = registry_first(); i != NULL; i = i->next)
		for (const struct slot *s = i->slots; s != NULL && (a == NULL || a == i);
		     s = s->next)
			err |= verify_slot(s, how, out);
	return err;
}

int born_verify(const struct arena *a, struct slot_findings *out)
{
	int err = 0;

	if (load_relaxed(&spans[BORN_COPIED].count) == 0 &&
	    load_relaxed(&spans[BORN_WRITTEN].count) == 0)
		return 0;
	registry_lock();
	spin_lock(&lock);
	store_relaxed(&spans[TOLD].count, 0);
	spin_unlock(&lock);
	for (enum born_how how = 0; how < BORN_HOWS; how++)
		err |= verify(a, how, out);
	registry_unlock();
	return err;
}
