/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: remember what a reload copies into memory that captures allocated, and find the slots that
 * lie there (born.h).
 *
 * Copies are noted by address: what is bound there may be told only when the reload ends. They are
 * few, so all slots are looked through only if there are any.
 *
 * Threads: any. The spin lock guards the list, and is a leaf.
 */
#include "arena/born.h"

#include <inttypes.h>
#include <stdio.h>

#include "arena/binding.h"
#include "arena/block.h"
#include "arena/body.h"
#include "arena/intern.h"
#include "arena/table.h"

#define COPIES_MAX 1024

struct copy {
	uint64_t base, end;
};

_Atomic uint32_t born_watched;

static struct spinlock lock = SPINLOCK_INIT;
static struct copy copies[COPIES_MAX];
static _Atomic uint32_t copies_count; /* entries below it are there; it grows under the lock */

void born_watch(bool on)
{
	spin_lock(&lock);
	store_relaxed(&copies_count, 0);
	spin_unlock(&lock);
	/* Relaxed: who copies in another thread while a reload begins is not of it. */
	store_relaxed(&born_watched, on);
}

static bool is_born(uint64_t addr)
{
	struct range_view v;

	return block_born(addr) || (ledger_find(addr, &v) && v.kind == RANGE_GRAPH);
}

/* Lock held. */
static bool is_noted(uint64_t base, uint64_t end)
{
	for (uint32_t i = 0; i < load_relaxed(&copies_count); i++)
		if (copies[i].base <= base && end <= copies[i].end)
			return true;
	return false;
}

void born_written(uint64_t addr, uint64_t size_bytes)
{
	uint64_t end = addr + size_bytes;
	uint32_t count;

	if (load_relaxed(&born_watched) == 0 || size_bytes == 0 || !is_born(addr))
		return;
	spin_lock(&lock);
	count = load_relaxed(&copies_count);
	if (!is_noted(addr, end) && count < COPIES_MAX) {
		copies[count] = (struct copy){ addr, end };
		store_relaxed(&copies_count, count + 1);
	} else if (count == COPIES_MAX) {
		counter_bump(&exec_stats.dropped);
	}
	spin_unlock(&lock);
}

static bool is_copied_to(const struct slot *s)
{
	bool hit = false;

	spin_lock(&lock);
	for (uint32_t i = 0; i < load_relaxed(&copies_count) && !hit; i++)
		hit = copies[i].base < s->base + s->spec.bytes && s->base < copies[i].end;
	spin_unlock(&lock);
	return hit;
}

/* The serial of the exec whose capture allocated @r, if it uses it still; 0: there is none.
 * Holders lock held. */
static uint64_t bearer_of(const struct range *r)
{
	bool is_block = load_relaxed(&r->kind) == RANGE_BLOCK;

	if (is_block && (load_relaxed(&r->pooled) & POOLED_BORN) == 0)
		return 0;
	for (struct exec *e = table_next(NULL); e != NULL; e = table_next(e)) {
		uint32_t k = body_owner(e->body, r);

		if (k != OWNER_NONE &&
		    (is_block ? e->serial == r->bearer : e->body->owners[k].own != 0))
			return e->serial;
	}
	return 0;
}

/* Which graph overwrites what is in @s? @return 0: none. Registry lock held. */
static uint64_t overwriter_of(const struct slot *s)
{
	struct exec_extent x;
	uint64_t serial = 0;

	ledger_holders_lock();
	if (binding_extent(s, s->binding, &x) && load_relaxed(&x.owner->state) == RANGE_LIVE)
		serial = bearer_of(x.owner);
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

			if (s->kind == ARENA_BOUND && s->base != 0 && !slot_is_scratch(s) &&
			    is_copied_to(s))
				serial = overwriter_of(s);
			if (serial != 0)
				err |= tell(s, serial, out);
		}
	registry_unlock();
	return err;
}
