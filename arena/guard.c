/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is this launch sound? Is what is being freed or unmapped still captured?
 *
 * A finding is put together in two scans of the execs concerned: the first counts refs and
 * causes, the second writes as many refs as there is room for, and at least one for each cause
 * (owner and reason). Both run under the holders lock; findings are handed out without it.
 *
 * Nothing is sticky: the mark of an exec is cleared by a judgement that finds nothing wrong. Marks
 * are only set under the holders lock, so a free that we do not see yet in a range's state marks
 * the exec after we are done, and the next launch is judged again. A mark is never taken away for
 * the time of a judgement: another thread that launches the exec would go by.
 *
 * Threads: any. guard_freed() and guard_unmapped() are called without locks.
 */
#include "arena/exec.h"

#include "arena/binding.h"
#include "arena/block.h"
#include "arena/body.h"
#include "arena/order.h"
#include "arena/slab.h"
#include "arena/sync.h"
#include "arena/table.h"

#define LIST_MAX 4096 /* refs in one finding; the others are counted */

bool guard_refuses;
_Atomic bool guard_unsafe; /* written under the holders lock */
struct device_ops device;

/* The refs of one finding while it is put together. */
struct picture {
	struct finding_ref *refs; /* NULL while counting */
	uint32_t count, cap;
	uint32_t total;
	uint32_t causes; /* counting: met; writing: not written yet */
	uint64_t key;
	bool is_known; /* the same was emitted before */
};

/* What is scanned for. @return a reason, or STALE_REASON_COUNT when the ref is sound. */
typedef enum stale_reason (*judge_fn)(const struct exec_body *b, const struct exec_node *n,
				      const struct exec_ref *r, const void *arg);
struct look {
	judge_fn judge;
	const void *arg;
};

/* ---- judges ---- */

static struct binding_ref as_bound(const struct exec_body *b, const struct exec_node *n,
				   const struct exec_ref *r)
{
	return (struct binding_ref){ .addr = body_value(b, r),
				     .generation = b->owners[r->owner].generation,
				     .birth = n->birth };
}

enum stale_reason ref_judge(const struct exec_body *b, const struct exec_node *n,
			    const struct exec_ref *r)
{
	static const enum stale_reason reasons[] = {
		[RANGE_HEALTHY] = STALE_REASON_COUNT,
		[RANGE_IS_FREED] = STALE_FREED,
		[RANGE_IS_UNMAPPED] = STALE_UNMAPPED,
		[RANGE_IS_REPLACED] = STALE_GENERATION,
	};
	const struct exec_owner *o = &b->owners[r->owner];
	enum stale_reason health =
		reasons[ledger_health(o->range, o->generation, body_value(b, r))];
	struct binding_ref bound;

	if (!binding_any())
		return health;
	bound = as_bound(b, n, r);
	return binding_judge(&bound, health);
}

static enum stale_reason judge_launch(const struct exec_body *b, const struct exec_node *n,
				      const struct exec_ref *r, const void *arg)
{
	return ref_judge(b, n, r);
}

static enum stale_reason judge_content(const struct exec_body *b, const struct exec_node *n,
				       const struct exec_ref *r, const void *arg)
{
	struct range_view v;

	/* Relaxed: advice, nothing depends on the order. */
	if (r->confidence == CONFIDENCE_EXACT && ledger_find(body_value(b, r), &v) &&
	    load_relaxed(&v.range->content_undefined))
		return STALE_UNDEFINED;
	return STALE_REASON_COUNT;
}

/* Is @r a block in @outer? */
static bool is_in(const struct range *r, const struct range *outer)
{
	/* Relaxed, here and below: constant while a range is pinned or claimed. */
	return load_relaxed(&r->kind) == RANGE_BLOCK && r->outer == outer;
}

/* Was a ref to the block @r sound, as far as the block goes? */
static bool block_lives(const struct range *r)
{
	return load_relaxed(&r->state) == RANGE_LIVE || block_pooled(r);
}

static enum stale_reason judge_freed(const struct exec_body *b, const struct exec_node *n,
				     const struct exec_ref *r, const void *arg)
{
	const struct range *o = b->owners[r->owner].range;

	return o == arg || (is_in(o, arg) && block_lives(o)) ? STALE_FREED : STALE_REASON_COUNT;
}

struct unmapped {
	struct range *const *ranges;
	uint32_t count;
};

static enum stale_reason judge_unmapped(const struct exec_body *b, const struct exec_node *n,
					const struct exec_ref *r, const void *arg)
{
	const struct unmapped *u = arg;
	uint64_t value = body_value(b, r);

	for (uint32_t i = 0; i < u->count; i++) {
		const struct range *m = u->ranges[i], *owner = load_relaxed(&m->owner);
		const struct range *o = b->owners[r->owner].range;

		if ((o == owner || is_in(o, owner)) &&
		    value - load_relaxed(&m->base) < load_relaxed(&m->size_bytes))
			return STALE_IN_FLIGHT;
	}
	return STALE_REASON_COUNT;
}

/* ---- scans ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
	/* The finaliser of splitmix64. */
	a = (a ^ b * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
	a = (a ^ a >> 27) * 0x94d049bb133111ebu;
	return a ^ a >> 31;
}

/* Nobody pins what a look-up found: it may be other memory by now. */
static struct finding_range tell_found(const struct range_view *v)
{
	return (struct finding_range){
		.base = v->base,
		.size_bytes = v->size_bytes,
		.generation = v->generation,
		.kind = v->kind,
		.stack_open = ledger_stack(v),
	};
}

/* The slot that a ref lies in, and where it is now. */
static void tell_slot(struct finding_ref *out, const struct binding_ref *bound)
{
	struct binding_view slot;
	struct range_view v;

	if (!binding_about(bound, (enum stale_reason)out->reason, &slot))
		return;
	out->arena = slot.slot->arena->path;
	out->slot = slot.slot->name;
	out->slot_base = slot.base;
	out->slot_now = slot.now_base;
	if (out->reason == STALE_SLOT_MOVED && ledger_refer(slot.now_base, &v))
		out->now = tell_found(&v);
}

static void tell_ref(struct finding_ref *out, const struct exec *e, uint32_t node,
		     const struct exec_ref *r, enum stale_reason reason)
{
	const struct exec_body *b = e->body;
	const struct exec_owner *o = &b->owners[r->owner];
	const struct binding_ref bound = as_bound(b, &b->nodes[node], r);
	struct range_view v;

	*out = (struct finding_ref){
		.exec_serial = e->serial,
		.node = node,
		.node_kind = b->nodes[node].kind,
		.reason = reason,
		.confidence = r->confidence,
		.name = b->nodes[node].name,
		.param = r->param,
		.offset = r->offset,
		.value = body_value(b, r),
		.old = finding_range(o->range, o->generation),
	};
	if (reason == STALE_GENERATION && ledger_refer(out->value, &v))
		out->now = tell_found(&v);
	else if (reason == STALE_UNDEFINED && ledger_find(out->value, &v))
		out->old = tell_found(&v);
	if (binding_any())
		tell_slot(out, &bound);
}

/* Which slot it is about: one range holds many. */
static uint64_t slot_key(const struct exec_body *b, uint32_t node, const struct exec_ref *r,
			 enum stale_reason reason)
{
	const struct binding_ref bound = as_bound(b, &b->nodes[node], r);
	struct binding_view slot;

	return binding_about(&bound, reason, &slot) ? mix(slot.number, node) : 0;
}

static void picture_add(struct picture *p, struct exec *e, uint32_t node, const struct exec_ref *r,
			enum stale_reason reason)
{
	struct exec_owner *o = &e->body->owners[r->owner];
	bool is_new = !(o->seen & 1u << reason);

	o->seen |= 1u << reason;
	p->total++;
	if (!p->refs) {
		p->causes += is_new;
		if (is_new)
			p->key += mix(e->serial, o->generation * STALE_REASON_COUNT + reason);
		if (reason == STALE_SLOT_MOVED || reason == STALE_REFUSED)
			p->key += slot_key(e->body, node, r, reason);
		return;
	}
	/* Room for the causes that are still to come is not given to anything else. */
	p->causes -= is_new && p->causes;
	if (p->count + (is_new ? 0 : p->causes) < p->cap)
		tell_ref(&p->refs[p->count++], e, node, r, reason);
}

/* Add what @l finds in the enabled nodes of @e. Holders lock held. */
static void scan(struct picture *p, struct exec *e, const struct look *l)
{
	struct exec_body *b = e->body;

	for (uint32_t i = 0; i < b->owners_count; i++)
		b->owners[i].seen = 0;
	for (uint32_t i = 0; i < b->nodes_count; i++) {
		const struct exec_node *n = &b->nodes[i];

		for (uint32_t k = n->first; !n->disabled && k < n->first + n->count; k++) {
			enum stale_reason reason;

			if (b->owners[b->refs[k].owner].own)
				continue;
			reason = l->judge(b, n, &b->refs[k], l->arg);
			if (reason != STALE_REASON_COUNT)
				picture_add(p, e, i, &b->refs[k], reason);
		}
	}
}

/* After the counting scan: make room for the writing one. Without memory nothing is listed. */
static void picture_room(struct picture *p)
{
	uint32_t cap = p->causes > LIST_MAX ? p->causes : LIST_MAX;

	p->cap = p->total < cap ? p->total : cap;
	p->refs = p->cap ? pages_get(p->cap * sizeof(*p->refs)) : NULL;
	if (!p->refs)
		p->cap = 0;
	else
		p->total = 0; /* the writing scan counts again */
}

/* Hand out, unless the scans found nothing or the finding is known. Without the lock. */
static void picture_emit(const struct picture *p, struct finding *f)
{
	f->key = mix(p->key, f->kind + 1u);
	f->refs_total = p->total;
	f->refs_count = p->count;
	f->refs = p->refs;
	if (p->total && !p->is_known)
		finding_emit(f);
	pages_put(p->refs, p->cap * sizeof(*p->refs));
}

static struct finding launch_finding(enum finding_kind kind, const struct exec *e, uint32_t stack)
{
	return (struct finding){
		.kind = kind,
		.exec_serial = e->serial,
		.exec_handle = load_relaxed(&e->handle),
		.stack = stack,
	};
}

/* ---- launch ---- */

/* Is no launch allowed at all? The holders lock orders it where it matters. */
static bool launch_is_unsafe(void)
{
	return guard_refuses && load_relaxed(&guard_unsafe);
}

/* Judge @e if it is marked for it. Holders lock held. */
static void launch_scan(struct exec *e, struct picture *p)
{
	const struct look look = { judge_launch, NULL };
	struct exec_body *b = e->body;
	/* Relaxed: the lock orders it; see the head of this file. */
	uint32_t mark = load_relaxed(&e->mark);

	if (!(mark & MARK_JUDGE))
		return;
	scan(p, e, &look);
	p->is_known = b->reported == p->key;
	b->reported = p->key;
	if (!p->total) {
		mark = (mark & MARK_ORDER) | (launch_is_unsafe() ? MARK_JUDGE : 0) |
		       (b->owned_count || body_frees(b, 0) ? MARK_OWNS : 0);
		store_relaxed(&e->mark, mark);
		return;
	}
	if (p->is_known)
		return;
	picture_room(p);
	if (p->refs)
		scan(p, e, &look);
}

/* The launch counts as the write to whatever was mapped again and not written. Lock held. */
static void content_scan(struct exec *e, struct picture *p)
{
	const struct look look = { judge_content, NULL };

	scan(p, e, &look);
	picture_room(p);
	if (p->refs)
		scan(p, e, &look);
	for (uint32_t i = 0; i < p->count; i++)
		ledger_written(p->refs[i].value);
}

/* Memory of @e's own allocation nodes is live while it runs; that of other graphs, which its
 * nodes free, is gone for those who launch after it. */
static void launch_memory(struct exec *e)
{
	uint64_t base = 1;

	for (uint32_t i = 0; base; i++) {
		ledger_holders_lock();
		base = load_relaxed(&e->handle) && i < e->body->owned_count ? e->body->owned[i] : 0;
		ledger_holders_unlock();
		if (base)
			ledger_revive_graph(base);
	}
	base = 1;
	for (uint32_t i = 0; base; i++) {
		ledger_holders_lock();
		base = load_relaxed(&e->handle) ? body_frees(e->body, i) : 0;
		ledger_holders_unlock();
		if (base)
			ledger_freed_by_node(base);
	}
}

/* What a judgement came to, carried out of the lock. */
struct verdict {
	struct picture stale, content;
	struct finding stale_finding, content_finding, unsafe_finding;
	bool is_owner, is_unsafe, tell_unsafe;
};

/* Every launch is refused; an exec says so once, until it is allowed again. Holders lock held. */
static void unsafe_judge(struct exec *e, uint32_t stack, struct verdict *v)
{
	v->is_unsafe = launch_is_unsafe();
	v->tell_unsafe = v->is_unsafe && !e->body->told_unsafe;
	e->body->told_unsafe = v->is_unsafe;
	v->unsafe_finding = launch_finding(FINDING_RELOAD_FAILED, e, stack);
	v->unsafe_finding.refused = v->is_unsafe;
}

/* Holders lock held. */
static void launch_judge(struct exec *e, uint32_t stack, struct verdict *v)
{
	launch_scan(e, &v->stale);
	v->is_owner = load_relaxed(&e->mark) & MARK_OWNS;
	v->stale_finding = launch_finding(FINDING_STALE_LAUNCH, e, stack);
	v->stale_finding.refused = v->stale.total && guard_refuses;
	v->content_finding = launch_finding(FINDING_CONTENT_UNDEFINED, e, stack);
	unsafe_judge(e, stack, v);
	if (!v->stale_finding.refused && !v->is_unsafe && load_relaxed(&ledger_undefined_count))
		content_scan(e, &v->content);
}

__attribute__((cold, noinline)) bool guard_launch_slow(struct exec *e, uint64_t stream,
						       uint32_t stack)
{
	struct verdict v = { .is_owner = false };
	bool is_stale, refused;

	block_tell_freed();
	/* First, as what is waited for may be what makes it stale, or repairs it. */
	if (load_relaxed(&e->mark) & MARK_ORDER)
		order_launch(e, stream);
	if (load_relaxed(&e->mark) & ~(uint32_t)MARK_ORDER)
		counter_bump(&exec_stats.judged);
	ledger_holders_lock();
	/* Destroyed meanwhile: the driver will say so. */
	if (load_relaxed(&e->handle))
		launch_judge(e, stack, &v);
	ledger_holders_unlock();

	is_stale = v.stale.total != 0;
	refused = v.stale_finding.refused || v.is_unsafe;
	add_relaxed(&exec_stats.stale, is_stale);
	add_relaxed(&exec_stats.refused, refused);
	picture_emit(&v.stale, &v.stale_finding);
	picture_emit(&v.content, &v.content_finding);
	if (v.tell_unsafe)
		finding_emit(&v.unsafe_finding);
	if (refused)
		event_emit(.kind = EVENT_REFUSED, .serial = v.stale_finding.exec_serial,
			   .what = "");
	else if (v.is_owner)
		launch_memory(e);
	return !refused;
}

/* ---- unsafe ---- */

static _Atomic bool unknown_told; /* the first refused launch without a mirror was told */

void guard_set_unsafe(bool is_unsafe)
{
	ledger_holders_lock();
	store_relaxed(&guard_unsafe, is_unsafe);
	store_relaxed(&unknown_told, false);
	/* Later execs: exec_publish(). */
	if (is_unsafe)
		exec_mark_all();
	ledger_holders_unlock();
}

__attribute__((cold, noinline)) bool guard_launch_unknown(uint64_t handle)
{
	struct finding f = { .kind = FINDING_RELOAD_FAILED,
			     .exec_handle = handle,
			     .refused = true };

	/* Relaxed: a launch that is not ordered after the failure is not concerned. */
	if (!launch_is_unsafe())
		return true;
	counter_bump(&exec_stats.refused);
	if (!swap_acq_rel(&unknown_told, true))
		finding_emit(&f);
	return false;
}

/* ---- free ---- */

/* Scan every holder of @r, or of a block in it. Holders lock held. */
static void scan_holders(struct picture *p, const struct range *r, const struct look *l)
{
	uint32_t count = load_relaxed(&r->holders_count);

	if (load_relaxed(&r->inner) != 0) {
		for (struct exec *e = NULL; (e = table_next(e)) != NULL;)
			scan(p, e, l);
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		scan(p, r->holders[i].exec, l);
}

void guard_freed(struct range *r, uint32_t stack)
{
	const struct look look = { judge_freed, r };
	struct finding f = { .kind = FINDING_FREED_WHILE_REFERENCED, .stack = stack };
	struct picture p = { 0 };

	ledger_holders_lock();
	scan_holders(&p, r, &look);
	picture_room(&p);
	if (p.refs)
		scan_holders(&p, r, &look);
	ledger_holders_unlock();
	picture_emit(&p, &f);
}

/* ---- unmap ---- */

/* An exec that may still run on memory that is being unmapped. */
struct runner {
	struct exec *exec;
	uint64_t serial, stream, ticket;
};

struct runners {
	struct runner *list;
	uint32_t count, cap;
};

/* Holders lock held. */
static void runner_add(struct runners *s, struct exec *e)
{
	/* Relaxed: a launch in another thread that is not ordered before the unmap is the
	 * program's race. */
	uint64_t stream = load_relaxed(&e->last_stream) - 1;
	uint64_t ticket = load_relaxed(&e->last_ticket);

	if (stream == UINT64_MAX || sync_proven(stream, ticket) ||
	    pages_grow(&s->list, &s->cap, s->count + 1, sizeof(*s->list)))
		return;
	s->list[s->count++] = (struct runner){ e, e->serial, stream, ticket };
}

/* The holders of @owner whose last launch is not known to be done; what they captured of it is
 * looked at later, for there are few of them and many refs. Holders lock held. */
static void runners_add(struct runners *s, const struct range *owner)
{
	uint32_t count = load_relaxed(&owner->holders_count);

	for (uint32_t i = 0; i < count; i++)
		runner_add(s, owner->holders[i].exec);
	/* Those of blocks in it; what does not refer to it is sorted out later. */
	if (load_relaxed(&owner->inner) != 0)
		for (struct exec *e = NULL; (e = table_next(e)) != NULL;)
			runner_add(s, e);
}

/* The stream is busy: with what came later? */
static bool runner_is_done(const struct runner *s)
{
	uint64_t event = device.event_done ? sync_event_after(s->stream, s->ticket) : 0;

	return event != 0 && device.event_done(event, s->stream);
}

static void runner_check(const struct runner *s, const struct unmapped *u, uint32_t stack)
{
	const struct look look = { judge_unmapped, u };
	struct picture p = { 0 };
	struct finding f = { 0 };

	ledger_holders_lock();
	/* Destroyed since the list was made? Objects are type-stable, serials are never reused. */
	if (load_relaxed(&s->exec->handle) && s->exec->serial == s->serial) {
		f = launch_finding(FINDING_STALE_LAUNCH, s->exec, stack);
		scan(&p, s->exec, &look);
		picture_room(&p);
		if (p.refs)
			scan(&p, s->exec, &look);
	}
	ledger_holders_unlock();
	picture_emit(&p, &f);
}

void guard_unmapped(struct range *const *ranges, uint32_t count, uint32_t stack)
{
	const struct unmapped u = { ranges, count };
	struct runners s = { .list = NULL };
	const struct range *before = NULL;
	bool busy = false;

	if (!device.stream_busy)
		return;
	ledger_holders_lock();
	for (uint32_t i = 0; i < count; i++) {
		const struct range *owner = load_relaxed(&ranges[i]->owner);

		/* The batch is in the order of addresses: each owner once. */
		if (owner != before)
			runners_add(&s, owner);
		before = owner;
	}
	ledger_holders_unlock();
	for (uint32_t i = 0; i < s.count; i++) {
		/* Many graphs, few streams. */
		if (i == 0 || s.list[i].stream != s.list[i - 1].stream)
			busy = device.stream_busy(s.list[i].stream);
		if (busy && !runner_is_done(&s.list[i]))
			runner_check(&s.list[i], &u, stack);
	}
	pages_put(s.list, s.cap * sizeof(*s.list));
}
