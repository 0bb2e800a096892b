/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of judgement (design, section 4) on made-up addresses: faults and traps. */
#include "world.h"

#include "arena/sync.h"

#define A 0x7f0000000000ull
#define B 0x7f1000000000ull
#define C 0x7f2000000000ull
#define R 0x700000000000ull /* a reservation */
#define G 0x100ull	    /* handle of the exec under test */

TestSuite(guard, .init = world_start);

static bool launch(uint64_t handle)
{
	return guard_launch(handle, STREAM);
}

/* Launch, and say whether a finding was made meanwhile. */
static bool launch_finds(uint64_t handle)
{
	unsigned before = world_findings;

	launch(handle);
	return world_findings != before;
}

Test(guard, sound_launch_is_silent)
{
	world_alloc(A);
	world_exec(G, KERNEL(1, 1, A + 64));
	cr_assert(launch(G));
	cr_assert_eq(world_findings, 0);
	cr_assert_eq(world_counters().launches_judged, 0);
	cr_assert(launch(0xdead), "an unknown exec is not our business");
}

Test(guard, freed)
{
	uint64_t generation = load_relaxed(&world_alloc(A)->generation);

	world_exec(G, KERNEL(1, 1, A + 64));
	world_free(A);
	cr_assert_eq(world_found.kind, FINDING_FREED_WHILE_REFERENCED);
	cr_assert_eq(finding_severity(world_found.kind), SEVERITY_WARN);
	cr_assert_eq(world_found.refs_count, 1);
	cr_assert_eq(world_found.exec_serial, 0);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_found.kind, FINDING_STALE_LAUNCH);
	cr_assert_eq(world_found.exec_handle, G);
	cr_assert_eq(world_found.exec_serial, exec_find(G)->serial);
	cr_assert_not(world_found.refused);
	cr_assert_eq(world_found.refs_total, 1);
	cr_assert_eq(world_refs[0].reason, STALE_FREED);
	cr_assert_eq(world_refs[0].old.base, A);
	cr_assert_eq(world_refs[0].old.size_bytes, MIB);
	cr_assert_eq(world_refs[0].old.generation, generation);
	cr_assert_eq(world_refs[0].value, A + 64);
	cr_assert_eq(world_refs[0].now.base, 0);
	cr_assert_str_eq(interned(world_refs[0].name), "k1");
}

Test(guard, replaced_names_what_lives_there_now)
{
	uint64_t now;

	world_alloc(A);
	world_exec(G, KERNEL(1, 1, A + 64));
	world_free(A);
	now = load_relaxed(&world_open(A, 2 * MIB, RANGE_MANAGED)->generation);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_refs[0].reason, STALE_GENERATION);
	cr_assert_eq(world_refs[0].now.base, A);
	cr_assert_eq(world_refs[0].now.generation, now);
	cr_assert_eq(world_refs[0].now.kind, RANGE_MANAGED);
}

/* A12: all causes, not the first one. */
Test(guard, all_causes_are_listed)
{
	world_alloc(A);
	world_alloc(B);
	world_alloc(C);
	world_exec(G, KERNEL(1, 1, A, C, B, A + 8));
	world_free(A);
	world_free(B);
	world_open(B, MIB, RANGE_POOL);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_found.refs_total, 3);
	cr_assert_eq(world_found.refs_count, 3);
	cr_assert(world_lists(A, STALE_FREED));
	cr_assert(world_lists(B, STALE_GENERATION));
	cr_assert_not(world_lists(C, STALE_FREED));
}

Test(guard, strict_refuses_and_is_not_sticky)
{
	guard_refuses = true;
	world_alloc(A);
	world_alloc(B);
	world_exec(G, KERNEL(1, 1, A));
	world_free(A);
	cr_assert_not(launch(G));
	cr_assert(world_found.refused);
	cr_assert_not(launch(G));
	cr_assert_eq(world_counters().launches_refused, 2);
	cr_assert_eq(world_counters().launches_stale, 2);
	cr_assert_eq(load_relaxed(&exec_find(G)->last_stream), 0, "a refused launch is none");
	exec_set_node(G, KERNEL(1, 1, B));
	cr_assert(launch(G));
	cr_assert(launch(G));
}

Test(guard, same_occurrence_is_emitted_once)
{
	world_alloc(A);
	world_alloc(B);
	world_exec(G, KERNEL(1, 1, A, B));
	world_free(A);
	cr_assert(launch_finds(G));
	cr_assert_not(launch_finds(G));
	cr_assert_not(launch_finds(G));
	cr_assert_eq(world_counters().launches_stale, 3);
	world_free(B);
	cr_assert(launch_finds(G), "a further cause is another occurrence");
	cr_assert_eq(world_found.refs_total, 2);
}

/* Rule 12: a free that the driver refuses leaves no trace. */
Test(guard, refused_free_is_undone)
{
	struct range *r = world_alloc(A);

	world_exec(G, KERNEL(1, 1, A));
	cr_assert_eq(ledger_close_begin(A, 0), r);
	ledger_close_end(r, false);
	cr_assert(launch(G));
	cr_assert_eq(finding_kind_count(FINDING_STALE_LAUNCH), 0);
	cr_assert_eq(world_counters().launches_judged, 1);
	launch(G);
	cr_assert_eq(world_counters().launches_judged, 1, "the mark was cleared");
}

/* A launch between the announcement of a free and the driver's answer is as sound as before. */
Test(guard, free_in_progress)
{
	struct range *r = world_alloc(A);

	world_exec(G, KERNEL(1, 1, A));
	ledger_close_begin(A, 0);
	cr_assert_not(launch_finds(G), "the driver may refuse");
	ledger_close_end(r, true);
	cr_assert(launch_finds(G));
}

/* A10: three graphs, two frees, every launch has its own verdict. */
Test(guard, growing_workspace)
{
	world_alloc(A);
	world_exec(G, KERNEL(1, 1, A));
	world_free(A);
	cr_assert_eq(world_findings, 1);
	world_alloc(B);
	world_exec(G + 1, KERNEL(2, 2, B));
	world_free(B);
	cr_assert_eq(world_findings, 2);
	world_alloc(C);
	world_exec(G + 2, KERNEL(3, 3, C));
	cr_assert_not(launch_finds(G + 2));
	cr_assert(launch_finds(G));
	cr_assert(launch_finds(G + 1));
}

/* A15: host memory counts like any other. */
Test(guard, host_source_of_a_copy)
{
	struct word words[] = { word_at(0, A), word_at(1, B) };

	world_open(A, 4096, RANGE_HOST);
	world_alloc(B);
	world_exec(G, &(struct node_desc){ .graph = 1,
					   .node = 1,
					   .kind = NODE_MEMCPY,
					   .words = words,
					   .words_count = 2 });
	world_free(A);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_refs[0].node_kind, NODE_MEMCPY);
	cr_assert_eq(world_refs[0].old.kind, RANGE_HOST);
	cr_assert_eq(world_refs[0].param, 0);
}

/* A27: what is replaced in the exec may be freed; what a failed update left there may not. */
Test(guard, update_then_free)
{
	struct exec_builder *b = exec_build_begin();

	world_alloc(A);
	world_alloc(B);
	world_exec(G, KERNEL(1, 1, A));
	exec_build_node(b, KERNEL(2, 2, B));
	exec_update(G, b);
	world_free(A);
	cr_assert_eq(world_findings, 0);
	cr_assert_not(launch_finds(G));
	world_alloc(C);
	exec_set_node(G, KERNEL(1, 1, C));
	world_free(B);
	cr_assert_eq(world_findings, 0);
	cr_assert_not(launch_finds(G));
	world_free(C);
	cr_assert(launch_finds(G));
	cr_assert(world_lists(C, STALE_FREED));
	cr_assert_eq(world_found.refs_total, 1);
}

/* A28: an exec that is gone holds nothing; another one of the same template does. */
Test(guard, destroyed_exec_is_forgotten)
{
	world_alloc(A);
	world_exec(G, KERNEL(1, 1, A));
	exec_close(G);
	cr_assert_null(exec_find(G));
	world_free(A);
	cr_assert_eq(world_findings, 0);

	world_alloc(B);
	world_exec(G + 1, KERNEL(1, 1, B));
	world_exec(G + 2, KERNEL(1, 1, B));
	exec_close(G + 1);
	world_free(B);
	cr_assert_eq(world_found.refs_count, 1);
	cr_assert(launch_finds(G + 2));
}

/* A28: the template still carries the address of memory that was freed before instantiate. */
Test(guard, freed_between_birth_and_instantiate)
{
	world_alloc(A);
	birth_record(KERNEL(1, 1, A));
	world_free(A);
	world_exec(G, KERNEL(1, 1, A));
	cr_assert(launch_finds(G));
	cr_assert(world_lists(A, STALE_FREED));
}

/* A13, A08: the address came back between capture and instantiate, for something else. */
Test(guard, replaced_between_birth_and_instantiate)
{
	world_alloc(A);
	birth_record(KERNEL(1, 1, A));
	world_free(A);
	world_alloc(A);
	world_exec(G, KERNEL(1, 1, A));
	cr_assert(launch_finds(G));
	cr_assert(world_lists(A, STALE_GENERATION));
}

/* A32: a number that was nobody's memory when it was captured is no address. */
Test(guard, numbers_are_not_addresses)
{
	birth_record(KERNEL(1, 1, A + 64));
	world_alloc(A);
	world_exec(G, KERNEL(1, 1, A + 64));
	cr_assert_eq(world_counters().refs, 0);
	world_free(A);
	cr_assert_eq(world_findings, 0);
	cr_assert_not(launch_finds(G));
}

/* A32: an end pointer is the base of the next allocation. */
Test(guard, one_past_the_end)
{
	world_alloc(A);
	birth_record(KERNEL(1, 1, A, A + MIB));
	world_alloc(A + MIB);
	world_exec(G, KERNEL(1, 1, A, A + MIB));
	world_free(A + MIB);
	cr_assert_not(launch_finds(G));
	world_free(A);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_found.refs_total, 1);
}

/* Memory of one graph's allocation node, freed by a node of another graph. */
Test(guard, freed_by_a_node)
{
	struct exec_builder *b = exec_build_begin();

	world_open(A, MIB, RANGE_GRAPH);
	exec_build_owns(b, A);
	exec_open(G + 1, 1, b);
	world_exec(G, KERNEL(1, 1, A));
	b = exec_build_begin();
	exec_build_frees(b, A);
	exec_build_frees(b, B);
	exec_open(G + 2, 1, b);
	for (int i = 0; i < 3; i++) {
		cr_assert_not(launch_finds(G + 1));
		cr_assert_not(launch_finds(G));
		cr_assert_not(launch_finds(G + 2));
	}
	cr_assert_eq(world_findings, 0);
	cr_assert(launch_finds(G));
	cr_assert(world_lists(A, STALE_FREED));
	cr_assert_not(launch_finds(G + 1));
	cr_assert_not(launch_finds(G));
}

/* An exec that frees what it allocates closes nothing. */
Test(guard, freed_by_its_own_node)
{
	struct exec_builder *b = exec_build_begin();

	world_open(A, MIB, RANGE_GRAPH);
	exec_build_owns(b, A);
	exec_build_frees(b, A);
	exec_open(G, 1, b);
	world_exec(G + 1, KERNEL(1, 1, A));
	cr_assert_not(launch_finds(G));
	cr_assert_not(launch_finds(G + 1));
}

Test(guard, suspects_never_count)
{
	struct word w = word_at(0, A);

	w.confidence = CONFIDENCE_SUSPECT;
	world_alloc(A);
	world_exec(G, &(struct node_desc){ .graph = 1,
					   .node = 1,
					   .kind = NODE_KERNEL,
					   .words = &w,
					   .words_count = 1 });
	cr_assert_eq(world_counters().refs_suspect, 1);
	cr_assert_eq(world_counters().refs, 0);
	world_free(A);
	cr_assert_eq(world_findings, 0);
	cr_assert_not(launch_finds(G));
}

/* Rule 2: disabled does not count; enabled again it counts with all that happened meanwhile. */
Test(guard, disabled_node)
{
	world_alloc(A);
	world_exec(G, KERNEL(1, 1, A));
	exec_set_enabled(G, 1, false);
	world_free(A);
	cr_assert_eq(world_findings, 0);
	cr_assert_not(launch_finds(G));
	exec_set_enabled(G, 1, true);
	cr_assert(launch_finds(G));
	exec_set_enabled(G, 1, false);
	cr_assert_not(launch_finds(G));
	exec_set_enabled(G, 1, true);
	cr_assert(launch_finds(G), "it was sound in between: a new occurrence");
}

static void reserve_and_capture(void)
{
	world_open(R, 64 * MIB, RANGE_RESERVED);
	world_map(R, 2 * MIB);
	world_map(R + 2 * MIB, 2 * MIB);
	world_exec(G, KERNEL(1, 1, R + 4096));
}

/* A31: the same address mapped again is the same memory for us. */
Test(guard, remap_at_the_same_address)
{
	reserve_and_capture();
	for (int i = 0; i < 3; i++) {
		world_unmap(R, 2 * MIB);
		world_map(R, 2 * MIB);
		ledger_written(R);
		cr_assert_not(launch_finds(G));
	}
}

Test(guard, unmapped_until_it_is_mapped_again)
{
	reserve_and_capture();
	world_unmap(R + 2 * MIB, 2 * MIB);
	cr_assert_not(launch_finds(G), "another part of the reservation");
	world_unmap(R, 2 * MIB);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_refs[0].reason, STALE_UNMAPPED);
	cr_assert_eq(world_refs[0].old.kind, RANGE_RESERVED);
	world_map(R, 2 * MIB);
	ledger_written(R);
	cr_assert_not(launch_finds(G));
}

Test(guard, unmapped_then_the_reservation_is_freed)
{
	reserve_and_capture();
	world_unmap(R, 4 * MIB);
	world_free(R);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_refs[0].reason, STALE_FREED);
	world_alloc(R);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_refs[0].reason, STALE_GENERATION);
}

Test(guard, content_undefined_informs_once)
{
	guard_refuses = true;
	reserve_and_capture();
	world_unmap(R, 2 * MIB);
	world_map(R, 2 * MIB);
	cr_assert(launch(G));
	cr_assert_eq(world_findings, 1);
	cr_assert_eq(world_found.kind, FINDING_CONTENT_UNDEFINED);
	cr_assert_eq(finding_severity(world_found.kind), SEVERITY_INFO);
	cr_assert_eq(world_refs[0].reason, STALE_UNDEFINED);
	cr_assert_eq(world_refs[0].old.base, R);
	cr_assert_eq(world_refs[0].old.size_bytes, 2 * MIB);
	cr_assert_eq(load_relaxed(&ledger_undefined_count), 0, "the launch is the write");
	cr_assert(launch(G));
	cr_assert_eq(world_findings, 1);
}

/* ---- A19: unmapping under a running graph ---- */

static uint64_t asked_stream;
static bool stream_is_busy;

static bool stream_busy(uint64_t stream)
{
	/* Deadlocks if it were called with the lock. */
	ledger_holders_lock();
	ledger_holders_unlock();
	asked_stream = stream;
	return stream_is_busy;
}

static void capture_and_launch(bool busy)
{
	device.stream_busy = stream_busy;
	stream_is_busy = busy;
	reserve_and_capture();
	cr_assert(launch(G));
}

Test(guard, unmapping_in_progress)
{
	struct unmap_batch b = { 0 };

	reserve_and_capture();
	ledger_unmap_begin(R, 2 * MIB, 0, &b);
	cr_assert_not(launch_finds(G));
	ledger_unmap_end(&b, false);
	cr_assert_not(launch_finds(G));
	ledger_unmap_begin(R, 2 * MIB, 0, &b);
	cr_assert_not(launch_finds(G));
	ledger_unmap_end(&b, true);
	cr_assert(launch_finds(G));
}

Test(guard, in_flight)
{
	capture_and_launch(true);
	world_unmap(R, 2 * MIB);
	cr_assert_eq(asked_stream, STREAM);
	cr_assert_eq(world_findings, 1);
	cr_assert_eq(world_found.kind, FINDING_STALE_LAUNCH);
	cr_assert_eq(world_found.exec_serial, exec_find(G)->serial);
	cr_assert_eq(world_refs[0].reason, STALE_IN_FLIGHT);
	cr_assert_eq(world_refs[0].value, R + 4096);
}

Test(guard, not_in_flight)
{
	capture_and_launch(false);
	world_unmap(R, 2 * MIB);
	cr_assert_eq(asked_stream, STREAM);
	cr_assert_eq(world_findings, 0);
}

Test(guard, in_flight_elsewhere)
{
	capture_and_launch(true);
	world_unmap(R + 2 * MIB, 2 * MIB);
	cr_assert_eq(world_findings, 0, "the graph does not refer to that part");
}

Test(guard, drained_by_synchronisation)
{
	capture_and_launch(true);
	sync_stream_done(STREAM, sync_begin());
	world_unmap(R, 2 * MIB);
	cr_assert_eq(world_findings, 0);
}

static uint64_t asked_event;
static bool event_is_done;

static bool event_done(uint64_t event, uint64_t stream)
{
	ledger_holders_lock();
	ledger_holders_unlock();
	asked_event = event;
	cr_assert_eq(stream, STREAM);
	return event_is_done;
}

/* The stream is busy with what came after the event. */
Test(guard, drained_up_to_an_event_nobody_asked_for)
{
	device.event_done = event_done;
	event_is_done = true;
	capture_and_launch(true);
	sync_event_recorded(0xe0, STREAM, sync_begin());
	world_unmap(R, 2 * MIB);
	cr_assert_eq(asked_event, 0xe0);
	cr_assert_eq(world_findings, 0);
}

Test(guard, in_flight_up_to_an_event)
{
	device.event_done = event_done;
	capture_and_launch(true);
	sync_event_recorded(0xe0, STREAM, sync_begin());
	world_unmap(R, 2 * MIB);
	cr_assert_eq(asked_event, 0xe0);
	cr_assert_eq(world_findings, 1);
}

Test(guard, never_launched_is_not_in_flight)
{
	device.stream_busy = stream_busy;
	stream_is_busy = true;
	reserve_and_capture();
	world_unmap(R, 2 * MIB);
	cr_assert_eq(world_findings, 0);
}

/* ---- A29: memory of the graph's own allocation nodes ---- */

static void exec_with_allocation(uint64_t handle, uint64_t graph)
{
	struct exec_builder *b = exec_build_begin();

	world_open(A, MIB, RANGE_GRAPH);
	birth_record(KERNEL(graph, graph, A + 8));
	exec_build_node(b, KERNEL(graph, graph, A + 8));
	exec_build_owns(b, A);
	exec_open(handle, 1, b);
}

Test(guard, own_allocation_nodes_never_count)
{
	struct range_view v;

	exec_with_allocation(G, 1);
	exec_with_allocation(G + 1, 2);
	for (int i = 0; i < 3; i++) {
		cr_assert_not(launch_finds(G));
		cr_assert_not(launch_finds(G + 1));
	}
	/* Freed outside the graph, the next launch allocates it again. */
	world_free(A);
	cr_assert_not(ledger_find(A, &v));
	cr_assert_not(launch_finds(G));
	cr_assert(ledger_find(A, &v));
	cr_assert_eq(world_findings, 0);
	cr_assert_eq(world_counters().launches_stale, 0);
}

/* Judged for another reason, the exec's own memory is no cause either. */
Test(guard, own_allocation_nodes_among_other_causes)
{
	struct exec_builder *b = exec_build_begin();

	world_open(A, MIB, RANGE_GRAPH);
	world_alloc(B);
	exec_build_node(b, KERNEL(1, 1, A, B));
	exec_build_owns(b, A);
	exec_open(G, 1, b);
	world_free(A);
	world_free(B);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_found.refs_total, 1);
	cr_assert(world_lists(B, STALE_FREED));
}

/* Another graph that reads the memory does hold it. */
Test(guard, allocation_node_of_another_graph)
{
	exec_with_allocation(G, 1);
	world_exec(G + 1, KERNEL(3, 3, A + 16));
	cr_assert_not(launch_finds(G + 1));
	world_free(A);
	cr_assert_eq(world_findings, 1);
	cr_assert(launch_finds(G + 1));
	launch(G);
	cr_assert_not(launch_finds(G + 1), "the owner ran: the memory is there again");
}

/* ---- size ---- */

enum { MANY = 5000 };

Test(guard, refs_are_capped_but_no_cause_is_lost)
{
	struct exec_builder *b = exec_build_begin();

	world_alloc(A);
	world_alloc(B);
	for (unsigned i = 1; i <= MANY; i++)
		exec_build_node(b, KERNEL(1, i, i < MANY ? A + i : B));
	exec_open(G, 1, b);
	world_free(A);
	cr_assert_eq(world_found.refs_total, MANY - 1);
	cr_assert_eq(world_found.refs_count, 4096);
	world_free(B);
	cr_assert(launch_finds(G));
	cr_assert_eq(world_found.refs_total, MANY);
	cr_assert_eq(world_found.refs_count, 4096);
	cr_assert(world_lists(B, STALE_FREED), "the last of %d refs is the only one of its cause",
		  MANY);
}

Test(guard, more_causes_than_refs_fit)
{
	struct exec_builder *b = exec_build_begin();

	for (unsigned i = 1; i <= MANY; i++) {
		world_open(A + i * MIB, 4096, RANGE_DEVICE);
		exec_build_node(b, KERNEL(1, i, A + i * MIB));
	}
	exec_open(G, 1, b);
	device.finding = NULL;
	for (unsigned i = 1; i <= MANY; i++)
		world_free(A + i * MIB);
	device.finding = world_finding;
	cr_assert(launch_finds(G));
	cr_assert_eq(world_found.refs_total, MANY);
	cr_assert_eq(world_found.refs_count, MANY);
}
