/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a caching allocator (arena/block.c): what is found, when refs to them go stale, and
 * what captures own. */
#include "arena/block.h"

#include "arena/block_map.h"
#include "arena/body.h"
#include "arena/born.h"
#include "arena/intern.h"
#include "arena/object.h"
#include "arena/reload.h"
#include "arena/snapshot.h"
#include "arena/storage.h"
#include "tests/unit/seed.h"
#include "tests/unit/slots.h"
#include "tests/unit/world.h"

#define SEGMENT 0x7f0000000000ull
#define KIB	1024ull
#define DEV	0

static void carve(uint64_t base, uint64_t size_bytes)
{
	struct block_shard *s = &block_shards[DEV];

	if (!block_event_quick(s, base, (int64_t)size_bytes) &&
	    !block_enter(s, base, (int64_t)size_bytes))
		block_opened(DEV, base, size_bytes, false, 0);
}

static void give_back(uint64_t base)
{
	struct range *r = NULL;

	if (!block_event_quick(&block_shards[DEV], base, -1))
		r = block_closed(DEV, base);
	if (r != NULL)
		block_freed(r, 0);
}

/* A graph that reads the words, and its exec. */
static struct exec *capture(uint64_t handle, uint64_t a, uint64_t b)
{
	return world_exec(handle, KERNEL(handle, handle + 1, a, b));
}

static bool launches(uint64_t handle)
{
	bool sound = guard_launch(handle, STREAM);

	guard_launched();
	return sound;
}

static void start(void)
{
	world_start();
	guard_refuses = true;
	world_open(SEGMENT, 20 * MIB, RANGE_DEVICE);
}

Test(block, a_block_has_an_object_only_when_something_refers_to_it, .init = start)
{
	struct range_view v;

	carve(SEGMENT + 512, 4 * KIB);
	cr_assert(ledger_find_inner(SEGMENT + 600, &v));
	cr_assert_eq(v.kind, RANGE_DEVICE);
	cr_assert(ledger_refer(SEGMENT + 600, &v));
	cr_assert_eq(v.kind, RANGE_BLOCK);
	cr_assert_eq(v.base, SEGMENT + 512);
	cr_assert_eq(v.size_bytes, 4 * KIB);
	cr_assert(ledger_find_inner(SEGMENT + 512 + 4 * KIB - 1, &v));
	cr_assert_eq(v.kind, RANGE_BLOCK);
	cr_assert(ledger_find_inner(SEGMENT + 512 + 4 * KIB, &v));
	cr_assert_eq(v.kind, RANGE_DEVICE);
	/* The driver knows the segment only. */
	cr_assert(ledger_find(SEGMENT + 600, &v));
	cr_assert_eq(v.kind, RANGE_DEVICE);
}

Test(block, counts, .init = start)
{
	struct ledger_counters c;
	struct block_counters b;

	carve(SEGMENT, 4 * KIB);
	carve(SEGMENT + 4 * KIB, 512);
	give_back(SEGMENT);
	give_back(SEGMENT + 64 * KIB);
	block_read_counters(&b);
	cr_assert_eq(b.live, 1);
	cr_assert_eq(b.bytes, 512);
	cr_assert_eq(b.allocations, 2);
	cr_assert_eq(b.frees, 1);
	cr_assert_eq(b.unknown_frees, 1);
	ledger_read_counters(&c);
	cr_assert_eq(c.live_by_kind[RANGE_BLOCK], 1);
	cr_assert_eq(c.bytes_by_kind[RANGE_BLOCK], 512);
	cr_assert_eq(c.live, 1, "a block is no memory of its own");
}

/* ---- captured blocks ---- */

Test(block, a_freed_block_makes_a_launch_stale, .init = start)
{
	carve(SEGMENT, 4 * KIB);
	carve(SEGMENT + 4 * KIB, 4 * KIB);
	capture(10, SEGMENT, SEGMENT + 5 * KIB);
	cr_assert(launches(10));
	give_back(SEGMENT + 4 * KIB);
	cr_assert(!launches(10));
	cr_assert_eq(world_found.kind, FINDING_STALE_LAUNCH);
	cr_assert_eq(world_found.refs_total, 1);
	cr_assert(world_lists(SEGMENT + 4 * KIB, STALE_FREED));
	cr_assert_eq(world_refs[0].old.kind, RANGE_BLOCK);
}

Test(block, another_block_at_its_address_is_another_generation, .init = start)
{
	carve(SEGMENT, 4 * KIB);
	capture(10, SEGMENT, 0);
	give_back(SEGMENT);
	carve(SEGMENT, 8 * KIB);
	cr_assert(!launches(10));
	cr_assert(world_lists(SEGMENT, STALE_GENERATION));
	cr_assert_eq(world_refs[0].now.kind, RANGE_BLOCK);
	cr_assert_eq(world_refs[0].now.size_bytes, 8 * KIB);
	/* Nothing is sticky: a graph of the new block is as good as any. */
	capture(10, SEGMENT, 0);
	cr_assert(launches(10));
}

Test(block, a_word_outside_all_blocks_is_the_segments, .init = start)
{
	carve(SEGMENT, 4 * KIB);
	capture(10, SEGMENT + 64 * KIB, 0);
	give_back(SEGMENT);
	cr_assert(launches(10));
	world_free(SEGMENT);
	cr_assert(!launches(10));
	cr_assert(world_lists(SEGMENT, STALE_FREED));
	cr_assert_eq(world_refs[0].old.kind, RANGE_DEVICE);
}

Test(block, what_the_exec_does_not_refer_to_any_more_may_go, .init = start)
{
	struct world_node n;

	carve(SEGMENT, 4 * KIB);
	carve(SEGMENT + 4 * KIB, 4 * KIB);
	capture(10, SEGMENT, 0);
	exec_set_node(10, world_kernel(&n, 10, 11, (uint64_t[]){ SEGMENT + 4 * KIB, 0, 0, 0 }));
	give_back(SEGMENT);
	cr_assert(launches(10));
	cr_assert_eq(world_findings, 0);
}

/* ---- what was dead comes back ---- */

Test(block, the_next_one_in_its_place_is_another, .init = start)
{
	struct range_view old, new;

	carve(SEGMENT, 4 * KIB);
	capture(10, SEGMENT, 0);
	cr_assert(ledger_refer(SEGMENT, &old));
	give_back(SEGMENT);
	cr_assert(ledger_find_inner(SEGMENT, &new));
	cr_assert_eq(new.kind, RANGE_DEVICE, "dead, nobody finds it");
	/* Nothing holds the new one yet, and it comes and goes. */
	for (int i = 0; i < 3; i++) {
		cr_assert(block_event_quick(&block_shards[DEV], SEGMENT, 4 * KIB));
		cr_assert(!launches(10));
		cr_assert(world_lists(SEGMENT, STALE_GENERATION));
		/* Told in a finding, it has an object of its own. */
		cr_assert(!block_event_quick(&block_shards[DEV], SEGMENT, -1));
		give_back(SEGMENT);
		cr_assert(!launches(10));
		cr_assert(world_lists(SEGMENT, STALE_FREED));
	}
	carve(SEGMENT, 4 * KIB);
	cr_assert(ledger_refer(SEGMENT, &new));
	cr_assert_neq(new.generation, old.generation);
	capture(20, SEGMENT, 0);
	cr_assert(!launches(10));
	cr_assert(launches(20));
	/* Its free is no quick one. */
	cr_assert(!block_event_quick(&block_shards[DEV], SEGMENT, -1));
	give_back(SEGMENT);
	cr_assert(!launches(20));
}

Test(block, a_smaller_one_in_its_place, .init = start)
{
	struct block_counters c;
	struct range_view v;

	carve(SEGMENT, 8 * KIB);
	give_back(SEGMENT);
	carve(SEGMENT, 2 * KIB);
	block_read_counters(&c);
	cr_assert_eq(c.bytes, 2 * KIB);
	cr_assert(ledger_refer(SEGMENT + KIB, &v));
	cr_assert_eq(v.size_bytes, 2 * KIB);
	cr_assert(ledger_refer(SEGMENT + 2 * KIB, &v));
	cr_assert_eq(v.kind, RANGE_DEVICE);
	/* The rest is free for others, and does not come back with it. */
	carve(SEGMENT + 4 * KIB, 4 * KIB);
	give_back(SEGMENT);
	cr_assert(!block_event_quick(&block_shards[DEV], SEGMENT, 8 * KIB));
	capture(10, SEGMENT + 4 * KIB, 0);
	cr_assert(launches(10));
	block_read_counters(&c);
	cr_assert_eq(c.overlaps, 0);
	cr_assert_eq(c.live, 1);
}

/* The block at @base, dead, and its neighbour, dead or alive, @room further up. */
static void two(uint64_t base, uint64_t room, bool neighbour_last, bool neighbour_dead)
{
	if (!neighbour_last)
		carve(base + room, 512);
	carve(base, 512);
	if (neighbour_last)
		carve(base + room, 512);
	give_back(base);
	if (neighbour_dead)
		give_back(base + room);
}

/* As big as the room up to its neighbour, or more: more only if the neighbour is dead. */
Test(block, a_bigger_one_in_its_place, .init = start)
{
	static const uint64_t starts[] = { 0, 512, 31 * KIB + 512, 100 * KIB, 2 * MIB - KIB };
	static const uint64_t rooms[] = { KIB, 31 * KIB, 32 * KIB + 512, 90 * KIB,
					  MIB + 900 * KIB };
	static const uint64_t more[] = { 512, 40 * KIB, 500 * KIB, 3 * MIB };
	struct block_shard *s = &block_shards[DEV];

	for (size_t n = 0; n < 4 * 5 * 5; n++) {
		uint64_t base = SEGMENT + starts[n % 5], room = rooms[n / 5 % 5];
		int64_t bytes = (int64_t)(room + more[n % 4]);

		two(base, room, n / 25 % 2, n / 50);
		cr_assert(!block_event_quick(s, base, bytes), "%zu", n);
		cr_assert_eq(block_enter(s, base, bytes), n / 50 != 0, "%zu", n);
		if (n / 50 != 0) {
			cr_assert(block_event_quick(s, base, -bytes));
			cr_assert(block_event_quick(s, base, bytes), "it had that much");
			give_back(base);
			/* Its neighbour is carved out of it, and ends where that begins. */
			cr_assert(block_enter(s, base + room, 512));
			cr_assert(block_event_quick(s, base, (int64_t)room), "%zu", n);
		} else {
			cr_assert(block_enter(s, base, (int64_t)room), "%zu", n);
		}
		block_forget(SEGMENT, 20 * MIB);
	}
}

Test(block, a_bigger_one_over_dead_ones, .init = start)
{
	struct block_counters c;
	struct range_view v;

	for (uint64_t at = 0; at < 16 * KIB; at += 2 * KIB)
		carve(SEGMENT + at, 2 * KIB);
	capture(10, SEGMENT + 2 * KIB, SEGMENT + 14 * KIB);
	for (uint64_t at = 0; at < 14 * KIB; at += 2 * KIB)
		give_back(SEGMENT + at);
	/* From the middle of one to the middle of another; the last one lives. */
	carve(SEGMENT + KIB, 12 * KIB);
	block_read_counters(&c);
	cr_assert_eq(c.live, 2);
	cr_assert_eq(c.overlaps, 0);
	for (uint64_t at = KIB; at < 13 * KIB; at += 512) {
		cr_assert(ledger_refer(SEGMENT + at, &v));
		cr_assert_eq(v.base, SEGMENT + KIB);
		cr_assert_eq(v.size_bytes, 12 * KIB);
	}
	cr_assert(!launches(10));
	cr_assert_eq(world_found.refs_total, 1);
	cr_assert(world_lists(SEGMENT + 2 * KIB, STALE_GENERATION));
	/* None of those below it comes back while it lives. */
	cr_assert(!block_event_quick(&block_shards[DEV], SEGMENT, 2 * KIB));
	cr_assert(!block_event_quick(&block_shards[DEV], SEGMENT + 4 * KIB, 2 * KIB));
	cr_assert(!block_event_quick(&block_shards[DEV], SEGMENT + 12 * KIB, 2 * KIB));
}

Test(block, a_smaller_one_inside_a_dead_one, .init = start)
{
	struct block_counters c;
	struct range_view v;

	/* It begins further below than one leaf of the map reaches. */
	carve(SEGMENT, 16 * MIB);
	give_back(SEGMENT);
	carve(SEGMENT + 8 * MIB, 4 * KIB);
	capture(10, SEGMENT + 8 * MIB, 0);
	cr_assert(!block_event_quick(&block_shards[DEV], SEGMENT, 16 * MIB));
	/* It lives: whoever hands out what is around it lost its free. */
	carve(SEGMENT, 16 * MIB);
	block_read_counters(&c);
	cr_assert_eq(c.overlaps, 1);
	cr_assert_eq(c.live, 1);
	cr_assert(ledger_refer(SEGMENT + 8 * MIB, &v));
	cr_assert_eq(v.base, SEGMENT);
	cr_assert(!launches(10));
	cr_assert(world_lists(SEGMENT + 8 * MIB, STALE_GENERATION));
}

/* The driver gives the addresses to another thread before the free has returned in this one. */
Test(block, a_late_end_leaves_the_next_ones_blocks_alone, .init = start)
{
	struct range *old;

	carve(SEGMENT, 4 * KIB);
	carve(SEGMENT + 8 * MIB, 4 * KIB);
	carve(SEGMENT + 16 * MIB, 4 * KIB);
	old = ledger_close_begin(SEGMENT, 0);
	world_open(SEGMENT + 4 * MIB, 2 * MIB, RANGE_DEVICE);
	world_open(SEGMENT + 10 * MIB, 2 * MIB, RANGE_DEVICE);
	carve(SEGMENT + 4 * MIB, 4 * KIB);
	carve(SEGMENT + 10 * MIB, 4 * KIB);
	capture(10, SEGMENT + 4 * MIB, SEGMENT + 10 * MIB);
	ledger_close_end(old, true);
	cr_assert(launches(10));
	for (uint64_t at = 0; at <= 16 * MIB; at += 2 * MIB)
		cr_assert_eq(block_covers(SEGMENT + at), at == 4 * MIB || at == 10 * MIB);
}

Test(block, what_was_dead_goes_with_its_segment, .init = start)
{
	carve(SEGMENT, 4 * KIB);
	give_back(SEGMENT);
	world_free(SEGMENT);
	cr_assert(!block_event_quick(&block_shards[DEV], SEGMENT, 4 * KIB));
}

Test(block, the_dead_do_not_pile_up, .init = start)
{
	struct block_map *m = &block_shards[DEV].map;

	for (uint64_t at = 0; at < 16 * MIB; at += 512) {
		carve(SEGMENT + at, 512);
		give_back(SEGMENT + at);
	}
	cr_assert_leq(m->mask, 255);
}

Test(block, nothing_is_quick_while_somebody_watches, .init = start)
{
	struct block_shard *s = &block_shards[DEV];

	carve(SEGMENT, 4 * KIB);
	block_watch(true);
	cr_assert(!block_event_quick(s, SEGMENT, -1));
	block_watch(true);
	block_watch(false);
	give_back(SEGMENT);
	cr_assert(!block_event_quick(s, SEGMENT, 4 * KIB));
	cr_assert(!block_enter(s, SEGMENT, 4 * KIB));
	block_watch(false);
	cr_assert(block_event_quick(s, SEGMENT, 4 * KIB));
	block_window(true);
	cr_assert(!block_event_quick(s, SEGMENT, -1));
	block_window(false);
	cr_assert(block_event_quick(s, SEGMENT, -1));
	/* Twice is once too often; so is nothing at all. */
	cr_assert(!block_event_quick(s, SEGMENT, -1));
	cr_assert(!block_event_quick(s, SEGMENT, 0));
	cr_assert(!block_event_quick(s, 0, 512));
	cr_assert(!block_event_quick(s, SEGMENT + 16, 512));
	/* More bits than an entry holds: some begin to look where that of the block is. */
	for (uint64_t i = 1; i < 1 << 13; i++)
		cr_assert(!block_event_quick(s, SEGMENT + (i << 51), 512), "%lu", i);
}

static bool quick(void)
{
	return block_event_quick(&block_shards[DEV], SEGMENT, 4 * KIB) &&
	       block_event_quick(&block_shards[DEV], SEGMENT, -1);
}

Test(block, a_reload_watches, .init = start)
{
	struct reload_outcome o;
	uint64_t id;

	carve(SEGMENT, 4 * KIB);
	give_back(SEGMENT);
	cr_assert(quick());
	cr_assert_eq(reload_begin(NULL, &id), 0);
	cr_assert(!quick());
	cr_assert_eq(reload_abort(id, "test", &o), 0);
	cr_assert(quick());
}

static int carve_quickly(void *ctx, void **object)
{
	*object = ctx;
	*(bool *)ctx = quick();
	return 0;
}

Test(block, a_factory_watches, .init = start)
{
	bool was_quick = true;
	struct object_request q = { NULL, "o", "test", carve_quickly, &was_quick };
	void *object;

	registry_lock();
	q.arena = registry_open("a");
	registry_unlock();
	carve(SEGMENT, 4 * KIB);
	give_back(SEGMENT);
	cr_assert_eq(object_get(&q, &object), 0);
	cr_assert(!was_quick);
	cr_assert(quick());
}

/* ---- the warning at a free ---- */

Test(block, a_free_is_told_when_graphs_go_on, .init = start)
{
	carve(SEGMENT, 4 * KIB);
	capture(10, SEGMENT, 0);
	give_back(SEGMENT);
	cr_assert_eq(world_findings, 0);
	capture(20, SEGMENT + 4 * KIB, 0);
	cr_assert_eq(world_findings, 1);
	cr_assert_eq(world_found.kind, FINDING_FREED_WHILE_REFERENCED);
	cr_assert(world_lists(SEGMENT, STALE_FREED));
	cr_assert_eq(load_relaxed(&block_freed_count), 0);
}

Test(block, a_program_that_ends_frees_tensors_first, .init = start)
{
	carve(SEGMENT, 4 * KIB);
	capture(10, SEGMENT, 0);
	give_back(SEGMENT);
	exec_close(10);
	capture(20, SEGMENT + 4 * KIB, 0);
	cr_assert_eq(world_findings, 0);
}

Test(block, a_launch_tells_the_free_first, .init = start)
{
	carve(SEGMENT, 4 * KIB);
	capture(10, SEGMENT, 0);
	give_back(SEGMENT);
	cr_assert(!launches(10));
	cr_assert_eq(world_findings, 2);
}

/* ---- segments ---- */

Test(block, a_segment_that_goes_takes_its_blocks, .init = start)
{
	struct block_counters b;

	carve(SEGMENT, 4 * KIB);
	capture(10, SEGMENT, 0);
	world_free(SEGMENT);
	cr_assert_eq(world_findings, 1);
	cr_assert_eq(world_found.kind, FINDING_FREED_WHILE_REFERENCED);
	cr_assert(world_lists(SEGMENT, STALE_FREED));
	block_read_counters(&b);
	cr_assert_eq(b.live, 0);
	cr_assert(!launches(10));
	cr_assert(world_lists(SEGMENT, STALE_FREED));
	world_open(SEGMENT, 20 * MIB, RANGE_DEVICE);
	cr_assert(!launches(10));
	cr_assert(world_lists(SEGMENT, STALE_GENERATION));
}

Test(block, unmapping_is_a_pause, .init = start)
{
	const uint64_t r = SEGMENT + 64 * MIB;
	struct block_counters b;

	world_open(r, 64 * MIB, RANGE_RESERVED);
	world_map(r, 4 * MIB);
	world_map(r + 4 * MIB, 4 * MIB);
	/* Over both pieces. */
	carve(r + 3 * MIB, 2 * MIB);
	capture(10, r + 3 * MIB, r + 4 * MIB + 512);
	cr_assert(launches(10));
	world_unmap(r + 4 * MIB, 4 * MIB);
	block_read_counters(&b);
	cr_assert_eq(b.live, 1);
	cr_assert(!launches(10));
	cr_assert_eq(world_found.refs_total, 1);
	cr_assert_eq(world_refs[0].reason, STALE_UNMAPPED);
	world_map(r + 4 * MIB, 4 * MIB);
	cr_assert(launches(10));
	/* And the block may still be freed. */
	give_back(r + 3 * MIB);
	cr_assert(!launches(10));
	cr_assert_eq(world_refs[0].reason, STALE_FREED);
}

static unsigned asked;
static bool is_busy(uint64_t stream)
{
	asked++;
	return true;
}

Test(block, unmapping_under_a_running_graph, .init = start)
{
	const uint64_t r = SEGMENT + 64 * MIB;

	device.stream_busy = is_busy;
	world_open(r, 64 * MIB, RANGE_RESERVED);
	world_map(r, 4 * MIB);
	carve(r + MIB, MIB);
	carve(r, MIB);
	capture(10, r + MIB, 0);
	capture(20, SEGMENT, 0);
	cr_assert(launches(10) && launches(20));
	world_unmap(r, 4 * MIB);
	cr_assert_geq(asked, 1);
	cr_assert_eq(world_findings, 1);
	cr_assert_eq(world_refs[0].reason, STALE_IN_FLIGHT);
	cr_assert_eq(world_refs[0].old.base, r + MIB);
}

Test(block, what_was_freed_unseen_makes_room, .init = start)
{
	struct block_counters b;

	carve(SEGMENT, 4 * KIB);
	carve(SEGMENT + 4 * KIB, 4 * KIB);
	carve(SEGMENT + 16 * KIB, 4 * KIB);
	capture(10, SEGMENT + 4 * KIB, SEGMENT + 16 * KIB);
	carve(SEGMENT + 2 * KIB, 8 * KIB);
	block_read_counters(&b);
	cr_assert_eq(b.live, 2);
	cr_assert_eq(b.overlaps, 2);
	cr_assert(!launches(10));
	cr_assert_eq(world_found.refs_total, 1);
	cr_assert(world_lists(SEGMENT + 4 * KIB, STALE_GENERATION));
}

/* ---- what captures own ---- */

Test(block, born_and_captured_in_one_window, .init = start)
{
	block_window(true);
	carve(SEGMENT, 4 * KIB);
	capture(10, SEGMENT, 0);
	give_back(SEGMENT);
	/* The next capture of the pool takes it, in another shape. */
	carve(SEGMENT, 2 * KIB);
	capture(20, SEGMENT + KIB, 0);
	give_back(SEGMENT);
	block_window(false);
	cr_assert(launches(10) && launches(20));
	cr_assert_eq(world_findings, 0);
	world_free(SEGMENT);
	cr_assert_eq(world_found.refs_total, 2);
	cr_assert(!launches(10));
	cr_assert(!launches(20));
}

Test(block, an_output_that_is_dropped_after_the_capture, .init = start)
{
	block_window(true);
	carve(SEGMENT, 4 * KIB);
	capture(10, SEGMENT, 0);
	block_window(false);
	block_window(true);
	/* An input of the next graph. */
	capture(20, SEGMENT, 0);
	block_window(false);
	give_back(SEGMENT);
	block_window(true);
	carve(SEGMENT, 4 * KIB);
	capture(30, SEGMENT, 0);
	block_window(false);
	cr_assert(launches(10) && launches(20) && launches(30));
	cr_assert_eq(world_findings, 0);
}

Test(block, an_input_that_a_recording_gives_back, .init = start)
{
	carve(SEGMENT, 4 * KIB);
	block_window(true);
	capture(10, SEGMENT, 0);
	give_back(SEGMENT);
	carve(SEGMENT, 4 * KIB);
	block_window(false);
	cr_assert(launches(10));
	cr_assert_eq(world_findings, 0);
}

Test(block, an_input_that_is_given_back_later_is_freed, .init = start)
{
	carve(SEGMENT, 4 * KIB);
	block_window(true);
	capture(10, SEGMENT, 0);
	block_window(false);
	give_back(SEGMENT);
	cr_assert(!launches(10));
}

/* Another thread allocates while one captures; a later graph captures what it got. */
Test(block, eager_during_a_capture_is_not_born_in_it, .init = start)
{
	block_window(true);
	carve(SEGMENT, 4 * KIB);
	block_window(false);
	block_window(true);
	capture(10, SEGMENT, 0);
	block_window(false);
	give_back(SEGMENT);
	cr_assert(!launches(10));
}

/* It made what the second graph reads; the third capture has it made there again. */
Test(block, what_a_helper_thread_allocates_for_captures, .init = start)
{
	block_window(true);
	carve(SEGMENT, 4 * KIB);
	block_window(false);
	block_window(true);
	capture(10, SEGMENT, 0);
	block_window(false);
	give_back(SEGMENT);
	block_window(true);
	carve(SEGMENT, 8 * KIB);
	capture(20, SEGMENT, 0);
	block_window(false);
	cr_assert(launches(10) && launches(20));
	cr_assert_eq(world_findings, 0);
	cr_assert_eq(load_relaxed(&block_freed_count), 0);
}

/* The same, but it comes to another place, or after the window: nobody takes it over. */
Test(block, what_a_helper_thread_allocated_is_not_taken_over, .init = start)
{
	block_window(true);
	carve(SEGMENT, 4 * KIB);
	block_window(false);
	block_window(true);
	capture(10, SEGMENT, 0);
	block_window(false);
	give_back(SEGMENT);
	block_window(true);
	carve(SEGMENT + 4 * KIB, 4 * KIB);
	block_window(false);
	carve(SEGMENT, 4 * KIB);
	cr_assert(!launches(10));
	/* And an ordinary one is ordinary, whoever gets its place. */
	capture(20, SEGMENT, 0);
	give_back(SEGMENT);
	block_window(true);
	carve(SEGMENT, 4 * KIB);
	block_window(false);
	cr_assert(!launches(20));
}

Test(block, a_segment_that_captures_share_is_counted, .init = start)
{
	const uint64_t pool = SEGMENT + 64 * MIB;
	struct block_counters b;

	world_open(pool, 2 * MIB, RANGE_DEVICE);
	carve(pool + MIB, 4 * KIB);
	give_back(pool + MIB);
	block_window(true);
	block_opened(DEV, pool, 4 * KIB, true, 0);
	block_read_counters(&b);
	cr_assert_eq(b.mixed, 0, "nothing ordinary lives there");
	carve(SEGMENT + MIB, 4 * KIB);
	block_window(false);
	carve(SEGMENT + 2 * MIB, 4 * KIB);
	capture(10, SEGMENT + 2 * MIB, 0);
	block_window(true);
	block_opened(DEV, SEGMENT, 4 * KIB, true, 0);
	block_opened(DEV, SEGMENT + 4 * KIB, 4 * KIB, true, 0);
	block_window(false);
	block_read_counters(&b);
	cr_assert_eq(b.mixed, 1, "once for each segment");
}

/* ---- state that is born in a capture ---- */

/* A capture allocates, captures, and what it allocated lives on as "y". */
static void bear(bool captures)
{
	block_window(true);
	block_opened(DEV, SEGMENT, 4 * KIB, captures, 0);
	capture(10, SEGMENT, 0);
	block_window(false);
	bind_bytes("y", ARENA_BOUND, SEGMENT, 4 * KIB);
}

static struct reload_outcome born_outcome;

/* End the reload. @return the findings of the kind. */
static unsigned reload_ended(uint64_t id)
{
	unsigned count = 0;

	cr_assert_eq(reload_end(id, &born_outcome), 0);
	for (uint32_t i = 0; i < born_outcome.findings.count; i++)
		count += born_outcome.findings.list[i].kind == FINDING_BORN_IN_CAPTURE;
	return count;
}

/* A reload that copies to @at, if that is not 0. */
static unsigned reload_copying(uint64_t at, uint64_t bytes)
{
	uint64_t id;

	cr_assert_eq(reload_begin(NULL, &id), 0);
	if (at != 0)
		born_written(at, bytes, BORN_COPIED);
	return reload_ended(id);
}

Test(block, a_reload_into_what_a_capture_allocated, .init = start)
{
	const struct slot_finding *f;
	char text[512];

	bear(true);
	cr_assert_eq(reload_copying(SEGMENT + KIB, 512), 1);
	f = born_outcome.findings.list;
	cr_assert_eq(f->severity, SEVERITY_ERROR);
	cr_assert_eq(f->execs_count, 1);
	slot_finding_text(f, text, sizeof(text));
	cr_assert_not_null(strstr(text, "[born-in-capture] y at 0x7f0000000000 (generation"));
	cr_assert_not_null(strstr(text, "graph exec 1 allocated it"));
	cr_assert_eq(born_outcome.verdict, RELOAD_FAIL);
	/* What was copied in an earlier reload is overwritten by now. */
	cr_assert_eq(reload_copying(0, 0), 0);
	cr_assert_eq(born_outcome.verdict, RELOAD_PASS);
}

/* A kernel wrote it, as a client knows: a load that converts, or an output that is cleared. */
Test(block, a_kernel_of_a_reload_writes_what_a_capture_allocated, .init = start)
{
	const struct slot_finding *f = NULL;
	char text[512];
	uint64_t id;

	cr_assert_eq(reload_wrote(SEGMENT, 1), ARENA_E_BUSY);
	bear(true);
	cr_assert_eq(reload_begin(NULL, &id), 0);
	cr_assert_eq(reload_wrote(SEGMENT, 4 * KIB), 0);
	cr_assert_eq(reload_ended(id), 1);
	f = born_outcome.findings.list;
	cr_assert_eq(f->severity, SEVERITY_WARN);
	slot_finding_text(f, text, sizeof(text));
	cr_assert_not_null(strstr(text, "graph exec 1 allocated it"));
	cr_assert_not_null(strstr(text,
				  "what the reload wrote there or elsewhere in its allocation: "
				  "if that is to last"));
	cr_assert_eq(born_outcome.verdict, RELOAD_PASS);
	/* What was copied as well was loaded. */
	cr_assert_eq(reload_begin(NULL, &id), 0);
	cr_assert_eq(reload_wrote(SEGMENT, 4 * KIB), 0);
	born_written(SEGMENT + KIB, 512, BORN_COPIED);
	cr_assert_eq(reload_ended(id), 1);
	cr_assert_eq(born_outcome.findings.list->severity, SEVERITY_ERROR);
	cr_assert_eq(born_outcome.verdict, RELOAD_FAIL);
}

/* A version counts what is only captured, too. */
Test(block, a_reload_that_captures_writes, .init = start)
{
	uint64_t id;

	bear(true);
	cr_assert_eq(reload_begin(NULL, &id), 0);
	block_window(true);
	born_capture_begins();
	capture(20, SEGMENT, 0);
	block_window(false);
	cr_assert_eq(reload_wrote(SEGMENT, 4 * KIB), 0);
	cr_assert_eq(reload_ended(id), 0);
	/* Copies are told when they are made. */
	cr_assert_eq(reload_copying(SEGMENT, 4 * KIB), 1);
}

static unsigned reload_writing(uint64_t at, uint64_t bytes)
{
	uint64_t id;

	cr_assert_eq(reload_begin(NULL, &id), 0);
	cr_assert_eq(reload_wrote(at, bytes), 0);
	return reload_ended(id);
}

Test(block, a_reload_within_a_capture, .init = start)
{
	uint64_t id;

	bear(true);
	block_window(true);
	born_capture_begins();
	cr_assert_eq(reload_writing(SEGMENT, 4 * KIB), 0);
	/* One that ends before the reload does. */
	cr_assert_eq(reload_begin(NULL, &id), 0);
	block_window(false);
	cr_assert_eq(reload_wrote(SEGMENT, 4 * KIB), 0);
	cr_assert_eq(reload_ended(id), 0);
	cr_assert_eq(reload_writing(SEGMENT, 4 * KIB), 1);
}

/* Views share a version: of which one it tells is not known. */
Test(block, writes_are_told_once_for_each_allocation, .init = start)
{
	const char *name;
	char text[512];
	uint64_t id;

	block_window(true);
	block_opened(DEV, SEGMENT, 4 * KIB, true, 0);
	block_opened(DEV, SEGMENT + 4 * KIB, 4 * KIB, true, 0);
	capture(10, SEGMENT, SEGMENT + 4 * KIB);
	block_window(false);
	bind_bytes("a", ARENA_BOUND, SEGMENT, KIB);
	bind_bytes("b", ARENA_BOUND, SEGMENT + KIB, KIB);
	bind_bytes("c", ARENA_BOUND, SEGMENT + 4 * KIB, KIB);
	cr_assert_eq(reload_writing(SEGMENT, 8 * KIB), 2);
	for (int i = 0; i < 2; i++) {
		slot_finding_text(&born_outcome.findings.list[i], text, sizeof(text));
		cr_assert_not_null(strstr(text, "there or elsewhere in its allocation"));
	}
	cr_assert_eq(reload_writing(SEGMENT + KIB, KIB), 1);
	name = interned(born_outcome.findings.list[0].name);
	cr_assert_str_eq(name, "b", "what was not written is not named");
	/* Copies are exact. */
	cr_assert_eq(reload_copying(SEGMENT, 2 * KIB), 2);
	cr_assert_eq(reload_begin(NULL, &id), 0);
	cr_assert_eq(reload_wrote(SEGMENT, 4 * KIB), 0);
	born_written(SEGMENT + KIB, KIB, BORN_COPIED);
	cr_assert_eq(reload_ended(id), 1);
	name = interned(born_outcome.findings.list[0].name);
	cr_assert_str_eq(name, "b", "what was loaded is known");
}

Test(block, an_output_that_nobody_loads, .init = start)
{
	bear(true);
	born_written(SEGMENT, 4 * KIB, BORN_COPIED);
	cr_assert_eq(reload_copying(SEGMENT + 64 * KIB, 4 * KIB), 0);
	/* Of no slot: it may be anything. */
	block_window(true);
	block_opened(DEV, SEGMENT + 64 * KIB, 4 * KIB, true, 0);
	capture(20, SEGMENT + 64 * KIB, 0);
	block_window(false);
	cr_assert_eq(reload_copying(SEGMENT + 64 * KIB, 4 * KIB), 0);
}

Test(block, state_that_a_capture_only_reads, .init = start)
{
	bear(false);
	cr_assert_eq(reload_copying(SEGMENT, 4 * KIB), 0);
}

/* One copy over both: only what the capture allocated is overwritten. */
Test(block, state_beside_what_a_capture_allocated, .init = start)
{
	carve(SEGMENT + 4 * KIB, 4 * KIB);
	block_window(true);
	block_opened(DEV, SEGMENT, 4 * KIB, true, 0);
	capture(10, SEGMENT + 4 * KIB, SEGMENT);
	block_window(false);
	bind_bytes("y", ARENA_BOUND, SEGMENT, 4 * KIB);
	bind_bytes("z", ARENA_BOUND, SEGMENT + 4 * KIB, 4 * KIB);
	cr_assert_eq(reload_copying(SEGMENT, 8 * KIB), 1);
	cr_assert_str_eq(interned(born_outcome.findings.list[0].name), "y");
}

Test(block, state_whose_graph_is_gone, .init = start)
{
	bear(true);
	/* Another graph reads it. */
	capture(20, SEGMENT, 0);
	cr_assert_eq(reload_copying(SEGMENT, 4 * KIB), 1);
	exec_close(10);
	cr_assert_eq(reload_copying(SEGMENT, 4 * KIB), 0);
	cr_assert_eq(born_outcome.verdict, RELOAD_PASS);
}

Test(block, scratch_that_a_capture_allocated, .init = start)
{
	bear(true);
	registry_lock();
	slot_of("y", ARENA_BOUND, 4 * KIB)->spec.flags = ARENA_SPEC_SCRATCH;
	registry_unlock();
	cr_assert_eq(reload_copying(SEGMENT, 4 * KIB), 0);
}

Test(block, state_in_memory_of_an_allocation_node, .init = start)
{
	const uint64_t base = SEGMENT + 64 * MIB;
	struct exec_builder *b = exec_build_begin();

	world_open(base, MIB, RANGE_GRAPH);
	exec_build_node(b, KERNEL(10, 11, base));
	exec_build_owns(b, base);
	exec_open(10, 1, b);
	bind_bytes("y", ARENA_BOUND, base, MIB);
	cr_assert_eq(reload_copying(base, MIB), 1);
	exec_close(10);
	cr_assert_eq(reload_copying(base, MIB), 0);
}

/* A block that its capture does not write, for copies that are no finding. */
static void bear_aside(uint64_t base, uint64_t size_bytes)
{
	block_window(true);
	block_opened(DEV, base, size_bytes, true, 0);
	block_window(false);
}

/* Neighbours are one, whatever their order; the rest is kept up to a limit, and then counted. */
Test(block, more_copies_than_are_noted, .init = start)
{
	const uint64_t aside = SEGMENT + MIB, limit = 1 << 16;
	uint64_t id;

	bear(true);
	bear_aside(aside, 8 * MIB);
	cr_assert_eq(reload_begin(NULL, &id), 0);
	for (uint64_t i = 0; i < 2 * limit; i++)
		born_written(aside + (2 * limit - 1 - i), 1, BORN_COPIED);
	for (uint64_t i = 1; i < limit; i++)
		born_written(aside + 4 * MIB + 2 * i, 1, BORN_COPIED);
	cr_assert_eq(load_relaxed(&born_left_out), 0);
	born_written(SEGMENT + KIB, 1, BORN_COPIED);
	cr_assert_eq(load_relaxed(&born_left_out), 1);
	/* The last gap of the first ones closes: there is room again. */
	born_written(aside + 4 * MIB + 3, 1, BORN_COPIED);
	born_written(SEGMENT + KIB, 1, BORN_COPIED);
	cr_assert_eq(load_relaxed(&born_left_out), 1);
	cr_assert_eq(reload_end(id, &born_outcome), 0);
	cr_assert_eq(born_outcome.findings.count, 1);
}

/* A block that a slot has only a part of, and the other way round. */
Test(block, copies_and_slots_that_reach_beyond, .init = start)
{
	carve(SEGMENT + 4 * KIB, 4 * KIB);
	bear(true);
	bear_aside(SEGMENT + 8 * KIB, 4 * KIB);
	cr_assert_eq(reload_copying(SEGMENT + 4 * KIB - 1, 2), 1);
	cr_assert_eq(reload_copying(SEGMENT + 4 * KIB, 8 * KIB), 0);
	cr_assert_eq(reload_copying(SEGMENT - 4 * KIB, 4 * KIB + 1), 1);
	cr_assert_eq(reload_copying(SEGMENT - 4 * KIB, 4 * KIB), 0);
	bind_bytes("z", ARENA_BOUND, SEGMENT + 2 * KIB, 8 * KIB);
	cr_assert_eq(reload_copying(SEGMENT + KIB, 512), 1, "y only");
	cr_assert_eq(reload_copying(SEGMENT + 4 * KIB, 8 * KIB), 0, "in z, but not in the block");
	cr_assert_eq(reload_copying(SEGMENT + 3 * KIB, 8 * KIB), 2);
}

/* The node that writes it gets other parameters. */
Test(block, state_that_is_not_written_any_more, .init = start)
{
	carve(SEGMENT + 4 * KIB, 4 * KIB);
	bear(true);
	cr_assert_eq(reload_copying(SEGMENT, 4 * KIB), 1);
	exec_set_node(10, KERNEL(10, 11, SEGMENT + 4 * KIB));
	cr_assert_eq(reload_copying(SEGMENT, 4 * KIB), 0);
}

Test(block, a_segment_in_which_captures_allocate, .init = start)
{
	const uint64_t pool = SEGMENT + 64 * MIB;

	world_open(pool, 2 * MIB, RANGE_DEVICE);
	/* Copied in before the recording begins, as cudagraph trees do it. */
	carve(pool, 4 * KIB);
	block_window(true);
	capture(10, pool, 0);
	block_opened(DEV, pool + 4 * KIB, 4 * KIB, true, 0);
	block_window(false);
	give_back(pool);
	give_back(pool + 4 * KIB);
	carve(pool, 64 * KIB);
	cr_assert(launches(10));
	cr_assert_eq(world_findings, 0);
	/* The pool goes; the same address is an ordinary segment later. */
	world_free(pool);
	cr_assert(!launches(10));
	world_open(pool, 2 * MIB, RANGE_DEVICE);
	carve(pool, 4 * KIB);
	capture(20, pool, 0);
	cr_assert(launches(20));
	give_back(pool);
	cr_assert(!launches(20));
}

/* ---- slots ---- */

Test(block, a_slot_in_a_block_moves, .init = start)
{
	struct arena_snapshot *s;
	struct slot_findings f = { 0 };

	carve(SEGMENT, 64 * KIB);
	carve(SEGMENT + 64 * KIB, 64 * KIB);
	bind_bytes("w", ARENA_BOUND, SEGMENT, 64 * KIB);
	capture(10, SEGMENT, 0);
	cr_assert_eq(snapshot_take(NULL, &s), 0);
	bind_bytes("w", ARENA_BOUND, SEGMENT + 64 * KIB, 64 * KIB);
	cr_assert(!launches(10));
	cr_assert(world_lists(SEGMENT, STALE_SLOT_MOVED));
	cr_assert_eq(world_refs[0].now.kind, RANGE_BLOCK);
	cr_assert_eq(snapshot_verify(s, NULL, &f), 0);
	cr_assert_eq(f.count, 1);
	cr_assert_eq(f.list[0].kind, FINDING_MOVED);
	cr_assert_eq(f.list[0].severity, SEVERITY_ERROR);
}

/* A17: the block of a capture is carved again by the next capture; the graphs may, the slot not. */
Test(block, a_slot_in_a_block_of_a_capture, .init = start)
{
	struct arena_snapshot *s;
	struct slot_findings f = { 0 };

	block_window(true);
	carve(SEGMENT, 4 * KIB);
	capture(10, SEGMENT, 0);
	block_window(false);
	bind_bytes("y", ARENA_BOUND, SEGMENT, 4 * KIB);
	cr_assert_eq(snapshot_take(NULL, &s), 0);
	give_back(SEGMENT);
	block_window(true);
	carve(SEGMENT, 4 * KIB);
	capture(20, SEGMENT, 0);
	block_window(false);
	cr_assert(launches(10) && launches(20));
	cr_assert_eq(world_findings, 0);
	cr_assert_eq(snapshot_verify(s, NULL, &f), 0);
	cr_assert_eq(f.count, 1);
	cr_assert_eq(f.list[0].kind, FINDING_REPLACED);
	cr_assert_eq(f.list[0].severity, SEVERITY_ERROR);
}

Test(block, a_slot_whose_block_is_gone_is_missing, .init = start)
{
	struct arena_snapshot *s;
	struct slot_findings f = { 0 };

	carve(SEGMENT, 4 * KIB);
	bind_bytes("y", ARENA_BOUND, SEGMENT, 4 * KIB);
	capture(10, SEGMENT, 0);
	cr_assert_eq(snapshot_take(NULL, &s), 0);
	give_back(SEGMENT);
	cr_assert_eq(snapshot_verify(s, NULL, &f), 0);
	cr_assert_eq(f.count, 1);
	cr_assert_eq(f.list[0].kind, FINDING_MISSING);
	/* The free was told as well. */
	cr_assert_eq(world_findings, 1);
}

/* A13: the same slot is bound again to what came back at its address: benign. */
Test(block, a_slot_that_is_bound_again_at_its_address, .init = start)
{
	carve(SEGMENT, 4 * KIB);
	bind_bytes("emb", ARENA_BOUND, SEGMENT, 4 * KIB);
	capture(10, SEGMENT, 0);
	give_back(SEGMENT);
	carve(SEGMENT, 4 * KIB);
	cr_assert(!launches(10));
	bind_bytes("emb", ARENA_BOUND, SEGMENT, 4 * KIB);
	cr_assert(launches(10));
}

/* ---- the map, against a sorted list of what lives ---- */

#define MODEL 3000

static struct { uint64_t base, bytes; } model[MODEL];
static size_t model_count;

static size_t model_above(uint64_t addr)
{
	size_t i = 0;

	while (i < model_count && model[i].base <= addr)
		i++;
	return i;
}

/* Addresses that crowd at several scales, so that all levels are exercised. */
static uint64_t any_base(uint64_t *seed, unsigned shift)
{
	static const unsigned scales[] = { 0, 1, 5, 6, 7, 12, 13, 18, 24, 31 };
	unsigned scale = scales[seed_below(seed, 10)];

	return (((uint64_t)1 << 36) + (seed_below(seed, 70) << scale) + seed_below(seed, 3))
	       << shift;
}

/* A dead entry may be there or not; one that is found has bytes, and overlaps nothing. */
static void check_find(struct block_map *m, uint64_t base, uint64_t addr)
{
	size_t above = model_above(addr);
	uint64_t below = above != 0 ? model[above - 1].base : 0;
	uint64_t next = above < model_count ? model[above].base : UINT64_MAX;
	struct block *b = block_map_floor(m, addr);

	if (b != NULL && !block_is_live(b)) {
		cr_assert(block_base(m, b) > below && block_base(m, b) <= addr);
		cr_assert(b->extent != 0 && block_base(m, b) + b->extent <= next);
		cr_assert(above == 0 || below + model[above - 1].bytes <= block_base(m, b));
	} else {
		cr_assert_eq(b != NULL ? block_base(m, b) : 0, below, "at %#lx", addr);
	}
	b = block_map_get(m, base);
	above = model_above(base);
	cr_assert_eq(b != NULL && block_is_live(b), above != 0 && model[above - 1].base == base);
	if (b != NULL && block_is_live(b))
		cr_assert_eq(b->extent, model[above - 1].bytes);
}

static void model_claim(struct block_map *m, struct block *b, uint64_t base, uint64_t bytes)
{
	size_t above = model_above(base);
	bool has_room = (above == 0 || model[above - 1].base + model[above - 1].bytes <= base) &&
			(above == model_count || model[above].base >= base + bytes);

	/* What it had was its own. */
	has_room |= bytes <= b->extent;
	cr_assert_eq(bytes <= b->extent || block_map_claim(m, b, bytes), has_room);
	if (!has_room)
		return;
	b->key += BLOCK_LIVE - BLOCK_DEAD;
	b->extent = bytes;
	memmove(&model[above + 1], &model[above], (model_count++ - above) * sizeof(*model));
	model[above].base = base;
	model[above].bytes = bytes;
}

static void check_map(struct block_map *m, uint64_t *seed, unsigned shift)
{
	uint64_t base = any_base(seed, shift);
	struct block *b = block_map_get(m, base);

	check_find(m, base, base + seed_below(seed, 2 << shift));
	if ((b == NULL || !block_is_live(b)) && model_count < MODEL && seed_below(seed, 100) < 65) {
		b = block_map_add(m, base);
		cr_assert_not_null(b);
		model_claim(m, b, base,
			    (1 + seed_below(seed, seed_below(seed, 10) ? 3 : 5000)) << shift);
	} else if (model_count != 0) {
		size_t i = seed_below(seed, model_count);

		b = block_map_get(m, model[i].base);
		b->key += BLOCK_DEAD - BLOCK_LIVE;
		if (seed_below(seed, 4) == 0)
			block_map_hide(m, b);
		memmove(&model[i], &model[i + 1], (--model_count - i) * sizeof(*model));
	}
	cr_assert_geq(m->count, model_count);
	cr_assert_leq(m->count, m->mask / 4 * 3 + 1);
}

Test(block, the_map_agrees_with_a_sorted_list)
{
	uint64_t seed = seed_start("block map");
	static struct block_map m;

	for (unsigned shift = 6; shift <= 9; shift += 3) {
		cr_assert_eq(block_map_init(&m, shift), 0);
		model_count = 0;
		for (int step = 0; step < 60000; step++)
			check_map(&m, &seed, shift);
	}
}

Test(block, the_map_refuses_what_does_not_fit)
{
	static struct block_map m;
	const uint64_t top = (uint64_t)1 << 51;

	cr_assert_eq(block_map_init(&m, 9), 0);
	cr_assert_null(block_map_add(&m, 0));
	cr_assert_null(block_map_add(&m, 4096 + 16));
	cr_assert_null(block_map_add(&m, top));
	cr_assert_null(block_map_floor(&m, UINT64_MAX));
	cr_assert_not_null(block_map_add(&m, top - 512));
	cr_assert_null(block_map_floor(&m, UINT64_MAX), "it is hidden");
	cr_assert(block_map_claim(&m, block_map_get(&m, top - 512), 512));
	cr_assert_eq(block_base(&m, block_map_floor(&m, UINT64_MAX)), top - 512);
	cr_assert_null(block_map_floor(&m, top - 513));
}

/* A slot's own memory is the slot's, also where an allocator carves blocks out of it. */
Test(block, a_slot_that_owns_its_memory_is_no_block, .init = start)
{
	const uint64_t chunk = SEGMENT + 64 * MIB;
	struct range_view v;
	struct slot *s;

	ledger_open(&(struct range_desc){
		.base = chunk, .size_bytes = MIB, .kind = RANGE_DEVICE, .scope = STORAGE_SCOPE });
	bind_bytes("w", ARENA_VALUE, chunk, MIB);
	carve(chunk, 4 * KIB);
	capture(10, chunk, 0);
	cr_assert(ledger_refer(chunk, &v));
	cr_assert_eq(v.kind, RANGE_DEVICE);
	/* Storage that is kept may be an ordinary segment. */
	carve(SEGMENT, 4 * KIB);
	capture(20, SEGMENT, 0);
	s = bind_bytes("kept", ARENA_SCRATCH, SEGMENT, MIB);
	cr_assert(ledger_find(SEGMENT, &v));
	cr_assert_eq(s->generation, v.generation);
	give_back(chunk);
	cr_assert(launches(10));
	cr_assert_eq(world_findings, 0);
}

/* The segment and the block that a factory got may begin at one address. */
Test(block, an_object_with_a_segment_and_a_block, .init = start)
{
	struct range_view segment, block;

	carve(SEGMENT, 4 * KIB);
	cr_assert(ledger_refer(SEGMENT, &block) && ledger_find(SEGMENT, &segment));
	cr_assert(ledger_lives(SEGMENT, block.generation));
	cr_assert(ledger_lives(SEGMENT, segment.generation));
	give_back(SEGMENT);
	cr_assert(!ledger_lives(SEGMENT, block.generation));
	cr_assert(ledger_lives(SEGMENT, segment.generation));
}
