/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Execs: how a mirror is built, published and dropped, and who holds which range.
 *
 * Every change is made under the holders lock of ledger.c, which also guards the bodies. What
 * may take long or call out - resolving words, freeing bodies, events - is done without it.
 *
 * Threads: any function from any thread.
 */
#include "arena/exec.h"

#include "arena/block.h"
#include "arena/body.h"
#include "arena/chunk.h"
#include "arena/order.h"
#include "arena/slab.h"
#include "arena/table.h"

#define WARM_REFS_MAX (1u << 16) /* larger arrays of a builder are not kept */

struct exec_builder {
	struct exec_body *body;
	bool failed; /* sticky */
};

static uint64_t serial_last; /* guarded by the holders lock */

static struct slab execs = SLAB_INIT(struct exec);
static struct slab builders = SLAB_INIT(struct exec_builder);
/* A builder whose arrays are warm; the walks of one thread all use it. */
static struct exec_builder *_Atomic builder_spare;

struct exec_stats exec_stats;

static const char *const node_kind_names[] = {
#define X(id, name) [NODE_##id] = name,
	NODE_KINDS(X)
#undef X
};

const char *node_kind_name(enum node_kind kind)
{
	return node_kind_names[kind];
}

/* ---- building ---- */

struct exec_builder *exec_build_begin(void)
{
	/* Acquire pairs with the release half in exec_build_discard(). */
	struct exec_builder *b = swap_acq_rel(&builder_spare, NULL);

	if (b)
		return b;
	b = slab_get(&builders);
	if (!b)
		return NULL;
	b->failed = false;
	b->body = body_new();
	if (b->body)
		return b;
	slab_put(&builders, b);
	return NULL;
}

void exec_build_node(struct exec_builder *b, const struct node_desc *n)
{
	if (b && !b->failed)
		b->failed = body_add_node(b->body, n) || birth_resolve(n, b->body);
}

void exec_build_owns(struct exec_builder *b, uint64_t base)
{
	if (b && !b->failed)
		b->failed = body_add_owned(b->body, base);
}

void exec_build_frees(struct exec_builder *b, uint64_t base)
{
	if (b && !b->failed)
		b->failed = body_add_freed(b->body, base);
}

bool exec_build_unborn(const struct exec_builder *b)
{
	return b && b->body->unborn;
}

static void builder_drop(struct exec_builder *b)
{
	if (!b)
		return;
	body_free(b->body);
	slab_put(&builders, b);
}

void exec_build_discard(struct exec_builder *b)
{
	if (!b)
		return;
	body_clear(b->body);
	b->failed = false;
	/* Release pairs with the acquire in exec_build_begin(). */
	if (b->body->refs_cap <= WARM_REFS_MAX)
		b = swap_acq_rel(&builder_spare, b);
	builder_drop(b);
}

struct exec_body *exec_builder_take(const struct exec_builder *b)
{
	return b && !b->failed ? body_pack(b->body) : NULL;
}

const struct exec_body *exec_builder_body(const struct exec_builder *b)
{
	return b && !b->failed ? b->body : NULL;
}

/* ---- holders ---- */

void exec_mark_holders(struct range *owner)
{
	uint32_t count = load_relaxed(&owner->holders_count);

	/* Who holds a block in it is not listed: rare enough to judge all. */
	for (struct exec *e = NULL; load_relaxed(&owner->inner) != 0 && (e = table_next(e));)
		or_release(&e->mark, MARK_JUDGE);
	/* Pairs with the acquire in guard_launch(). */
	for (uint32_t i = 0; i < count; i++)
		or_release(&owner->holders[i].exec->mark, MARK_JUDGE);
}

void exec_hold(struct exec *e, struct exec_owner *o)
{
	if (o->own || o->held)
		return;
	o->held = ledger_hold(o->range, e) == 0;
	if (!o->held)
		counter_bump(&exec_stats.dropped);
}

/* Hold what @fresh has, release what only the present body has. Holders lock held. */
static void hold_instead(struct exec *e, struct exec_body *fresh)
{
	struct exec_body *old = e->body;

	for (uint32_t i = 0; fresh && i < fresh->owners_count; i++) {
		struct exec_owner *o = &fresh->owners[i];
		uint32_t k = old ? body_owner(old, o->range) : OWNER_NONE;

		if (k != OWNER_NONE && old->owners[k].held && !o->own) {
			o->held = 1;
			old->owners[k].held = 0;
		} else {
			exec_hold(e, o);
		}
	}
	for (uint32_t i = 0; old && i < old->owners_count; i++)
		if (old->owners[i].held)
			ledger_release(old->owners[i].range, e);
}

/* Is a ref of @n not sound? Holders lock held. */
static bool node_stale(const struct exec_body *b, const struct exec_node *n)
{
	for (uint32_t k = n->first; k < n->first + n->count; k++)
		if (!b->owners[b->refs[k].owner].own &&
		    ref_judge(b, n, &b->refs[k]) != STALE_REASON_COUNT)
			return true;
	return false;
}

void exec_check(struct exec *e, uint32_t first, uint32_t count)
{
	const struct exec_body *b = e->body;

	order_mark(e);
	/*
	 * Pairs with the fence between state and holders count in ledger_close_begin(): either
	 * the free sees our holder and marks, or we see its state here.
	 */
	fence_seq_cst();
	for (uint32_t i = first; i < first + count; i++) {
		if (!node_stale(b, &b->nodes[i]))
			continue;
		or_release(&e->mark, MARK_JUDGE);
		return;
	}
}

void exec_count_refs(const struct exec_body *b, uint32_t first, uint32_t count)
{
	uint64_t exact = 0;

	for (uint32_t k = first; k < first + count; k++)
		exact += b->refs[k].confidence == CONFIDENCE_EXACT;
	add_relaxed(&exec_stats.exact, exact);
	add_relaxed(&exec_stats.structs, count - exact);
}

void exec_count_body(const struct exec_body *b)
{
	add_relaxed(&exec_stats.nodes, b->nodes_count);
	add_relaxed(&exec_stats.suspects, b->suspects);
	for (uint32_t i = 0; i < b->nodes_count; i++)
		counter_bump(&exec_stats.kinds[b->nodes[i].kind]);
	exec_count_refs(b, 0, b->refs_count);
}

void exec_mark_all(void)
{
	/* Release pairs with the acquire in guard_launch(). */
	for (struct exec *e = table_next(NULL); e; e = table_next(e))
		or_release(&e->mark, MARK_JUDGE);
}

struct exec_body *exec_publish(struct exec *e, struct exec_body *fresh)
{
	struct exec_body *old = e->body;

	if (old)
		order_departed(e);
	hold_instead(e, fresh);
	if (old)
		fresh->reported = old->reported;
	/* The holders lock orders it: guard_set_unsafe() marks what is in the table. */
	if (load_relaxed(&guard_unsafe))
		or_release(&e->mark, MARK_JUDGE);
	e->body = fresh;
	store_relaxed(&e->nodes_count, fresh->nodes_count);
	if (fresh->owned_count || body_frees(fresh, 0))
		or_release(&e->mark, MARK_OWNS);
	exec_check(e, 0, fresh->nodes_count);
	return old;
}

/* ---- life ---- */

/* Take @e apart. Holders lock held. @return its body, to be freed without the lock. */
static struct exec_body *exec_drop(struct exec *e)
{
	struct exec_body *b = e->body;

	order_departed(e);
	table_remove(e);
	hold_instead(e, NULL);
	slab_put(&execs, e);
	return b;
}

static struct exec *exec_new(uint64_t context)
{
	struct exec *e = slab_get(&execs);

	if (!e)
		return NULL;
	e->context = context;
	e->body = NULL;
	store_relaxed(&e->mark, 0);
	store_relaxed(&e->last_stream, 0);
	store_relaxed(&e->last_ticket, 0);
	return e;
}

void exec_open(uint64_t handle, uint64_t context, struct exec_builder *b)
{
	struct exec_body *body = exec_builder_take(b), *replaced = NULL;
	struct exec *e = body ? exec_new(context) : NULL, *old;
	uint64_t serial = 0, count = 0;

	exec_build_discard(b);
	block_tell_freed();
	counter_bump(e ? &exec_stats.opened : &exec_stats.dropped);
	ledger_holders_lock();
	old = table_find(handle);
	if (old)
		replaced = exec_drop(old);
	if (e) {
		serial = e->serial = ++serial_last;
		count = body->nodes_count;
		exec_count_body(body);
		exec_publish(e, body);
		table_insert(e, handle);
	}
	ledger_holders_unlock();
	body_free(replaced);
	if (!e)
		body_free(body);
	else
		event_emit(.kind = EVENT_INSTANTIATE, .serial = serial, .size_bytes = count,
			   .what = "");
}

void exec_close(uint64_t handle)
{
	struct exec_body *body = NULL;
	uint64_t serial = 0, count = 0;
	struct exec *e;

	ledger_holders_lock();
	e = table_find(handle);
	if (e) {
		serial = e->serial;
		count = load_relaxed(&e->nodes_count);
		body = exec_drop(e);
	}
	ledger_holders_unlock();
	body_free(body);
	if (serial)
		event_emit(.kind = EVENT_DESTROY, .serial = serial, .size_bytes = count,
			   .what = "");
}

void exec_close_context(uint64_t context)
{
	uint64_t handle;

	/* One at a time: each gets its event, and the table may change in between. */
	do {
		struct exec *e = NULL;

		handle = 0;
		ledger_holders_lock();
		while ((e = table_next(e)) != NULL && e->context != context)
			;
		if (e)
			handle = load_relaxed(&e->handle);
		ledger_holders_unlock();
		if (handle)
			exec_close(handle);
	} while (handle);
}

void exec_read_counters(struct exec_counters *out)
{
	const struct exec_stats *s = &exec_stats;

	/* The warm builder is no mirror. */
	builder_drop(swap_acq_rel(&builder_spare, NULL));
	*out = (struct exec_counters){
		.execs_opened = load_relaxed(&s->opened),
		.nodes = load_relaxed(&s->nodes),
		.refs = load_relaxed(&s->exact) + load_relaxed(&s->structs),
		.refs_exact = load_relaxed(&s->exact),
		.refs_struct = load_relaxed(&s->structs),
		.refs_suspect = load_relaxed(&s->suspects),
		.births = load_relaxed(&s->births),
		.launches_judged = load_relaxed(&s->judged),
		.launches_stale = load_relaxed(&s->stale),
		.launches_refused = load_relaxed(&s->refused),
		.dropped = load_relaxed(&s->dropped) + load_relaxed(&launcher_lost),
		.bytes = chunk_bytes(),
	};
	for (unsigned i = 0; i < NODE_KIND_COUNT; i++)
		out->nodes_by_kind[i] = load_relaxed(&s->kinds[i]);
	ledger_holders_lock();
	out->execs_live = table_count();
	for (struct exec *e = table_next(NULL); e; e = table_next(e))
		out->nodes_live += load_relaxed(&e->nodes_count);
	ledger_holders_unlock();
	out->bytes += out->execs_live * (sizeof(struct exec) + sizeof(struct exec_body));
}
