/* SPDX-License-Identifier: Apache-2.0 */
/* The launch guard with slots (design rules 1, 2, 4, 5), faults and traps on made-up addresses. */
#include "slots.h"

#include "arena/slab.h"
#include "seed.h"

#define A 0x7f0000000000ull
#define B 0x7f1000000000ull
#define C 0x7f2000000000ull
#define R 0x700000000000ull /* a reservation */
#define G 0x100ull	    /* handle of the exec under test */

TestSuite(binding, .init = world_start);

static bool launch_finds(uint64_t handle)
{
	unsigned before = world_findings;

	guard_launch(handle, STREAM);
	return world_findings != before;
}

static uint64_t stale(uint64_t handle)
{
	uint64_t before = world_counters().launches_stale;

	guard_launch(handle, STREAM);
	return world_counters().launches_stale - before;
}

/* A03, A05, A16 v1: nothing is freed, the slot is elsewhere. */
Test(binding, slot_moved)
{
	world_alloc(A);
	world_alloc(B);
	bind("w13", A);
	world_exec(G, KERNEL(1, 1, A + 64));
	cr_assert_not(stale(G));
	bind("w13", B);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_found.kind, FINDING_STALE_LAUNCH);
	cr_assert_eq(world_found.refs_count, 1);
	cr_assert_eq(world_refs[0].reason, STALE_SLOT_MOVED);
	cr_assert_str_eq(interned(world_refs[0].arena), "model");
	cr_assert_str_eq(interned(world_refs[0].slot), "w13");
	cr_assert_eq(world_refs[0].slot_base, A);
	cr_assert_eq(world_refs[0].slot_now, B);
	cr_assert_eq(world_refs[0].old.base, A);
	cr_assert_eq(world_refs[0].now.base, B);
	cr_assert_not(launch_finds(G), "the same occurrence");
	cr_assert(stale(G));
}

/* Rule 9: bound again to the captured storage, or captured again, it may launch. */
Test(binding, nothing_is_sticky)
{
	guard_refuses = true;
	world_alloc(A);
	world_alloc(B);
	bind("w", A);
	world_exec(G, KERNEL(1, 1, A));
	bind("w", B);
	cr_assert_not(guard_launch(G, STREAM));
	bind("w", A);
	cr_assert(guard_launch(G, STREAM));
	bind("w", B);
	cr_assert_not(guard_launch(G, STREAM));
	exec_set_node(G, KERNEL(1, 1, B));
	cr_assert(guard_launch(G, STREAM));
}

/* The node was born under the binding, the exec is made when the slot has left it. */
Test(binding, moved_between_birth_and_instantiate)
{
	world_alloc(A);
	world_alloc(B);
	bind("w", A);
	birth_record(KERNEL(1, 1, A));
	bind("w", B);
	birth_copy(1, 1, 2, 2);
	world_exec(G, KERNEL(1, 1, A));
	world_exec(G + 1, KERNEL(2, 2, A));
	cr_assert(stale(G));
	cr_assert(stale(G + 1), "a clone means what its original meant");
}

/* Whoever captures the old memory after the slot has left it means that memory. */
Test(binding, captured_after_the_move)
{
	world_alloc(A);
	world_alloc(B);
	bind("w", A);
	bind("w", B);
	world_exec(G, KERNEL(1, 1, A));
	cr_assert_not(stale(G));
	bind("w", A);
	bind("w", B);
	cr_assert(stale(G), "it came and went since");
}

Test(binding, set_after_the_move)
{
	world_alloc(A);
	world_alloc(B);
	bind("w", A);
	world_exec(G, KERNEL(1, 1, A));
	bind("w", B);
	cr_assert(stale(G));
	exec_set_node(G, KERNEL(1, 1, A));
	cr_assert_not(stale(G), "the program says that it means the old memory");
}

/* Slots that are bound when graphs exist already. */
Test(binding, bound_after_capture)
{
	world_alloc(A);
	world_alloc(B);
	world_exec(G, KERNEL(1, 1, A));
	bind("w", A);
	cr_assert_not(stale(G));
	bind("w", B);
	cr_assert(stale(G));
}

/* Ping-pong: each graph is launched while the slot is where it was captured. */
Test(binding, ping_pong)
{
	world_alloc(A);
	world_alloc(B);
	bind("cur", A);
	world_exec(G, KERNEL(1, 1, A));
	bind("cur", B);
	world_exec(G + 1, KERNEL(2, 2, B));
	for (int i = 0; i < 5; i++) {
		bind("cur", A);
		cr_assert_not(stale(G));
		bind("cur", B);
		cr_assert_not(stale(G + 1));
	}
	cr_assert_eq(world_findings, 0);
}

/* A33: re-recorded, the old exec is dormant and its memory freed. */
Test(binding, re_recorded)
{
	world_alloc(A);
	world_alloc(B);
	bind("param", A);
	world_exec(G, KERNEL(1, 1, A));
	cr_assert_not(stale(G));
	bind("param", B);
	world_exec(G + 1, KERNEL(2, 2, B));
	world_free(A);
	for (int i = 0; i < 3; i++)
		cr_assert_not(stale(G + 1));
	cr_assert(stale(G));
	cr_assert(world_lists(A, STALE_FREED));
	cr_assert_str_eq(interned(world_refs[0].slot), "param");
}

/* Rule 5, A09: scratch may move as long as its old memory lives. */
Test(binding, retired_scratch)
{
	world_alloc(A);
	world_alloc(B);
	bind_bytes("ws", ARENA_SCRATCH, A, MIB / 2);
	world_exec(G, KERNEL(1, 1, A));
	bind_bytes("ws", ARENA_SCRATCH, B, MIB);
	cr_assert_not(stale(G));
	cr_assert_eq(world_findings, 0);
	world_free(A);
	cr_assert(stale(G));
	cr_assert(world_lists(A, STALE_FREED));
}

/* The same of memory that somebody else owns. */
Test(binding, bound_scratch)
{
	struct slot *s;

	world_alloc(A);
	world_alloc(B);
	for (unsigned i = 0; i < 2; i++) {
		registry_lock();
		s = slot_of("ws", ARENA_BOUND, MIB);
		s->spec.flags = ARENA_SPEC_SCRATCH;
		binding_set(s, i ? B : A);
		registry_unlock();
		if (i == 0)
			world_exec(G, KERNEL(1, 1, A));
	}
	cr_assert_not(stale(G));
}

/* A slot without a binding is nowhere else: the memory decides. */
Test(binding, unbound)
{
	world_alloc(A);
	world_alloc(B);
	bind("w", A);
	world_exec(G, KERNEL(1, 1, A));
	unbind("w");
	cr_assert_not(stale(G));
	bind("w", B);
	cr_assert(stale(G), "now it is elsewhere");
	unbind("w");
	cr_assert_not(stale(G));
	bind("w", B);
	cr_assert(stale(G), "the mark was cleared in between");
	unbind("w");
	world_free(A);
	cr_assert(stale(G));
}

/* Rule 4, A11: the same address came back, and the same slot was bound to it. */
Test(binding, replaced_and_bound_again)
{
	world_alloc(A);
	bind("k", A);
	world_exec(G, KERNEL(1, 1, A + 8));
	world_free(A);
	world_alloc(A);
	cr_assert(stale(G), "not bound again yet");
	cr_assert(world_lists(A, STALE_GENERATION));
	bind("k", A);
	cr_assert_not(stale(G));
	bind_bytes("k", ARENA_BOUND, A, MIB / 2);
	cr_assert(stale(G), "under another spec");
	bind("k", A);
	cr_assert_not(stale(G));
	world_alloc(B);
	bind("k", B);
	cr_assert(stale(G));
	bind("k", A);
	world_free(A);
	cr_assert(stale(G));
	world_alloc(A);
	cr_assert(stale(G), "bound to the one before");
	cr_assert(world_lists(A, STALE_GENERATION));
}

/* A tail that another slot took over is none of the slot's business. */
Test(binding, replaced_and_bound_by_another_slot)
{
	world_alloc(A);
	bind("k", A);
	world_exec(G, KERNEL(1, 1, A));
	world_free(A);
	world_alloc(A);
	bind("other", A);
	cr_assert(stale(G));
}

/* A04: nine slots of one range; three of them move. */
Test(binding, slots_share_a_range)
{
	char name[16];

	world_alloc(A);
	world_alloc(B);
	for (unsigned i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "scratch%u", i);
		bind_bytes(name, ARENA_BOUND, A + i * 4096, 4096);
	}
	world_exec(G, KERNEL(1, 1, A, A + 4096, A + 2 * 4096, A + 3 * 4096 + 4095));
	bind_bytes("scratch1", ARENA_BOUND, B, 4096);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_found.refs_total, 1);
	bind_bytes("scratch3", ARENA_BOUND, B + 4096, 4096);
	cr_assert(launch_finds(G), "a further slot is another occurrence");
	cr_assert_eq(world_found.refs_total, 2);
	cr_assert_str_eq(interned(world_refs[0].slot), "scratch1");
	cr_assert_str_eq(interned(world_refs[1].slot), "scratch3");
}

/* Views: a ref may lie in several slots; one that moved is enough. */
Test(binding, slots_overlap)
{
	world_alloc(A);
	world_alloc(B);
	bind("all", A);
	bind_bytes("half", ARENA_BOUND, A + MIB / 2, MIB / 2);
	bind_bytes("head", ARENA_BOUND, A, 512);
	world_exec(G, KERNEL(1, 1, A + MIB / 2 + 8));
	bind_bytes("head", ARENA_BOUND, B, 512);
	cr_assert_not(stale(G), "the ref is not in it");
	bind("all", B);
	cr_assert(launch_finds(G));
	cr_assert_str_eq(interned(world_refs[0].slot), "all");
}

/* A30: values change, addresses do not. */
Test(binding, values_copied_into_static_buffers)
{
	world_alloc(A);
	bind("w", A);
	world_exec(G, KERNEL(1, 1, A));
	for (int i = 0; i < 3; i++) {
		world_alloc(B);
		bind("w", A);
		world_free(B);
		cr_assert_not(stale(G));
	}
	cr_assert_eq(world_counters().launches_judged, 0, "nothing was marked");
}

Test(binding, disabled_node)
{
	world_alloc(A);
	world_alloc(B);
	bind("w", A);
	world_exec(G, KERNEL(1, 1, A));
	exec_set_enabled(G, 1, false);
	bind("w", B);
	cr_assert_not(stale(G));
	exec_set_enabled(G, 1, true);
	cr_assert(stale(G));
}

/* ---- extents ---- */

static void reserve(void)
{
	world_open(R, 64 * MIB, RANGE_RESERVED);
	world_map(R, 2 * MIB);
	world_map(R + 2 * MIB, 2 * MIB);
}

/* A ref stands for the slot's whole extent: its tail is not what the ref points at. */
Test(binding, tail_unmapped)
{
	reserve();
	bind_bytes("w", ARENA_VALUE, R, 3 * MIB);
	world_exec(G, KERNEL(1, 1, R + 4096));
	world_unmap(R + 2 * MIB, 2 * MIB);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_refs[0].reason, STALE_UNMAPPED);
	cr_assert_str_eq(interned(world_refs[0].slot), "w");
	world_map(R + 2 * MIB, 2 * MIB);
	ledger_written(R + 2 * MIB);
	cr_assert_not(stale(G));
}

Test(binding, what_is_behind_the_extent_does_not_count)
{
	reserve();
	bind_bytes("w", ARENA_VALUE, R, 2 * MIB);
	world_exec(G, KERNEL(1, 1, R));
	world_unmap(R + 2 * MIB, 2 * MIB);
	cr_assert_not(stale(G));
}

/* What was not there when the slot was bound cannot be lost; nor what was bound after capture. */
Test(binding, only_what_was_there)
{
	reserve();
	world_exec(G + 1, KERNEL(2, 2, R));
	bind_bytes("w", ARENA_VALUE, R, 32 * MIB);
	world_exec(G, KERNEL(1, 1, R));
	world_map(R + 4 * MIB, 2 * MIB);
	world_unmap(R + 4 * MIB, 2 * MIB);
	cr_assert_not(stale(G));
	world_unmap(R + 2 * MIB, 2 * MIB);
	cr_assert(stale(G));
	cr_assert_not(stale(G + 1));
}

/* A31: the same place mapped again, slots included. */
Test(binding, remap_by_design)
{
	reserve();
	bind_bytes("act", ARENA_VALUE, R, 4 * MIB);
	world_exec(G, KERNEL(1, 1, R));
	for (int i = 0; i < 3; i++) {
		world_unmap(R, 4 * MIB);
		world_map(R, 4 * MIB);
		ledger_written(R);
		cr_assert_not(stale(G));
	}
}

/* ---- objects ---- */

Test(binding, object_made_anew)
{
	world_alloc(A);
	world_alloc(B);
	world_alloc(C);
	bind_object("wrapper", 1, BASES(A, C));
	world_exec(G, KERNEL(1, 1, A));
	world_exec(G + 1, KERNEL(2, 2, C));
	bind_object("wrapper", 2, BASES(B, C));
	cr_assert(launch_finds(G));
	cr_assert_eq(world_refs[0].reason, STALE_SLOT_MOVED);
	cr_assert_eq(world_refs[0].slot_now, B);
	cr_assert_not(stale(G + 1), "its workspace was given back to it");
}

/* Memory that comes back is not the state that the object had in it. */
Test(binding, object_at_the_same_address)
{
	world_alloc(A);
	bind_object("wrapper", 1, BASES(A));
	world_exec(G, KERNEL(1, 1, A));
	world_free(A);
	world_alloc(A);
	bind_object("wrapper", 2, BASES(A));
	cr_assert(stale(G));
	cr_assert(world_lists(A, STALE_GENERATION));
}

/* ---- queries and memory ---- */

Test(binding, inner_and_outer)
{
	struct slot *all, *part;
	uint64_t g;

	g = load_relaxed(&world_alloc(A)->generation);
	cr_assert_not(binding_any());
	all = bind("all", A);
	part = bind_bytes("part", ARENA_VALUE, A + 512, 512);
	cr_assert(binding_any());
	ledger_holders_lock();
	cr_assert(binding_means(all, &(struct binding_ref){ A + 600, g, 0 }));
	cr_assert(binding_means(part, &(struct binding_ref){ A + 600, g, 0 }));
	cr_assert(binding_means(all, &(struct binding_ref){ A, g, 0 }));
	cr_assert_not(binding_means(part, &(struct binding_ref){ A, g, 0 }));
	cr_assert_not(binding_means(part, &(struct binding_ref){ A + 1024, g, 0 }));
	cr_assert_not(binding_means(all, &(struct binding_ref){ A + MIB, g, 0 }));
	cr_assert_not(binding_means(all, &(struct binding_ref){ A, g + 1, 0 }));
	ledger_holders_unlock();
}

/* Memory that nobody knows can be bound, and is not watched. */
Test(binding, unknown_memory)
{
	struct slot *s = bind("host", 0x1234000);

	cr_assert_eq(s->base, 0x1234000);
	cr_assert_neq(s->binding, 0);
	cr_assert_eq(s->generation, 0);
	cr_assert_not(binding_any());
}

/* Thousands of reloads: what nothing captured means any more is forgotten, what is meant is not. */
Test(binding, memory_is_bounded)
{
	uint64_t before, at = 0, seed = seed_start("binding");

	world_alloc(A);
	world_alloc(C);
	world_open(B, 1024 * MIB, RANGE_DEVICE);
	bind("t", C);
	birth_record(KERNEL(1, 1, C));
	bind("t", A + 8);
	bind("w", A);
	world_exec(G + 1, KERNEL(2, 2, A));
	for (int i = 0; i < 3000; i++)
		bind("w", B + i * 4096);
	before = slab_bytes();
	for (int i = 0; i < 60000; i++) {
		at = seed_below(&seed, 1000 * MIB);
		bind("w", B + at);
	}
	cr_assert_leq(slab_bytes(), before + MIB);
	world_exec(G, KERNEL(1, 1, C));
	cr_assert(stale(G), "its template was not forgotten");
	cr_assert(stale(G + 1));
	bind("w", A);
	cr_assert_not(stale(G + 1));
}

/* Against a plain list: random slots in one range, moved about, and a graph with four refs. */

enum { SLOTS = 12, MOVES = 6, SLOT_BYTES = 2048 };

static struct {
	char name[8];
	uint64_t at[MOVES + 1]; /* where it was since the capture, the last one is now */
	unsigned when[MOVES + 1];
	unsigned count;
} model[SLOTS];
static unsigned model_clock;

/* Has a slot left @word that was there at the capture, or, if none was, that came first? */
static bool model_left(uint64_t word)
{
	bool bound = false, left = false, first_left = false;
	unsigned first = model_clock + 1;

	for (unsigned i = 0; i < SLOTS; i++)
		for (unsigned k = 0; k < model[i].count; k++) {
			bool gone = model[i].at[k] != model[i].at[model[i].count - 1];

			if (word - model[i].at[k] >= SLOT_BYTES)
				continue;
			bound |= k == 0;
			left |= k == 0 && gone;
			if (k > 0 && model[i].when[k] < first) {
				first = model[i].when[k];
				first_left = gone;
			}
		}
	return bound ? left : first_left;
}

static bool model_stale(const uint64_t *words)
{
	return model_left(words[0]) || model_left(words[1]) || model_left(words[2]) ||
	       model_left(words[3]);
}

static void model_move(unsigned i, uint64_t base)
{
	model[i].when[model[i].count] = ++model_clock;
	model[i].at[model[i].count++] = base;
	bind_bytes(model[i].name, ARENA_BOUND, base, SLOT_BYTES);
}

Test(binding, model)
{
	uint64_t seed = seed_start("binding model"), words[4];
	unsigned stales = 0;

	world_open(A, 64 * MIB, RANGE_DEVICE);
	device.finding = NULL;
	for (unsigned i = 0; i < SLOTS; i++) {
		snprintf(model[i].name, sizeof(model[i].name), "s%u", i);
		model_move(i, A + seed_below(&seed, 64) * 512);
	}
	for (unsigned round = 0; round < 20000; round++) {
		for (unsigned i = 0; i < 4; i++)
			words[i] = A + seed_below(&seed, 70 * 512);
		for (unsigned i = 0; i < SLOTS; i++) {
			model[i].at[0] = model[i].at[model[i].count - 1];
			model[i].count = 1;
		}
		world_exec(G, KERNEL(1, 1, words[0], words[1], words[2], words[3]));
		for (uint64_t k = seed_below(&seed, MOVES + 1); k > 0; k--)
			model_move((unsigned)seed_below(&seed, SLOTS),
				   A + seed_below(&seed, 64) * 512);
		cr_assert_eq(stale(G) != 0, model_stale(words), "round %u", round);
		stales += model_stale(words);
		exec_close(G);
	}
	cr_assert(stales > 2000 && stales < 18000, "%u of 20000", stales);
}
