/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that share memory one after the other: a graph means those that were bound there when it
 * was captured, and who comes by later does it no harm (design rule 9). */
#include "slots.h"

#include "arena/slab.h"

#define X 0x7f0000000000ull
#define Y 0x7f1000000000ull
#define Z 0x7f2000000000ull
#define G 0x100ull /* handle of an exec */

static void start(void)
{
	world_start();
	guard_refuses = true;
	world_alloc(X);
	world_alloc(Y);
	world_alloc(Z);
}

TestSuite(binding_visits, .init = start);

static bool runs(uint64_t handle)
{
	return guard_launch(handle, STREAM);
}

static void bind_two(uint64_t a, uint64_t b)
{
	bind("a", a);
	bind("b", b);
}

static void bind_two_backwards(uint64_t a, uint64_t b)
{
	bind("b", b);
	bind("a", a);
}

Test(binding_visits, swap_and_swap_back)
{
	void (*const orders[])(uint64_t, uint64_t) = { bind_two, bind_two_backwards };

	bind_two(X, Y);
	world_exec(G, KERNEL(1, 1, X));
	for (unsigned there = 0; there < 2; there++)
		for (unsigned back = 0; back < 2; back++) {
			orders[there](Y, X);
			cr_assert_not(runs(G), "a is elsewhere");
			orders[back](X, Y);
			cr_assert(runs(G), "order %u, %u", there, back);
		}
}

Test(binding_visits, visitor)
{
	bind_two(X, Y);
	world_exec(G, KERNEL(1, 1, X));
	bind("b", X);
	cr_assert(runs(G));
	bind("b", Y);
	cr_assert(runs(G), "b was never meant");
	bind("a", Z);
	cr_assert_not(runs(G));
}

Test(binding_visits, late_second_slot)
{
	bind("w", X);
	world_exec(G, KERNEL(1, 1, X));
	bind("last_used", X);
	bind("last_used", Y);
	cr_assert(runs(G));
	bind("last_used", X);
	bind("w", Z);
	cr_assert_not(runs(G), "that another one is there does not help");
	bind("w", X);
	cr_assert(runs(G));
}

/* Two graphs, each captured while the slots were one way round. */
Test(binding_visits, double_buffers)
{
	bind_two(X, Y);
	world_exec(G, KERNEL(1, 1, X));
	bind_two(Y, X);
	world_exec(G + 1, KERNEL(2, 2, Y));
	for (unsigned i = 0; i < 4; i++) {
		bind_two(X, Y);
		cr_assert(runs(G), "turn %u", i);
		cr_assert_not(runs(G + 1));
		bind_two(Y, X);
		cr_assert(runs(G + 1), "turn %u", i);
		cr_assert_not(runs(G));
	}
}

/* Captured in one stretch of a binding: what comes in between two of them is not the slot's. */
Test(binding_visits, captured_while_it_was_away)
{
	bind_two(X, Y);
	world_exec(G, KERNEL(1, 1, X));
	bind_two(Y, X);
	world_exec(G + 1, KERNEL(2, 2, X));
	bind("a", X);
	bind("a", Y);
	cr_assert(runs(G + 1), "it means b, which is there");
	bind("b", Z);
	cr_assert_not(runs(G + 1));
}

/* Slots that are bound after the capture adopt it, once: tied ones too, swaps not. */
Test(binding_visits, adopted_and_swapped)
{
	world_exec(G, KERNEL(1, 1, X));
	bind_two(X, Y);
	bind_two_backwards(Y, X);
	cr_assert_not(runs(G));
	bind_two(X, Y);
	cr_assert(runs(G));
	bind("tied", X);
	bind("tied", Z);
	cr_assert_not(runs(G), "it was bound there before it was anywhere else");
	bind("tied", X);
	cr_assert(runs(G));
}

/* What a stretch costs is forgotten when nothing captured means it. */
Test(binding_visits, memory_is_bounded)
{
	uint64_t before = 0;

	bind_two(X, Y);
	for (unsigned i = 0; i < 20000; i++) {
		world_exec(G, KERNEL(1, 1, X));
		bind_two(Y, X);
		world_exec(G + 1, KERNEL(2, 2, Y));
		bind_two(X, Y);
		cr_assert(runs(G));
		exec_close(G);
		exec_close(G + 1);
		if (i == 4000)
			before = slab_bytes();
	}
	cr_assert_leq(slab_bytes(), before + MIB);
}
