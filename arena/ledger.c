/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger: what lives, what died, what lives there now (ledger.h). Objects and their states
 * are range.c's, mappings are vmm.c's.
 *
 * Invariants: a range leaves its index, and its holders are marked, before the driver is asked to
 * free it; it is dead when the driver did, and then they are marked again: until then a launch is
 * as sound as before, for the driver may refuse. A range of a graph's allocation node that was
 * freed by a call sleeps in an index of its own, for the node brings it back.
 *
 * Threads: any function from any thread; look-ups take no lock. Nothing calls the driver.
 */
#include <errno.h>

#include "arena/block.h"
#include "arena/event.h"
#include "arena/exec.h"
#include "arena/range.h"
#include "arena/slab.h"

#define CLAIMS 64 /* ranges claimed under a list lock at once */

static struct index *asleep;
static _Atomic uint32_t asleep_count;

int ledger_init(void)
{
	int err = 0;

	ledger_holders_lock();
	if (range_live == NULL) {
		asleep = index_new();
		range_blocks = index_new();
		range_reserved = index_new();
		range_live = index_new();
		err = asleep && range_blocks && range_reserved && range_live ? 0 : -ENOMEM;
	}
	ledger_holders_unlock();
	return err;
}

/* ---- open ---- */

/* A live range of a graph with exactly this extent: nodes of several graphs may share it. */
static struct range *shared_with_graph(const struct range_desc *d)
{
	struct range_view v;

	if (d->kind == RANGE_GRAPH && range_look(range_live, RANGE_LIVE, d->base, &v) != 0 &&
	    v.kind == RANGE_GRAPH && v.base == d->base && v.size_bytes == d->size_bytes)
		return v.range;
	return NULL;
}

struct range *ledger_open(const struct range_desc *d)
{
	struct range *r;

	if (d->size_bytes == 0)
		return NULL;
	r = shared_with_graph(d);
	if (r != NULL)
		return r;
	range_retire(d->kind == RANGE_RESERVED ? range_reserved : range_live, d->base,
		     d->size_bytes, NULL);
	r = range_new(d, NULL);
	return r != NULL && range_enter(r) ? range_told(r) : NULL;
}

/* ---- close ---- */

/* Claim the live range that starts at @base. A mapping is closed by unmapping only. */
static struct range *claim_at(const struct index *ix, uint64_t base)
{
	struct range_view v;
	uint64_t generation = range_look(ix, RANGE_LIVE, base, &v);
	bool claimed;

	if (generation == 0 || v.base != base || v.kind == RANGE_MAPPED ||
	    !range_pin(v.range, generation))
		return NULL;
	claimed = range_claim(v.range);
	range_unpin(v.range);
	return claimed ? v.range : NULL;
}

struct range *ledger_close_begin(uint64_t base, uint32_t stack)
{
	struct range *r;

	if (base == 0)
		return NULL;
	r = claim_at(range_live, base);
	if (r == NULL)
		r = claim_at(range_reserved, base);
	if (r == NULL) {
		counter_bump(&range_counts.unknown);
		return NULL;
	}
	range_leave(r, stack);
	range_mark_holders(r);
	return r;
}

/* A freed range of a graph keeps its object and its pin, until its node runs again. */
static void fall_asleep(struct range *r)
{
	struct range_view v;
	uint64_t generation;

	/* An older sleeper at this address is never coming back. */
	generation = range_look(asleep, RANGE_DEAD, r->base, &v);
	if (generation != 0 && v.base == r->base && range_pin(v.range, generation)) {
		if (index_remove(asleep, v.range) == 0) {
			add_relaxed(&asleep_count, (uint32_t)-1);
			range_unpin(v.range);
		}
		range_unpin(v.range);
	}
	/* The pin is the sleeper's own; without memory it cannot come back. */
	if (!range_pin(r, r->generation))
		return;
	if (index_insert(asleep, r) == 0)
		add_relaxed(&asleep_count, 1);
	else
		range_unpin(r);
}

void ledger_revive_graph(uint64_t base)
{
	struct range_view v;
	uint64_t generation;

	if (load_relaxed(&asleep_count) == 0)
		return;
	generation = range_look(asleep, RANGE_DEAD, base, &v);
	if (generation == 0 || v.base != base || !range_pin(v.range, generation))
		return;
	/* Whoever takes it out owns the sleeper's pin. */
	if (index_remove(asleep, v.range) == 0) {
		add_relaxed(&asleep_count, (uint32_t)-1);
		range_retire(range_live, v.base, v.size_bytes, NULL);
		range_revive(v.range);
	}
	range_unpin(v.range);
}

void ledger_freed_by_node(uint64_t base)
{
	struct range_view v;
	struct range *r;

	if (!ledger_find(base, &v) || v.base != base || v.kind != RANGE_GRAPH)
		return;
	r = claim_at(range_live, base);
	if (r == NULL)
		return;
	range_leave(r, 0);
	range_mark_holders(r);
	fall_asleep(r);
	range_gone(r, false);
}

void ledger_close_end(struct range *r, bool done)
{
	if (r == NULL)
		return;
	if (!done) {
		range_reopen(r);
		return;
	}
	/* Mappings whose unmapping was not seen die with their reservation. */
	if (r->kind == RANGE_RESERVED)
		range_retire(range_live, r->base, r->size_bytes, r);
	if (r->kind == RANGE_GRAPH)
		fall_asleep(r);
	range_gone(r, true);
}

unsigned ledger_close_context(uint64_t context)
{
	struct range *claimed[CLAIMS];
	unsigned total = 0, count;

	for (int kind = 0; kind < RANGE_KIND_COUNT; kind++)
		do {
			count = range_claim_some(kind, context, 0, claimed, CLAIMS);
			for (unsigned i = 0; i < count; i++) {
				range_leave(claimed[i], 0);
				range_mark_holders(claimed[i]->owner);
				range_gone(claimed[i], false);
			}
			total += count;
		} while (count == CLAIMS);
	return total;
}

void ledger_scope_begin(enum range_kind kind, uint64_t scope, uint32_t stack, struct unmap_batch *b)
{
	struct range *claimed[CLAIMS];
	unsigned count;

	do {
		/* Room first: a range that cannot be noted would stay half closed. */
		if (pages_grow(&b->ranges, &b->cap, b->count + CLAIMS, sizeof(*b->ranges)) != 0) {
			counter_bump(&range_counts.dropped);
			return;
		}
		count = range_claim_some(kind, 0, scope, claimed, CLAIMS);
		for (unsigned i = 0; i < count; i++) {
			range_leave(claimed[i], stack);
			range_mark_holders(claimed[i]->owner);
			b->ranges[b->count++] = claimed[i];
		}
	} while (count == CLAIMS);
}

unsigned ledger_close_scope(enum range_kind kind, uint64_t scope)
{
	struct unmap_batch b = { 0 };
	unsigned count;

	ledger_scope_begin(kind, scope, 0, &b);
	count = b.count;
	ledger_unmap_end(&b, true);
	return count;
}

void ledger_unmap_end(struct unmap_batch *b, bool done)
{
	for (uint32_t i = 0; i < b->count; i++)
		ledger_close_end(b->ranges[i], done);
	pages_put(b->ranges, b->cap * sizeof(*b->ranges));
	*b = (struct unmap_batch){ 0 };
}

/* ---- look ---- */

bool ledger_find(uint64_t addr, struct range_view *out)
{
	return range_look(range_live, RANGE_LIVE, addr, out) != 0 && range_view_has(out, addr);
}

bool ledger_find_inner(uint64_t addr, struct range_view *out)
{
	return (index_count(range_blocks) != 0 &&
		range_look(range_blocks, RANGE_LIVE, addr, out) != 0 &&
		range_view_has(out, addr)) ||
	       ledger_find(addr, out);
}

bool ledger_lives(uint64_t base, uint64_t generation)
{
	struct range_view v;

	return (ledger_find(base, &v) && v.generation == generation) ||
	       (ledger_find_inner(base, &v) && v.generation == generation);
}

bool ledger_refer(uint64_t addr, struct range_view *out)
{
	struct range *r = block_refer(addr);

	if (r == NULL)
		return ledger_find(addr, out);
	/* Freed and used again meanwhile, it does not let itself be pinned as what it was. */
	*out = (struct range_view){
		.generation = load_relaxed(&r->generation),
		.range = r,
		.owner = r,
		.base = load_relaxed(&r->base),
		.size_bytes = load_relaxed(&r->size_bytes),
		.kind = RANGE_BLOCK,
	};
	return true;
}

bool ledger_find_reserved(uint64_t addr, struct range_view *out)
{
	return range_look(range_reserved, RANGE_LIVE, addr, out) != 0 && range_view_has(out, addr);
}

uint64_t ledger_context(uint64_t addr)
{
	uint64_t context = 0;
	struct range_view v;

	if (ledger_find(addr, &v) && ledger_pin(&v)) {
		if (v.range == v.owner)
			context = v.range->context;
		ledger_unpin(v.owner);
	}
	return context;
}

uint32_t ledger_stack(const struct range_view *v)
{
	/* Pairs with the store in range_new(), which follows those of base and generation. */
	uint32_t stack = load_acquire(&v->range->stack_open);
	bool is_same = load_relaxed(&v->range->base) == v->base &&
		       load_relaxed(&v->owner->generation) == v->generation;

	return is_same ? stack : 0;
}

bool ledger_pin(const struct range_view *v)
{
	return range_pin(v->owner, v->generation);
}

void ledger_unpin(struct range *owner)
{
	range_unpin(owner);
}

/* What is mapped at @addr of a reservation that is there? */
static enum range_health mapped_health(struct range *owner, uint64_t addr)
{
	const struct range *there = range_mapping(owner, addr);

	if (there == NULL)
		return RANGE_IS_UNMAPPED;
	return there == owner ? RANGE_HEALTHY : RANGE_IS_REPLACED;
}

/* A block is there if it lives in a segment that is there. What captures allocated is theirs, dead
 * or alive. */
static enum range_health block_health(struct range *r, uint64_t generation, uint64_t addr)
{
	/* As in ledger_health(). */
	bool is_live =
		load_acquire(&r->state) == RANGE_LIVE && load_relaxed(&r->generation) == generation;
	struct range *outer = r->outer;
	enum range_health health = RANGE_HEALTHY;

	if (!is_live && !block_pooled(r) && block_covers(addr))
		return RANGE_IS_REPLACED;
	if (outer != NULL)
		health = ledger_health(outer, load_relaxed(&outer->generation), addr);
	return is_live || block_pooled(r) || health == RANGE_IS_REPLACED ? health : RANGE_IS_FREED;
}

enum range_health ledger_health(struct range *owner, uint64_t generation, uint64_t addr)
{
	struct range_view v;
	/* Pairs with the stores of state in range.c; the generation is stable, @owner is pinned. */
	uint8_t state = load_acquire(&owner->state);
	bool same = load_relaxed(&owner->generation) == generation;
	bool is_closing = same && state == RANGE_CLOSING;
	bool is_live = same && state == RANGE_LIVE;

	if (owner->kind == RANGE_BLOCK)
		return block_health(owner, generation, addr);
	if (owner->kind == RANGE_RESERVED && (is_live || is_closing))
		return mapped_health(owner, addr);
	if (is_live)
		return RANGE_HEALTHY;
	/* Closing: the driver may yet refuse; if not, the holders are marked once more. But what
	 * lives at the address already tells that it did not refuse. */
	if (ledger_find(addr, &v))
		return is_closing && v.owner == owner ? RANGE_HEALTHY : RANGE_IS_REPLACED;
	return is_closing ? RANGE_HEALTHY : RANGE_IS_FREED;
}

/* ---- content ---- */

void ledger_written_extent(uint64_t addr, uint64_t size_bytes)
{
	uint64_t last = size_bytes != 0 ? addr + (size_bytes - 1) : addr;
	struct range_view v;

	if (load_relaxed(&ledger_undefined_count) == 0)
		return;
	/* From the last range to the first. Should an object be reused meanwhile, one advisory is
	 * lost, nothing else. */
	while (range_below(range_live, addr, &last, &v) != 0)
		range_define(v.range);
}

void ledger_written(uint64_t addr)
{
	ledger_written_extent(addr, 1);
}

void ledger_undefine_scope(uint64_t scope)
{
	ledger_holders_lock();
	range_undefine_some(RANGE_MAPPED, scope);
	ledger_holders_unlock();
}
