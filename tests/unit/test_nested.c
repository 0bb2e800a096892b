/* SPDX-License-Identifier: Apache-2.0 */
/* The table of nested graphs, with the births replaced by a list of what was forgotten. */
#include <criterion/criterion.h>

#include "arena/exec.h"
#include "shim/coverage.h"
#include "shim/nested.h"

counter_t coverage[COVERAGE_COUNT];

static uint64_t forgotten[64];
static unsigned forgotten_count;

static void forget(uint64_t what)
{
	cr_assert_lt(forgotten_count, 64);
	forgotten[forgotten_count++] = what;
}

struct birth *birth_detach_graph(uint64_t graph, struct birth *list)
{
	forget(graph);
	return list;
}

struct birth *birth_detach_node(uint64_t node, struct birth *list)
{
	forget(node);
	return list;
}

void birth_attach(struct birth *list)
{
}

void birth_drop(struct birth *list)
{
}

static bool was_forgotten(uint64_t what)
{
	for (unsigned i = 0; i < forgotten_count; i++)
		if (forgotten[i] == what)
			return true;
	return false;
}

Test(nested, bodies_come_in_the_order_they_were_added)
{
	nested_add(0x100, 0x1, 0x200);
	nested_add(0x100, 0x2, 0x300);
	nested_add(0x100, 0x1, 0x201);
	cr_assert_eq(nested_get(0x100, 0x1, 0), 0x200);
	cr_assert_eq(nested_get(0x100, 0x1, 1), 0x201);
	cr_assert_eq(nested_get(0x100, 0x1, 2), 0);
	cr_assert_eq(nested_get(0x101, 0x1, 0), 0);
}

Test(nested, a_graph_takes_all_inside_it_along)
{
	nested_add(0x100, 0x1, 0x200);
	nested_add(0x100, 0x3, 0x600);
	nested_add(0x200, 0x2, 0x300);
	nested_add(0x400, 0x4, 0x500);
	nested_forget_graph(0x100);
	cr_assert(was_forgotten(0x600));
	cr_assert(was_forgotten(0x100) && was_forgotten(0x200) && was_forgotten(0x300));
	cr_assert_not(was_forgotten(0x500));
	cr_assert_eq(nested_get(0x100, 0x1, 0), 0);
	cr_assert_eq(nested_get(0x400, 0x4, 0), 0x500);
}

Test(nested, a_node_takes_its_bodies_along_and_leaves_the_rest)
{
	struct nested_gone gone = { .records = NULL };

	nested_add(0x100, 0x1, 0x200);
	nested_add(0x100, 0x1, 0x201);
	nested_add(0x100, 0x2, 0x300);
	nested_detach_node(0x1, &gone);
	nested_settle(&gone, true);
	cr_assert(was_forgotten(0x1) && was_forgotten(0x200) && was_forgotten(0x201));
	cr_assert_not(was_forgotten(0x100) || was_forgotten(0x300));
	cr_assert_eq(nested_get(0x100, 0x2, 0), 0x300);
}

Test(nested, a_refusal_puts_all_back_in_order)
{
	struct nested_gone gone = { .records = NULL };

	nested_add(0x100, 0x1, 0x200);
	nested_add(0x100, 0x1, 0x201);
	nested_add(0x200, 0x2, 0x300);
	nested_detach_graph(0x100, &gone);
	cr_assert_eq(nested_get(0x100, 0x1, 0), 0);
	nested_settle(&gone, false);
	cr_assert_eq(nested_get(0x100, 0x1, 0), 0x200);
	cr_assert_eq(nested_get(0x100, 0x1, 1), 0x201);
	cr_assert_eq(nested_get(0x200, 0x2, 0), 0x300);
	nested_add(0x100, 0x1, 0x202);
	cr_assert_eq(nested_get(0x100, 0x1, 2), 0x202);
}

Test(nested, a_circle_of_reused_handles_ends)
{
	nested_add(0x100, 0x1, 0x200);
	nested_add(0x200, 0x2, 0x100);
	nested_forget_graph(0x100);
	cr_assert(was_forgotten(0x100) && was_forgotten(0x200));
	cr_assert_eq(nested_get(0x200, 0x2, 0), 0);
}

Test(nested, many_graphs)
{
	for (uint64_t i = 1; i <= 5000; i++)
		nested_add(i << 6, i, i + 100000);
	for (uint64_t i = 1; i <= 5000; i++)
		cr_assert_eq(nested_get(i << 6, i, 0), i + 100000);
}
