/* SPDX-License-Identifier: Apache-2.0 */
/* Who refers to what: random questions against a look at every ref. */
#include "world.h"

#include "arena/body.h"
#include "seed.h"

enum { RANGES = 3, EXECS = 12, NODES = 4, WORDS = 4, QUERIES = 40, SPAN = 2000 };

#define BASE(r) (0x7f0000000000ull + (r)*16 * MIB)

static uint64_t seed;
static struct range *ranges[RANGES];

static struct exec_extent extent(void)
{
	unsigned r = (unsigned)seed_below(&seed, RANGES + 1);
	struct exec_extent x = { .since = (uint32_t)seed_below(&seed, 10) };

	if (r == RANGES)
		return x; /* not asked for */
	x.owner = ranges[r];
	x.generation = load_relaxed(&ranges[r]->generation) + (seed_below(&seed, 10) == 0) * 99;
	x.base = BASE(r) + seed_below(&seed, SPAN);
	x.end = x.base + 1 + seed_below(&seed, seed_below(&seed, 2) ? SPAN : 20);
	x.before = x.since + (uint32_t)seed_below(&seed, 10);
	return x;
}

static bool refers(const struct exec *e, const struct exec_extent *x)
{
	const struct exec_body *b = e->body;

	for (uint32_t i = 0; i < b->nodes_count; i++)
		for (uint32_t k = b->nodes[i].first; k < b->nodes[i].first + b->nodes[i].count; k++)
			if (x->owner && !b->nodes[i].disabled && b->nodes[i].birth >= x->since &&
			    b->nodes[i].birth < x->before &&
			    b->owners[b->refs[k].owner].generation == x->generation &&
			    body_value(b, &b->refs[k]) >= x->base &&
			    body_value(b, &b->refs[k]) < x->end)
				return true;
	return false;
}

static void make_execs(void)
{
	for (unsigned e = 0; e < EXECS; e++) {
		struct exec_builder *b = exec_build_begin();

		for (unsigned n = 0; n < NODES; n++) {
			uint64_t words[WORDS];

			for (unsigned w = 0; w < WORDS; w++)
				words[w] = BASE(seed_below(&seed, RANGES)) +
					   seed_below(&seed, 2 * SPAN);
			exec_build_node(b,
					KERNEL(1, n + 1, words[0], words[1], words[2], words[3]));
		}
		exec_open(e + 1, 1, b);
		exec_set_enabled(e + 1, 1, seed_below(&seed, 3) != 0);
		for (unsigned n = 0; n < NODES; n++)
			exec_find(e + 1)->body->nodes[n].birth = (uint32_t)seed_below(&seed, 20);
	}
}

TestSuite(exec_query, .init = world_start);

Test(exec_query, model)
{
	struct exec_query queries[QUERIES];
	unsigned answers = 0;

	seed = seed_start("exec_query");
	for (unsigned r = 0; r < RANGES; r++)
		ranges[r] = world_alloc(BASE(r));
	for (unsigned round = 0; round < 300; round++) {
		make_execs();
		for (unsigned i = 0; i < QUERIES; i++)
			queries[i] = (struct exec_query){ .old = extent(), .now = extent() };
		ledger_holders_lock();
		cr_assert_eq(exec_answer(queries, QUERIES), 0);
		for (unsigned i = 0; i < QUERIES; i++) {
			uint32_t old = 0, now = 0;

			for (unsigned e = 0; e < EXECS; e++) {
				bool to_old = refers(exec_find(e + 1), &queries[i].old);

				old += to_old;
				now += !to_old && refers(exec_find(e + 1), &queries[i].now);
			}
			cr_assert_eq(queries[i].old_execs, old, "round %u query %u", round, i);
			cr_assert_eq(queries[i].now_execs, now, "round %u query %u", round, i);
			answers += old + now;
		}
		ledger_holders_unlock();
	}
	cr_assert_gt(answers, 1000);
}

Test(exec_query, no_question)
{
	struct exec_query q = { .old_execs = 0 };

	ledger_holders_lock();
	cr_assert_eq(exec_answer(NULL, 0), 0);
	cr_assert_eq(exec_answer(&q, 1), 0);
	ledger_holders_unlock();
	cr_assert_eq(q.old_execs + q.now_execs, 0);
}
