/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of the ledger (range.h), the list of each kind, and who holds a range.
 *
 * Invariants: the object of a range is not reused while it has a pin; a range is in its index
 * and findable only while it is live; it is in the list of its kind while live or closing.
 * Between a closer and a new holder nothing is lost: the closer leaves LIVE, then looks at
 * holders_count; the holder is counted, then looks at the state; a full fence on both sides.
 *
 * Threads: any function from any thread. Lock order: the holders lock, then nothing; list locks
 * are leaves.
 */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "arena/block.h"
#include "arena/device.h"
#include "arena/event.h"
#include "arena/exec.h"
#include "arena/range.h"
#include "arena/slab.h"
#include "arena/suspect.h"

struct kind_list {
	struct spinlock lock; /* guards the rest */
	struct range *head;
	uint64_t live, bytes, opened, closed;
};

static const char *const kind_names[RANGE_KIND_COUNT] = {
#define X(id, name) [RANGE_##id] = name,
	RANGE_KINDS(X)
#undef X
};

static struct slab objects = SLAB_INIT(struct range);
static struct kind_list lists[RANGE_KIND_COUNT];
static _Atomic uint64_t generations;
static pthread_mutex_t holders_mutex = PTHREAD_MUTEX_INITIALIZER;

struct index *range_live, *range_reserved, *range_blocks;
struct range_counts range_counts;
QUICK_WORD _Atomic uint32_t ledger_undefined_count;
_Thread_local void (*ledger_opened)(const struct range *r)
	__attribute__((tls_model("initial-exec")));

const char *range_kind_name(enum range_kind kind)
{
	return (unsigned)kind < RANGE_KIND_COUNT ? kind_names[kind] : "?";
}

static struct index *index_for(const struct range *r)
{
	return r->kind == RANGE_RESERVED ? range_reserved
	       : r->kind == RANGE_BLOCK	 ? range_blocks
					 : range_live;
}

static uint32_t thread_id(void)
{
	static _Thread_local uint32_t id;

	if (id == 0)
		id = (uint32_t)gettid();
	return id;
}

/* ---- life ---- */

struct range *range_new(const struct range_desc *d, struct range *owner)
{
	struct range *r = slab_get(&objects);

	if (r == NULL) {
		counter_bump(&range_counts.dropped);
		return NULL;
	}
	/* Pairs with the fence in chain_floor(): a stale reader sees that @r had been taken. */
	store_release(&r->base, d->base);
	store_relaxed(&r->size_bytes, d->size_bytes);
	store_relaxed(&r->owner, owner != NULL ? owner : r);
	store_relaxed(&r->kind, (uint8_t)d->kind);
	store_relaxed(&r->content_undefined, 0);
	store_relaxed(&r->pooled, 0);
	r->context = d->context;
	r->scope = d->scope;
	/* Pairs with the load in ledger_stack(): who reads this stack sees this base. */
	store_release(&r->stack_open, d->stack);
	store_relaxed(&r->stack_close, 0);
	store_relaxed(&r->thread_close, 0);
	store_relaxed(&r->state, RANGE_FREE_OBJECT);
	/* Pairs with the loads in range_look() and range_pin(): the fields above are this one's. */
	store_release(&r->generation, add_relaxed(&generations, 1) + 1);
	store_release(&r->pins, 1);
	return r;
}

/* The last pin is gone: nobody can come back, for range_pin() refuses 0. */
static void reuse(struct range *r)
{
	struct range *owner = r->owner, *outer = r->kind == RANGE_BLOCK ? r->outer : NULL;

	store_relaxed(&r->state, RANGE_FREE_OBJECT);
	/* Pairs with the second load in range_look(). */
	store_release(&r->generation, 0);
	pages_put(r->holders, r->holders_cap * sizeof(*r->holders));
	r->holders = NULL;
	r->holders_cap = 0;
	if (r->kind == RANGE_BLOCK)
		r->outer = NULL;
	else
		vmm_forget(r);
	slab_put(&objects, r);
	if (owner != r)
		range_unpin(owner);
	if (outer != NULL) {
		/* Its holders are gone: who closes the segment does not miss them. */
		add_relaxed(&outer->inner, -1u);
		range_unpin(outer);
	}
}

bool range_pin(struct range *r, uint64_t generation)
{
	uint32_t pins = load_relaxed(&r->pins);

	do {
		if (pins == 0)
			return false;
		/* Pairs with the decrement in range_unpin(). */
	} while (!cas_acq_rel(&r->pins, &pins, pins + 1));
	/* Pinned, the object keeps its generation: is it the one that was meant? */
	if (load_acquire(&r->generation) == generation)
		return true;
	range_unpin(r);
	return false;
}

void range_unpin(struct range *r)
{
	/* The last one sees what all others did. */
	if (sub_acq_rel(&r->pins, 1) == 1)
		reuse(r);
}

/* ---- lists ---- */

static void enlist(struct range *r)
{
	struct kind_list *l = &lists[r->kind];

	spin_lock(&l->lock);
	r->all_prev = NULL;
	r->all_next = l->head;
	if (l->head != NULL)
		l->head->all_prev = r;
	l->head = r;
	l->live++;
	l->opened++;
	l->bytes += r->size_bytes;
	spin_unlock(&l->lock);
}

static void delist(struct range *r)
{
	struct kind_list *l = &lists[r->kind];

	spin_lock(&l->lock);
	if (r->all_prev != NULL)
		r->all_prev->all_next = r->all_next;
	else
		l->head = r->all_next;
	if (r->all_next != NULL)
		r->all_next->all_prev = r->all_prev;
	l->live--;
	l->closed++;
	l->bytes -= r->size_bytes;
	range_define(r);
	spin_unlock(&l->lock);
}

void ledger_read_counters(struct ledger_counters *out)
{
	struct block_counters blocks;

	out->dropped = load_relaxed(&range_counts.dropped);
	out->overlaps = load_relaxed(&range_counts.overlaps);
	out->refused_frees = load_relaxed(&range_counts.refused);
	out->unknown_frees = load_relaxed(&range_counts.unknown);
	out->invented_reservations = load_relaxed(&range_counts.invented);
	out->opened = out->closed = out->live = 0;
	for (int k = 0; k < RANGE_KIND_COUNT; k++) {
		struct kind_list *l = &lists[k];

		spin_lock(&l->lock);
		out->opened += l->opened;
		out->closed += l->closed;
		out->live += l->live;
		out->live_by_kind[k] = l->live;
		out->bytes_by_kind[k] = l->bytes;
		spin_unlock(&l->lock);
	}
	block_read_counters(&blocks);
	out->live_by_kind[RANGE_BLOCK] = blocks.live;
	out->bytes_by_kind[RANGE_BLOCK] = blocks.bytes;
}

/* ---- open and close ---- */

/* Make @r findable, then claimable, in this order: a closer never meets half an opening. */
static bool go_live(struct range *r)
{
	if (index_insert(index_for(r), r) != 0) {
		counter_bump(&range_counts.dropped);
		range_gone(r, false);
		return false;
	}
	/* Pairs with the loads of state in look-ups and in exec.c. */
	store_release(&r->state, RANGE_LIVE);
	return true;
}

bool range_enter(struct range *r)
{
	enlist(r);
	event_emit(.kind = r->kind == RANGE_MAPPED ? EVENT_MAP : EVENT_ALLOC, .address = r->base,
		   .size_bytes = r->size_bytes, .serial = r->generation,
		   .what = range_kind_name(r->kind), .stack = load_relaxed(&r->stack_open));
	return go_live(r);
}

bool range_enter_block(struct range *r)
{
	if (index_insert(range_blocks, r) != 0) {
		counter_bump(&range_counts.dropped);
		range_unpin(r);
		return false;
	}
	/* Pairs with the loads of state in look-ups and in exec.c. */
	store_release(&r->state, RANGE_LIVE);
	return true;
}

bool range_claim(struct range *r)
{
	uint8_t live = RANGE_LIVE;

	/* First half of the Dekker pattern with ledger_hold(), see range_mark_holders(). */
	return cas_acq_rel(&r->state, &live, RANGE_CLOSING);
}

unsigned range_claim_some(enum range_kind kind, uint64_t context, uint64_t scope,
			  struct range **out, unsigned max)
{
	struct kind_list *l = &lists[kind];
	unsigned count = 0;

	spin_lock(&l->lock);
	for (struct range *r = l->head; r != NULL && count < max; r = r->all_next)
		if (((context != 0 && r->context == context) ||
		     (scope != 0 && r->scope == scope)) &&
		    range_claim(r))
			out[count++] = r;
	spin_unlock(&l->lock);
	return count;
}

void range_leave(struct range *r, uint32_t stack)
{
	store_relaxed(&r->stack_close, stack);
	store_relaxed(&r->thread_close, thread_id());
	index_remove(index_for(r), r);
}

void range_reopen(struct range *r)
{
	counter_bump(&range_counts.refused);
	store_relaxed(&r->stack_close, 0);
	store_relaxed(&r->thread_close, 0);
	go_live(r);
}

void range_revive(struct range *r)
{
	store_relaxed(&r->stack_close, 0);
	range_enter(r);
}

/* Blocks of the memory at [base, end), which was given back. Where another thread has got its
 * addresses already, they are blocks of that one's. */
static void forget_blocks(uint64_t base, uint64_t end)
{
	uint64_t last = end - 1;
	struct range_view v;

	while (end > base && range_below(range_live, base, &last, &v) != 0) {
		if (v.base + v.size_bytes < end)
			block_forget(v.base + v.size_bytes, end - (v.base + v.size_bytes));
		end = v.base;
	}
	if (end > base)
		block_forget(base, end - base);
}

void range_gone(struct range *r, bool tell)
{
	uint32_t stack = load_relaxed(&r->stack_close);
	bool held;

	delist(r);
	/* Pairs with the loads of state in look-ups and in exec.c. */
	store_release(&r->state, RANGE_DEAD);
	/*
	 * While it was closing, a launch was judged as if nothing happened, and its mark cleared:
	 * the driver could still refuse. A judgement is made under the holders lock, and so is the
	 * marking: either it came before and the mark stays for the next launch, or it comes after
	 * and sees the range dead.
	 */
	held = range_mark_holders(r->owner);
	event_emit(.kind = r->kind == RANGE_MAPPED ? EVENT_UNMAP : EVENT_FREE, .address = r->base,
		   .size_bytes = r->size_bytes, .serial = r->generation,
		   .what = range_kind_name(r->kind), .stack = stack);
	if (r->kind == RANGE_MAPPED)
		vmm_note_unmapped(r);
	else if (tell && held)
		guard_freed(r, stack);
	/* Suspects in a mapping are about its reservation. */
	if (tell)
		suspect_freed(r, stack);
	/* What is unmapped may be mapped again with the blocks that are in it. */
	if (r->kind != RANGE_MAPPED)
		forget_blocks(r->base, r->base + r->size_bytes);
	range_unpin(r);
}

/* ---- look ---- */

enum look { LOOK_NONE, LOOK_OVERTAKEN, LOOK_FOUND };
struct found {
	uint64_t generation; /* of the range itself */
	uint8_t state;
};

/* The range at or below @addr, in whatever state it is. LOOK_OVERTAKEN: it was taken out, and its
 * object is free or of another range by now. */
static enum look look(const struct index *ix, uint64_t addr, struct range_view *v, struct found *f)
{
	struct range *r;

again:
	r = index_floor(ix, addr);
	if (r == NULL)
		return LOOK_NONE;
	/* Pairs with the store in range_new(). A free object has no owner to look at. */
	f->generation = load_acquire(&r->generation);
	if (f->generation == 0)
		return LOOK_OVERTAKEN;
	v->range = r;
	v->owner = load_relaxed(&r->owner);
	v->base = load_relaxed(&r->base);
	v->size_bytes = load_relaxed(&r->size_bytes);
	v->kind = (enum range_kind)load_relaxed(&r->kind);
	v->generation = v->owner == r ? f->generation : load_relaxed(&v->owner->generation);
	f->state = load_relaxed(&r->state);
	/* Pairs with the store in reuse(): unchanged, all of the above is of one life. */
	fence_acquire();
	if (load_relaxed(&r->generation) != f->generation)
		return LOOK_OVERTAKEN;
	/* Reused elsewhere since the search: not the floor of anything here. */
	if (v->base > addr)
		goto again;
	return LOOK_FOUND;
}

uint64_t range_look(const struct index *ix, enum range_state state, uint64_t addr,
		    struct range_view *v)
{
	struct found f;

	return look(ix, addr, v, &f) == LOOK_FOUND && f.state == state ? f.generation : 0;
}

uint64_t range_below(const struct index *ix, uint64_t base, uint64_t *last, struct range_view *v)
{
	struct found f;
	enum look what;

	while (*last >= base && *last != 0) {
		what = look(ix, *last, v, &f);
		if (what == LOOK_OVERTAKEN)
			continue;
		if (what == LOOK_NONE || v->base + v->size_bytes <= base)
			return 0;
		*last = v->base > base ? v->base - 1 : 0;
		/* Else it is about to come or to go: others below it are not. */
		if (f.state == RANGE_LIVE)
			return f.generation;
	}
	return 0;
}

/* A mapping is in the list of its kind from when the driver made it until the driver undid it; in
 * the index it is only while nobody asks the driver to. */
static bool is_mapped_at(const struct range *owner, uint64_t addr)
{
	struct kind_list *l = &lists[RANGE_MAPPED];
	bool found = false;

	spin_lock(&l->lock);
	for (const struct range *r = l->head; r != NULL && !found; r = r->all_next)
		found = r->owner == owner && addr - r->base < r->size_bytes;
	spin_unlock(&l->lock);
	return found;
}

struct range *range_mapping(struct range *owner, uint64_t addr)
{
	struct range_view v;

	if (ledger_find(addr, &v))
		return v.owner;
	return is_mapped_at(owner, addr) ? owner : NULL;
}

void range_retire(struct index *ix, uint64_t base, uint64_t size_bytes, const struct range *owner)
{
	uint64_t last = base + size_bytes - 1, generation;
	struct range_view v;

	while ((generation = range_below(ix, base, &last, &v)) != 0) {
		if ((owner != NULL && v.owner != owner) || !range_pin(v.range, generation))
			continue;
		if (range_claim(v.range)) {
			/* Graphs may share the addresses of their allocation nodes. */
			if (v.kind != RANGE_GRAPH)
				counter_bump(&range_counts.overlaps);
			range_leave(v.range, 0);
			range_mark_holders(v.owner);
			range_gone(v.range, false);
		}
		range_unpin(v.range);
	}
}

uint32_t range_spans(enum range_kind kind, struct device_span *out, uint32_t max)
{
	struct kind_list *l = &lists[kind];
	uint32_t count = 0;

	spin_lock(&l->lock);
	for (const struct range *r = l->head; r != NULL; r = r->all_next, count++)
		if (count < max)
			out[count] = (struct device_span){ r->base, r->size_bytes };
	spin_unlock(&l->lock);
	return count;
}

/* ---- content ---- */

void range_undefine(struct range *r)
{
	if (swap_acq_rel(&r->content_undefined, 1) == 0)
		add_relaxed(&ledger_undefined_count, 1);
}

void range_define(struct range *r)
{
	if (load_relaxed(&r->content_undefined) != 0 && swap_acq_rel(&r->content_undefined, 0) != 0)
		add_relaxed(&ledger_undefined_count, (uint32_t)-1);
}

void range_undefine_some(enum range_kind kind, uint64_t scope)
{
	struct kind_list *l = &lists[kind];

	/* Under the lock, so that delist() comes before or after, and the count stays right. */
	spin_lock(&l->lock);
	for (struct range *r = l->head; r != NULL; r = r->all_next)
		if (r->scope == scope) {
			range_undefine(r);
			exec_mark_holders(r->owner);
		}
	spin_unlock(&l->lock);
}

/* ---- holders ---- */

void ledger_holders_lock(void)
{
	pthread_mutex_lock(&holders_mutex);
}

void ledger_holders_unlock(void)
{
	pthread_mutex_unlock(&holders_mutex);
}

bool range_mark_holders(struct range *owner)
{
	/*
	 * Second half of the Dekker pattern: the range leaves LIVE, or is dead, before this load,
	 * as in ledger_hold() the count comes before the holder's look at the state.
	 */
	fence_seq_cst();
	if (load_relaxed(&owner->holders_count) == 0 && load_relaxed(&owner->inner) == 0)
		return false;
	ledger_holders_lock();
	exec_mark_holders(owner);
	ledger_holders_unlock();
	return true;
}

int ledger_hold(struct range *owner, struct exec *e)
{
	uint32_t count = load_relaxed(&owner->holders_count);

	if (pages_grow(&owner->holders, &owner->holders_cap, count + 1, sizeof(*owner->holders)) !=
	    0)
		return -ENOMEM;
	owner->holders[count].exec = e;
	store_relaxed(&owner->holders_count, count + 1);
	/* Pairs with range_mark_holders(): whoever closes from now on sees this holder, and who
	 * closed before is seen by the caller's next look at the state. */
	fence_seq_cst();
	return 0;
}

void ledger_release(struct range *owner, struct exec *e)
{
	uint32_t count = load_relaxed(&owner->holders_count);

	for (uint32_t i = count; i-- > 0;) {
		if (owner->holders[i].exec != e)
			continue;
		owner->holders[i] = owner->holders[count - 1];
		store_relaxed(&owner->holders_count, count - 1);
		return;
	}
}
