/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: remember what a reload copies into memory that captures allocated, and find the slots that
 * lie there (born.h).
 *
 * Copies are noted by address: what is bound there may be told only when the reload ends. Those to
 * memory of captures are few, so all slots are looked through only if there are any.
 *
 * Threads: any. The spin lock guards the list, and is a leaf.
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

#define COPIES_MAX (1u << 16)

struct copy {
	uint64_t base, end;
};

_Atomic uint32_t born_watched;
counter_t born_left_out;

static struct spinlock lock = SPINLOCK_INIT;
/* Sorted; neither overlapping nor adjacent. Both guarded by the lock, as is the capacity. */
static struct copy *copies;
static uint32_t copies_cap;
static _Atomic uint32_t copies_count; /* written under the lock */

void born_watch(bool on)
{
	spin_lock(&lock);
	pages_put(copies, copies_cap * sizeof(*copies));
	copies = NULL;
	copies_cap = 0;
	store_relaxed(&copies_count, 0);
	spin_unlock(&lock);
	/* Relaxed: who copies in another thread while a reload begins is not of it. */
	store_relaxed(&born_watched, on);
}

/* ---- what is copied ---- */

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

/* The first copy that ends at @addr or behind it. Lock held. */
static uint32_t first_to(uint64_t addr)
{
	uint32_t low = 0, high = load_relaxed(&copies_count);

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (copies[mid].end < addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Merge [base, end) with what it touches. Lock held. @return false: there is no room. */
static bool note(uint64_t base, uint64_t end)
{
	uint32_t count = load_relaxed(&copies_count), at = first_to(base), behind = at;

	for (; behind < count && copies[behind].base <= end; behind++) {
		base = copies[behind].base < base ? copies[behind].base : base;
		end = copies[behind].end > end ? copies[behind].end : end;
	}
	if (behind == at && (count == COPIES_MAX ||
			     pages_grow(&copies, &copies_cap, count + 1, sizeof(*copies)) != 0))
		return false;
	memmove(copies + at + 1, copies + behind, (count - behind) * sizeof(*copies));
	copies[at] = (struct copy){ base, end };
	store_relaxed(&copies_count, count + 1 - (behind - at));
	return true;
}

void born_written(uint64_t addr, uint64_t size_bytes)
{
	uint64_t end = addr + size_bytes;
	bool noted;

	if (load_relaxed(&born_watched) == 0 || end <= addr ||
	    (!block_born(addr, end) && !has_graph_memory(addr, end)))
		return;
	spin_lock(&lock);
	noted = note(addr, end);
	spin_unlock(&lock);
	if (!noted)
		counter_bump(&born_left_out);
}

/* Was anything of [base, end) copied to? */
static bool is_copied_to(uint64_t base, uint64_t end)
{
	uint32_t i;
	bool hit;

	spin_lock(&lock);
	i = first_to(base + 1);
	hit = i < load_relaxed(&copies_count) && copies[i].base < end;
	spin_unlock(&lock);
	return hit;
}

/* ---- the slots that lie there ---- */

/* Does @e overwrite what was copied into [base, end)? Holders lock held. */
static bool overwrites(const struct exec *e, uint64_t base, uint64_t end)
{
	for (uint32_t i = 0; i < e->body->owners_count; i++) {
		const struct exec_owner *o = &e->body->owners[i];
		uint64_t from = load_relaxed(&o->range->base);
		uint64_t to = from + load_relaxed(&o->range->size_bytes);

		if (o->refs == 0 || (!o->bears && !o->own) || to <= base || end <= from)
			continue;
		if (load_relaxed(&o->range->state) == RANGE_LIVE &&
		    is_copied_to(from > base ? from : base, to < end ? to : end))
			return true;
	}
	return false;
}

/* The serial of the first exec whose capture allocated what was copied to in @s, and which
 * overwrites it.
 * @return 0: there is none. Registry lock held. */
static uint64_t overwriter_of(const struct slot *s)
{
	uint64_t end = s->base + s->spec.bytes, serial = 0;

	if (!is_copied_to(s->base, end))
		return 0;
	ledger_holders_lock();
	for (struct exec *e = table_next(NULL); e != NULL; e = table_next(e))
		if ((serial == 0 || e->serial < serial) && overwrites(e, s->base, end))
			serial = e->serial;
	ledger_holders_unlock();
	return serial;
}

static int tell(const struct slot *s, uint64_t serial, struct slot_findings *out)
{
	struct slot_finding f = {
		.kind = FINDING_BORN_IN_CAPTURE,
		.severity = SEVERITY_ERROR,
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
		 "what the reload copied there: allocate it before the capture",
		 serial);
	f.detail = intern(text);
	return slot_findings_add(out, &f);
}

int born_verify(const struct arena *a, struct slot_findings *out)
{
	int err = 0;

	if (load_relaxed(&copies_count) == 0)
		return 0;
	registry_lock();
	for (const struct arena *i = registry_first(); i != NULL; i = i->next)
		for (const struct slot *s = i->slots; s != NULL && (a == NULL || a == i);
		     s = s->next) {
			uint64_t serial = 0;

			if (s->kind == ARENA_BOUND && s->base != 0 && !slot_is_scratch(s))
				serial = overwriter_of(s);
			if (serial != 0)
				err |= tell(s, serial, out);
		}
	registry_unlock();
	return err;
}
