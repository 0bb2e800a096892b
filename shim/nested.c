/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash of small records, one per nested graph, chained by the graph that holds the node.
 *
 * Any thread. One spin lock, held for the walk of one chain; a process without nested graphs pays
 * one load. Births are forgotten without the lock.
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
static struct record *buckets[BUCKETS]; /* guarded by lock; newest first */
static _Atomic uint32_t records_count;

static struct record **bucket_of(uint64_t graph)
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
	struct record **at = bucket_of(graph);

	if (r == NULL) {
		coverage_count(NO_MEMORY);
		return;
	}
	*r = (struct record){ .graph = graph, .node = node, .inner = inner };
	spin_lock(&lock);
	while (*at)
		at = &(*at)->next;
	*at = r;
	add_relaxed(&records_count, 1);
	spin_unlock(&lock);
}

uint64_t nested_get(uint64_t graph, uint64_t node, uint32_t index)
{
	uint64_t inner = 0;

	if (none())
		return 0;
	spin_lock(&lock);
	for (const struct record *r = *bucket_of(graph); r; r = r->next)
		if (r->graph == graph && r->node == node && index-- == 0) {
			inner = r->inner;
			break;
		}
	spin_unlock(&lock);
	return inner;
}

/* @brief Take out one record of the chain at @at that is of @graph (0: any) and @node (0: any).
 * @return the graph it held, or 0. */
static uint64_t take(struct record **at, uint64_t graph, uint64_t node)
{
	struct record *r;
	uint64_t inner = 0;

	spin_lock(&lock);
	while (*at && ((graph && (*at)->graph != graph) || (node && (*at)->node != node)))
		at = &(*at)->next;
	r = *at;
	if (r) {
		inner = r->inner;
		*at = r->next;
		add_relaxed(&records_count, -1u);
	}
	spin_unlock(&lock);
	if (r)
		slab_put(&records, r);
	return inner;
}

void nested_forget_graph(uint64_t graph)
{
	uint64_t inner;

	/* Ends: each round takes a record out, so that a cycle of reused handles breaks too. */
	while (!none() && (inner = take(bucket_of(graph), graph, 0)) != 0)
		nested_forget_graph(inner);
	birth_forget_graph(graph);
}

void nested_forget_node(uint64_t node)
{
	uint64_t inner;

	for (int i = 0; i < BUCKETS && !none(); i++)
		while ((inner = take(&buckets[i], 0, node)) != 0)
			nested_forget_graph(inner);
	birth_forget_node(0, node);
}
