/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a report does not have about a life, and how to get it: a gap that is not named looks like
 * a proof.
 *
 * Threads: one.
 */
#include <inttypes.h>
#include <string.h>

#include "explain.h"
#include "merge.h"

struct gathering {
	struct pool *pool;
	struct life *life;
};

static void add_gap(struct gathering *g, const char *what, const char *how)
{
	struct life_gap gap = { what, how };

	LIST_ADD(g->pool, g->life->gaps, gap);
}

static const char *option(const struct report *r, const char *name)
{
	for (size_t i = 0; r->start && i < r->start->options.count; i++)
		if (!strcmp(r->start->options.v[i].key, name))
			return r->start->options.v[i].text;
	return "";
}

static void find_stack_gaps(struct gathering *g)
{
	const struct life *l = g->life;
	size_t unknown = 0;

	for (size_t i = 0; i < l->memory.count; i++)
		unknown += !l->memory.v[i].range.stack_open;
	if (!strcmp(option(l->report, "ARENA_STACKS"), "off"))
		add_gap(g, "call stacks: who allocated, freed and launched",
			"run with ARENA_STACKS=findings, or all");
	else if (unknown)
		add_gap(g,
			pool_print(g->pool, "who allocated %zu of %zu pieces of memory", unknown,
				   l->memory.count),
			"run with ARENA_STACKS=all: blocks of PyTorch have none otherwise");
}

void explain_gaps(struct pool *pool, struct life *life)
{
	struct gathering gathering = { pool, life }, *g = &gathering;
	const struct report *r = life->report;
	uint64_t unlisted = r->refs_total - r->refs_listed;
	bool reloads = false;

	if (strcmp(option(r, "ARENA_TRACE"), "on"))
		add_gap(g,
			"when memory was allocated, mapped and freed, and when graphs were "
			"instantiated, updated and launched",
			"run with ARENA_TRACE=on");
	find_stack_gaps(g);
	if (!strcmp(option(r, "ARENA_BLOCKS"), "off"))
		add_gap(g, "blocks of PyTorch's allocator", "run with ARENA_BLOCKS=cuda");
	for (size_t i = 0; i < r->reloads.count; i++)
		reloads |= r->reloads.v[i]->id != 0;
	if (!reloads)
		add_gap(g, "phases: the program told of no reload",
			"arena.reload() around it, or an NVTX range arena:reload");
	if (unlisted)
		add_gap(g,
			pool_print(g->pool,
				   "%" PRIu64 " captured words of findings that are only "
				   "counted",
				   unlisted),
			NULL);
	if (!r->exit)
		add_gap(g, "how it ended: there is no exit line", "it was killed, or still runs");
	else if (r->exit->lines_lost || r->exit->findings_left_out)
		add_gap(g,
			pool_print(g->pool,
				   "%" PRIu64 " lines that could not be written, %" PRIu64
				   " findings beyond the limit",
				   r->exit->lines_lost, r->exit->findings_left_out),
			NULL);
	if (r->interleaved)
		add_gap(g,
			"a file of its own: lines of several processes are mixed, stacks may be "
			"another's",
			"set ARENA_REPORT with %p in the name");
}
