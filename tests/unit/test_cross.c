/* SPDX-License-Identifier: Apache-2.0 */
/* Two sources on the same templates: what only one of them has is named, and nothing else. */
#include "world.h"

#include "arena/cross.h"
#include "arena/witness.h"

#define A (0x7f0000000000ull)
#define B (A + 16 * MIB)
#define G 0x100ull

static struct cross_result r;

static void start(void)
{
	world_start();
	world_alloc(A);
	world_alloc(B);
	witness_expect_graph(true);
	witness_graph(G, 0);
	witness_expect_graph(false);
}

static void told(uint64_t node, uint64_t first, uint64_t second)
{
	witness_node(KERNEL(G, node, first, second));
}

static struct exec_builder *walked(uint64_t node, uint64_t first, uint64_t second)
{
	struct exec_builder *b = exec_build_begin();

	exec_build_node(b, KERNEL(G, node, first, second));
	return b;
}

static bool is_known(uint64_t node)
{
	bool is;

	witness_lock();
	is = witness_get(node) != NULL;
	witness_unlock();
	return is;
}

static uint64_t differences(void)
{
	uint64_t n = 0;

	for (int i = 0; i < CROSS_REASON_COUNT; i++)
		n += r.counts[i];
	return n;
}

TestSuite(cross, .init = start);

Test(cross, the_same_sets_agree)
{
	told(1, A, B);
	/* Sets: neither order nor number matters. */
	cr_assert(cross_compare(walked(1, B, A), G, true, &r));
	cr_assert(r.compared);
	cr_assert_eq(r.nodes, 1);
	cr_assert_eq(r.addresses, 2);
	cr_assert_eq(differences(), 0);
}

Test(cross, an_address_that_one_has_is_named)
{
	told(1, A, 0);
	cr_assert_not(cross_compare(walked(1, B, 0), G, true, &r));
	cr_assert_eq(r.counts[CROSS_ADDRESS_ONLY_WALK], 1);
	cr_assert_eq(r.counts[CROSS_ADDRESS_ONLY_CUPTI], 1);
	cr_assert_eq(r.listed, 2);
	cr_assert_eq(r.list[0].address, B);
	cr_assert_eq(r.list[1].address, A);
	cr_assert_str_eq(interned(r.list[0].name), "k1");
}

Test(cross, memory_that_was_replaced_is_told_apart)
{
	told(1, A, 0);
	world_free(A);
	world_alloc(A);
	cr_assert_not(cross_compare(walked(1, A, 0), G, true, &r));
	cr_assert_eq(r.counts[CROSS_GENERATION], 1);
	cr_assert_eq(differences(), 1);
}

Test(cross, a_node_that_nobody_walked_is_named)
{
	told(1, A, 0);
	told(2, B, 0);
	told(3, 0, 0); /* without an address */
	cr_assert_not(cross_compare(walked(1, A, 0), G, true, &r));
	cr_assert_eq(r.counts[CROSS_NODE_ONLY_CUPTI], 1);
	cr_assert_eq(r.list[0].node, 2);
	cr_assert_eq(differences(), 1);
}

Test(cross, what_an_exec_was_cloned_from_counts_wherever_it_lies)
{
	told(1, A, 0);
	witness_graph(0x200, 0);
	witness_node(KERNEL(0x200, 7, B)); /* a body that nobody reached */
	witness_exec_begin(true);
	cr_assert(witness_in_exec());
	witness_exec_begin(false); /* what CUPTI tells lies within the call */
	witness_clone(1, 0x900, 91);
	witness_clone(7, 0x901, 97);
	witness_exec_end(false);
	cr_assert_not(cross_compare(walked(1, A, 0), G, true, &r));
	cr_assert_eq(r.counts[CROSS_NODE_ONLY_CUPTI], 1);
	cr_assert_eq(r.list[0].node, 7);
	witness_exec_end(true);
	cr_assert_not(witness_in_exec());
	cr_assert(cross_compare(walked(1, A, 0), G, true, &r), "of the next exec nothing was told");
}

Test(cross, an_exec_that_nobody_framed_ends_with_what_is_told)
{
	witness_exec_begin(false);
	cr_assert(witness_in_exec());
	witness_exec_end(false);
	cr_assert_not(witness_in_exec());
	witness_exec_begin(false); /* refused: its end is not told */
	witness_expect_graph(true);
	witness_expect_graph(false);
	cr_assert_not(witness_in_exec());
}

Test(cross, a_node_that_cupti_did_not_tell_is_named)
{
	cr_assert_not(cross_compare(walked(1, A, 0), G, true, &r));
	cr_assert_eq(r.counts[CROSS_NODE_ONLY_WALK], 1);
	cr_assert(cross_compare(walked(2, 0, 0), G, true, &r));
}

/* CUPTI tells of new parameters for execs alone. */
Test(cross, a_node_that_was_changed_is_left_out)
{
	told(1, A, 0);
	told(2, A, 0);
	witness_changed(1);
	witness_changed(99); /* one that was not told */
	cr_assert_not(cross_compare(walked(1, B, 0), G, true, &r));
	cr_assert_eq(r.counts[CROSS_NODE_ONLY_CUPTI], 1, "the other one is compared");
	cr_assert_eq(r.changed, 1);
	cr_assert_eq(differences(), 1);
	witness_node(KERNEL(G, 1, B)); /* its handle is used again */
	cr_assert_not(cross_compare(walked(1, A, 0), G, true, &r));
	cr_assert_eq(r.changed, 0);
}

Test(cross, a_clone_of_a_changed_node_is_left_out)
{
	told(1, A, 0);
	witness_changed(1);
	witness_graph(0x200, G);
	witness_clone(1, 0x200, 21);
	cr_assert(cross_compare(walked(21, B, 0), 0x200, true, &r));
	cr_assert_eq(r.changed, 1);
	cr_assert_eq(r.nodes, 0);
}

Test(cross, clones_mean_what_their_originals_mean)
{
	told(1, A, 0);
	world_free(A);
	world_alloc(A);
	witness_graph(0x200, G);
	witness_clone(1, 0x200, 21);
	cr_assert(witness_cloned(0x200, 21));
	cr_assert_not(witness_cloned(G, 1));
	witness_lock();
	cr_assert_eq(witness_get(21)->refs[0].generation, witness_get(1)->refs[0].generation);
	witness_unlock();
}

Test(cross, a_template_older_than_the_window_is_left_out)
{
	told(1, A, 0);
	cr_assert(cross_compare(walked(1, B, 0), 0x999, true, &r));
	cr_assert_not(r.compared);
	witness_clear();
	cr_assert(cross_compare(walked(1, B, 0), G, true, &r));
	cr_assert_not(r.compared);
	cr_assert(cross_compare(NULL, G, true, &r));
}

Test(cross, what_is_destroyed_is_forgotten)
{
	for (uint64_t n = 1; n <= 1000; n++)
		told(n, A, B);
	witness_graph(0x200, 0);
	witness_node(KERNEL(0x200, 2001, A));
	witness_forget_node(1);
	cr_assert_not(is_known(1));
	cr_assert(is_known(2));
	witness_forget_graph(G);
	for (uint64_t n = 1; n <= 1000; n++)
		cr_assert_not(is_known(n));
	cr_assert(is_known(2001));
	cr_assert_not(witness_complete(G));
}

Test(cross, bodies_come_right_before_or_after_their_node)
{
	witness_graph(0x200, 0);
	witness_graph(0x300, 0);
	witness_node(KERNEL(G, 1, 0));
	cr_assert_eq(witness_body(1, 0), 0x200);
	cr_assert_eq(witness_body(1, 1), 0x300);
	cr_assert_eq(witness_body(1, 2), 0);
	witness_node(KERNEL(G, 2, 0));
	witness_graph(0x400, 0);
	cr_assert_eq(witness_body(2, 0), 0x400);
	cr_assert_eq(witness_body(2, 1), 0);
}

Test(cross, the_programs_own_graphs_are_no_bodies)
{
	witness_expect_graph(true);
	witness_graph(0x200, 0);
	witness_expect_graph(false);
	witness_node(KERNEL(0x200, 1, 0));
	cr_assert_eq(witness_body(1, 0), 0);
}

Test(cross, the_clone_of_a_body_is_found_beside_the_clone_of_its_node)
{
	uint64_t graph, node;

	told(1, 0, 0);
	witness_graph(0x200, 0); /* its body */
	for (uint64_t i = 1; i <= 2; i++) {
		witness_graph(0x1000 * i, G);
		witness_clone(1, 0x1000 * i, 0x1000 * i + 1);
		witness_graph(0x1000 * i + 0x200, 0x200);
	}
	cr_assert(witness_original(0x2001, &graph, &node));
	cr_assert_eq(graph, G);
	cr_assert_eq(node, 1);
	cr_assert_eq(witness_clone_beside(0x1001, 0x200), 0x1200);
	cr_assert_eq(witness_clone_beside(0x2001, 0x200), 0x2200);
	cr_assert_eq(witness_clone_beside(0x2001, 0x999), 0);
}

Test(cross, sums_are_kept)
{
	struct cross_counters c;

	told(1, A, B);
	cross_compare(walked(1, A, B), G, true, &r);
	cross_compare(walked(1, A, 0), G, true, &r);
	cross_compare(walked(1, A, 0), 0x999, true, &r);
	witness_changed(1);
	cross_compare(walked(1, B, 0), G, true, &r);
	cross_read_counters(&c);
	cr_assert_eq(c.compared, 3);
	cr_assert_eq(c.agreed, 2);
	cr_assert_eq(c.changed, 1);
	cr_assert_eq(c.skipped, 1);
	cr_assert_eq(c.addresses, 3);
	cr_assert_eq(c.counts[CROSS_ADDRESS_ONLY_CUPTI], 1);
}
