/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirror follows its exec: cuGraphExecUpdate, Exec*SetParams, SetEnabled. Called after the
 * driver did it; a mirror that cannot follow is dropped and counted.
 *
 * Threads: any. Words are resolved and bodies freed without the holders lock.
 */
#include <errno.h>

#include "arena/body.h"
#include "arena/table.h"

#define LOOSE_REFS_MAX	64 /* plus half of all: then a body is packed again */
#define DEAD_OWNERS_MAX 16

static void emit_update(uint64_t serial, uint64_t count)
{
	if (serial)
		event_emit(.kind = EVENT_UPDATE, .serial = serial, .size_bytes = count, .what = "");
}

/* A mirror that could not follow its exec is worse than none. */
static void exec_give_up(uint64_t handle)
{
	counter_bump(&exec_stats.dropped);
	exec_close(handle);
}

/* Nodes [@first, @first + @b->nodes_count) of @old stay what they are, whatever @b says. */
static void keep_identity(struct exec_body *b, const struct exec_body *old, uint32_t first)
{
	for (uint32_t i = 0; i < b->nodes_count; i++) {
		b->nodes[i].key = old->nodes[first + i].key;
		b->nodes[i].disabled = old->nodes[first + i].disabled;
	}
}

/*
 * The driver pairs the nodes of the two graphs by their edges, we by their order. Is there a reason
 * to doubt that it comes to the same? None if it is the template itself.
 */
static bool is_paired(const struct exec_body *old, const struct exec_body *now)
{
	bool same = old->nodes_count == now->nodes_count, doubt = !same;

	for (uint32_t i = 0; i < old->nodes_count && i < now->nodes_count; i++) {
		const struct exec_node *a = &old->nodes[i], *b = &now->nodes[i];

		same &= a->key == b->key;
		doubt |= a->disabled || a->kind != b->kind || a->name != b->name ||
			 a->depth != b->depth;
	}
	return same || !doubt;
}

bool exec_update(uint64_t handle, struct exec_builder *b)
{
	struct exec_body *body = exec_builder_take(b);
	uint64_t serial = 0, count = 0;
	bool paired = true;
	struct exec *e;

	exec_build_discard(b);
	if (!body) {
		exec_give_up(handle);
		return true;
	}
	ledger_holders_lock();
	e = table_find(handle);
	if (e) {
		serial = e->serial;
		count = body->nodes_count;
		paired = is_paired(e->body, body);
		/* Other counts: a walk was cut short; then the new graph's own keys are best. */
		if (count == e->body->nodes_count)
			keep_identity(body, e->body, 0);
		exec_count_body(body);
		body = exec_publish(e, body);
	}
	ledger_holders_unlock();
	body_free(body);
	emit_update(serial, count);
	return paired;
}

/* Node @i of @e gets what @from has. Holders lock held. @return false: no memory. */
static bool edit_node(struct exec *e, uint32_t i, const struct exec_body *from)
{
	struct exec_body *b = e->body;
	const struct exec_node *n = &b->nodes[i];

	suspect_forget_node(&b->found, i);
	if (body_replace(b, i, from))
		return false;
	for (uint32_t k = n->first; k < n->first + n->count; k++)
		exec_hold(e, &b->owners[b->refs[k].owner]);
	exec_count_refs(b, n->first, n->count);
	exec_check(e, i, 1);
	return true;
}

/* Time to drop what node updates left behind? */
static bool is_loose(const struct exec_body *b)
{
	return b->refs_loose > LOOSE_REFS_MAX + b->refs_count / 2 ||
	       b->owners_dead > DEAD_OWNERS_MAX + b->owners_count / 2;
}

void exec_set_node(uint64_t handle, const struct node_desc *n)
{
	struct exec_body *from = body_new(), *packed, *old = NULL;
	bool ok = from && body_add_node(from, n) == 0;
	uint64_t serial = 0, count = 0;
	struct exec *e;
	uint32_t i;

	for (i = 0; ok && i < n->words_count; i++)
		ok = body_add_word(from, &n->words[i]) == 0;
	ledger_holders_lock();
	e = table_find(handle);
	if (e && ok) {
		i = body_node(e->body, n->node);
		ok = i == e->body->nodes_count || edit_node(e, i, from);
		serial = e->serial;
		count = e->body->nodes_count;
		packed = is_loose(e->body) ? body_pack(e->body) : NULL;
		if (packed) {
			packed->found = e->body->found;
			e->body->found = NULL;
			old = exec_publish(e, packed);
		}
	}
	ledger_holders_unlock();
	body_free(from);
	body_free(old);
	if (ok)
		emit_update(serial, count);
	else
		exec_give_up(handle);
}

/* @old with the nodes below node @at replaced by those of @b. */
static struct exec_body *splice(const struct exec_body *old, uint32_t at, struct exec_body *b)
{
	uint32_t depth = old->nodes[at].depth, end = at + 1;
	struct exec_body *to = body_new();
	int err = to ? 0 : -ENOMEM;

	while (end < old->nodes_count && old->nodes[end].depth > depth)
		end++;
	if (b->nodes_count == end - at - 1)
		keep_identity(b, old, at + 1);
	if (!err)
		err = body_add_memory(to, old);
	for (uint32_t i = 0; !err && i <= at; i++)
		err = body_add_copy(to, old, i, 0);
	for (uint32_t i = 0; !err && i < b->nodes_count; i++)
		err = body_add_copy(to, b, i, depth + 1);
	for (uint32_t i = end; !err && i < old->nodes_count; i++)
		err = body_add_copy(to, old, i, 0);
	if (!err)
		return to;
	body_free(to);
	return NULL;
}

void exec_set_child(uint64_t handle, uint64_t node, struct exec_builder *b)
{
	struct exec_body *body = exec_builder_take(b), *to = NULL, *old = NULL;
	uint64_t serial = 0, count = 0;
	bool ok = body != NULL;
	struct exec *e;

	exec_build_discard(b);
	ledger_holders_lock();
	e = table_find(handle);
	if (e && ok) {
		uint32_t at = body_node(e->body, node);

		if (at < e->body->nodes_count) {
			to = splice(e->body, at, body);
			ok = to != NULL;
		}
		if (to) {
			exec_count_body(body);
			serial = e->serial;
			count = to->nodes_count;
			old = exec_publish(e, to);
		}
	}
	ledger_holders_unlock();
	body_free(body);
	body_free(old);
	if (ok)
		emit_update(serial, count);
	else
		exec_give_up(handle);
}

void exec_set_enabled(uint64_t handle, uint64_t node, bool enabled)
{
	struct exec *e;
	uint32_t i;

	ledger_holders_lock();
	e = table_find(handle);
	i = e ? body_node(e->body, node) : 0;
	if (e && i < e->body->nodes_count) {
		e->body->nodes[i].disabled = !enabled;
		/* What happened while it was disabled counts again. */
		if (enabled)
			or_release(&e->mark, MARK_JUDGE);
	}
	ledger_holders_unlock();
}
