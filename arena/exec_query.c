/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which execs refer to given pieces of memory: many questions, one pass over what was captured.
 *
 * The extents that are asked for lie in one array, in the order of generation and base, each
 * with how far it and those before it of its generation reach; every ref is looked up in it.
 *
 * Threads: any; the holders lock, which guards the bodies, is held by the caller.
 */
#include <errno.h>

#include "arena/binding.h"
#include "arena/body.h"
#include "arena/slab.h"
#include "arena/table.h"

struct asked {
	struct exec_extent extent;
	struct exec_query *query;
	uint64_t reach;
	bool is_now;
};

struct asked_list {
	struct asked *list;
	uint32_t count, cap;
};

static bool is_before(const struct exec_extent *a, const struct exec_extent *b)
{
	return a->generation != b->generation ? a->generation < b->generation : a->base < b->base;
}

/* Shell sort: no recursion, no memory. */
static void sort(const struct asked_list *l)
{
	for (uint32_t gap = l->count / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11)
		for (uint32_t i = gap; i < l->count; i++) {
			struct asked x = l->list[i];
			uint32_t k = i;

			for (; k >= gap && is_before(&x.extent, &l->list[k - gap].extent); k -= gap)
				l->list[k] = l->list[k - gap];
			l->list[k] = x;
		}
}

static void reach(const struct asked_list *l)
{
	for (uint32_t i = 0; i < l->count; i++) {
		const struct exec_extent *x = &l->list[i].extent;
		bool goes_on = i > 0 && l->list[i - 1].extent.generation == x->generation;

		l->list[i].reach = x->end;
		if (goes_on && l->list[i - 1].reach > x->end)
			l->list[i].reach = l->list[i - 1].reach;
	}
}

/* How many lie at or before (@generation, @addr). */
static uint32_t floor_of(const struct asked_list *l, uint64_t generation, uint64_t addr)
{
	const struct exec_extent key = { .generation = generation, .base = addr };
	uint32_t low = 0, high = l->count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (is_before(&key, &l->list[mid].extent))
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/* Exec @serial refers to @a: each exec counts once, and for the old extent only if for both. */
static void count_exec(const struct asked *a, uint64_t serial)
{
	struct exec_query *q = a->query;

	if (a->is_now) {
		if (q->now_seen != serial && q->old_seen != serial)
			q->now_execs++;
		q->now_seen = serial;
	} else if (q->old_seen != serial) {
		q->old_seen = serial;
		q->old_execs++;
		q->now_execs -= q->now_seen == serial;
	}
}

static void look_up(const struct asked_list *l, const struct exec *e, const struct exec_node *n,
		    const struct exec_ref *r)
{
	uint64_t generation = e->body->owners[r->owner].generation, addr = body_value(e->body, r);
	const struct binding_ref bound = { addr, generation, n->birth };

	for (uint32_t at = floor_of(l, generation, addr); at > 0; at--) {
		const struct asked *a = &l->list[at - 1];
		const struct exec_extent *x = &a->extent;

		if (x->generation != generation || a->reach <= addr)
			return;
		if (x->end > addr && n->birth >= x->since && n->birth < x->before &&
		    (!x->slot || binding_means(x->slot, &bound)))
			count_exec(a, e->serial);
	}
}

static void look_at(const struct asked_list *l, const struct exec *e)
{
	struct exec_body *b = e->body;

	/* Most owners are nobody's question. */
	for (uint32_t i = 0; i < b->owners_count; i++) {
		uint64_t generation = b->owners[i].generation;
		uint32_t at = floor_of(l, generation, UINT64_MAX);

		b->owners[i].seen = at > 0 && l->list[at - 1].extent.generation == generation;
	}
	for (uint32_t i = 0; i < b->nodes_count; i++) {
		const struct exec_node *n = &b->nodes[i];

		for (uint32_t k = n->first; !n->disabled && k < n->first + n->count; k++)
			if (b->owners[b->refs[k].owner].seen)
				look_up(l, e, n, &b->refs[k]);
	}
}

static int add(struct asked_list *l, struct exec_query *q, const struct exec_extent *x, bool is_now)
{
	if (!x->owner)
		return 0;
	if (pages_grow(&l->list, &l->cap, l->count + 1, sizeof(*l->list)) != 0)
		return -ENOMEM;
	l->list[l->count++] = (struct asked){ .extent = *x, .query = q, .is_now = is_now };
	return 0;
}

struct adding {
	struct asked_list *list;
	struct exec_query *query;
};

static int add_again(void *ctx, const struct exec_extent *x)
{
	const struct adding *a = ctx;

	return add(a->list, a->query, x, false);
}

/* @q's extents, and those whose refs mean the same slot since its memory came back (rule 4). */
static int add_all(struct asked_list *l, struct exec_query *q)
{
	struct adding a = { l, q };
	int err = add(l, q, &q->old, false);

	err = err ? err : binding_each_again(&q->old, add_again, &a);
	return err ? err : add(l, q, &q->now, true);
}

int exec_answer(struct exec_query *queries, uint32_t count)
{
	struct asked_list l = { .list = NULL };
	int err = 0;

	for (uint32_t i = 0; i < count && !err; i++)
		err = add_all(&l, &queries[i]);
	if (!err) {
		sort(&l);
		reach(&l);
	}
	for (struct exec *e = table_next(NULL); e && l.count && !err; e = table_next(e))
		look_at(&l, e);
	pages_put(l.list, l.cap * sizeof(*l.list));
	return err;
}
