/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash of small records, one per nested graph, chained by the graph that holds the node.
 *
 * Any thread. One spin lock, held for the walk of one chain at most; a process without nested
 * graphs pays one load. Births are detached without the lock.
 */
#include "arena/exec.h"
#include "arena/slab.h"
#include "shim/coverage.h"
#include "shim/nested.h"

#define BUCKETS 1024

struct record {
	uint64_t graph, node, inner;
	struct record *next;
};

static struct slab records = SLAB_INIT(struct record);
static struct spinlock lock = SPINLOCK_INIT;
static struct chain {
	struct record *first, *last;
} buckets[BUCKETS]; /* guarded by lock; newest last */
static _Atomic uint32_t records_count;

static struct chain *bucket_of(uint64_t graph)
{
	return &buckets[(graph * 0x9E3779B97F4A7C15u) >> 54];
}

static bool none(void)
{
	/* Nothing is ordered by it: who knows a graph was told of it after it was counted. */
	return load_relaxed(&records_count) == 0;
}

void nested_add(uint64_t graph, uint64_t node, uint64_t inner)
{
	struct record *r = slab_get(&records);
	struct chain *c = bucket_of(graph);

	if (r == NULL) {
		coverage_count(NO_MEMORY);
		return;
	}
	*r = (struct record){ .graph = graph, .node = node, .inner = inner };
	spin_lock(&lock);
	*(c->last ? &c->last->next : &c->first) = r;
	c->last = r;
	add_relaxed(&records_count, 1);
	spin_unlock(&lock);
}

uint64_t nested_get(uint64_t graph, uint64_t node, uint32_t index)
{
	uint64_t inner = 0;

	if (none())
		return 0;
	spin_lock(&lock);
	for (const struct record *r = bucket_of(graph)->first; r; r = r->next)
		if (r->graph == graph && r->node == node && index-- == 0) {
			inner = r->inner;
			break;
		}
	spin_unlock(&lock);
	return inner;
}

/* @brief Take out the oldest record of chain @c that is of @graph (0: any) and @node (0: any).
 * @return NULL: there is none. */
static struct record *take(struct chain *c, uint64_t graph, uint64_t node)
{
	struct record *r, *before = NULL;

	spin_lock(&lock);
	r = c->first;
	while (r && ((graph && r->graph != graph) || (node && r->node != node))) {
		before = r;
		r = r->next;
	}
	if (r) {
		*(before ? &before->next : &c->first) = r->next;
		if (c->last == r)
			c->last = before;
		add_relaxed(&records_count, -1u);
	}
	spin_unlock(&lock);
	return r;
}

/* Back to where it was: in front of those that are newer. */
static void put_back(struct record *r)
{
	struct chain *c = bucket_of(r->graph);

	spin_lock(&lock);
	r->next = c->first;
	c->first = r;
	if (c->last == NULL)
		c->last = r;
	add_relaxed(&records_count, 1);
	spin_unlock(&lock);
}

void nested_detach_graph(uint64_t graph, struct nested_gone *out)
{
	struct record *r;

	/* Ends: each round takes a record out, so that a cycle of reused handles breaks too. */
	while (!none() && (r = take(bucket_of(graph), graph, 0)) != NULL) {
		r->next = out->records;
		out->records = r;
		nested_detach_graph(r->inner, out);
	}
	out->births = birth_detach_graph(graph, out->births);
}

void nested_detach_node(uint64_t node, struct nested_gone *out)
{
	struct record *r;

	for (int i = 0; i < BUCKETS && !none(); i++)
		while ((r = take(&buckets[i], 0, node)) != NULL) {
			r->next = out->records;
			out->records = r;
			nested_detach_graph(r->inner, out);
		}
	out->births = birth_detach_node(node, out->births);
}

void nested_settle(struct nested_gone *gone, bool done)
{
	struct record *next;

	/* Newest first, each in front of the one before: the old order. */
	for (struct record *r = gone->records; r; r = next) {
		next = r->next;
		if (done)
			slab_put(&records, r);
		else
			put_back(r);
	}
	if (done)
		birth_drop(gone->births);
	else
		birth_attach(gone->births);
}

void nested_forget_graph(uint64_t graph)
{
	struct nested_gone gone = { .records = NULL };

	nested_detach_graph(graph, &gone);
	nested_settle(&gone, true);
}
