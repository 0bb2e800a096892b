/* SPDX-License-Identifier: Apache-2.0 */
/* A made-up program for tests of the core: memory, templates, execs; what was found is kept. */
#ifndef TESTS_UNIT_WORLD_H
#define TESTS_UNIT_WORLD_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/device.h"
#include "arena/exec.h"
#include "arena/intern.h"
#include "arena/ledger.h"

#define MIB    (1ull << 20)
#define STREAM 0x5000ull

/* The newest finding, with refs of its own, and how many there were. */
static struct finding world_found;
static struct finding_ref world_refs[8192];
static unsigned world_findings;

static inline void world_finding(const struct finding *f)
{
	world_findings++;
	world_found = *f;
	cr_assert(f->refs_count <= sizeof(world_refs) / sizeof(world_refs[0]));
	if (f->refs_count)
		memcpy(world_refs, f->refs, f->refs_count * sizeof(*f->refs));
	world_found.refs = world_refs;
}

static inline void world_start(void)
{
	cr_assert_eq(ledger_init(), 0);
	device.finding = world_finding;
}

static inline struct range *world_open(uint64_t base, uint64_t size_bytes, enum range_kind kind)
{
	struct range *r = ledger_open(&(struct range_desc){
		.base = base, .size_bytes = size_bytes, .kind = kind, .context = 1 });

	cr_assert_not_null(r);
	return r;
}

static inline struct range *world_alloc(uint64_t base)
{
	return world_open(base, MIB, RANGE_DEVICE);
}

static inline void world_free(uint64_t base)
{
	struct range *r = ledger_close_begin(base, 0);

	cr_assert_not_null(r);
	ledger_close_end(r, true);
}

static inline void world_map(uint64_t base, uint64_t size_bytes)
{
	cr_assert_not_null(ledger_map(&(struct range_desc){
		.base = base, .size_bytes = size_bytes, .kind = RANGE_MAPPED }));
}

static inline void world_unmap(uint64_t base, uint64_t size_bytes)
{
	struct unmap_batch b = { 0 };

	ledger_unmap_begin(base, size_bytes, 0, &b);
	ledger_unmap_end(&b, true);
}

static inline struct word word_at(unsigned param, uint64_t value)
{
	return (struct word){ .value = value,
			      .param = (uint16_t)param,
			      .confidence = CONFIDENCE_EXACT };
}

/* A kernel node "k<node>" with up to 4 pointer parameters; 0 ends them. */
struct world_node {
	struct node_desc desc;
	struct word words[4];
	char name[32];
};

static inline const struct node_desc *world_kernel(struct world_node *n, uint64_t graph,
						   uint64_t node, const uint64_t *values)
{
	uint32_t count = 0;

	for (; count < 4 && values[count]; count++)
		n->words[count] = word_at(count, values[count]);
	snprintf(n->name, sizeof(n->name), "k%lu", (unsigned long)node);
	n->desc = (struct node_desc){ .graph = graph,
				      .node = node,
				      .kind = NODE_KERNEL,
				      .name = intern(n->name),
				      .words = n->words,
				      .words_count = count };
	return &n->desc;
}

#define KERNEL(graph, node, ...)                                          \
	world_kernel(&(struct world_node){ .name = "" }, (graph), (node), \
		     (const uint64_t[]){ __VA_ARGS__, 0, 0, 0, 0 })

/* An exec with one kernel node, whose key is node 1 of graph 1. */
static inline struct exec *world_exec(uint64_t handle, const struct node_desc *n)
{
	struct exec_builder *b = exec_build_begin();

	exec_build_node(b, n);
	exec_open(handle, 1, b);
	cr_assert_not_null(exec_find(handle));
	return exec_find(handle);
}

static inline struct exec_counters world_counters(void)
{
	struct exec_counters c;

	exec_read_counters(&c);
	return c;
}

/* Does the newest finding list @base as @reason? */
static inline bool world_lists(uint64_t base, enum stale_reason reason)
{
	for (uint32_t i = 0; i < world_found.refs_count; i++)
		if (world_refs[i].old.base == base && world_refs[i].reason == reason)
			return true;
	return false;
}

#endif
