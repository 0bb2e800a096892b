/* SPDX-License-Identifier: Apache-2.0 */
/* Mirrors of execs: the table, bodies and their edits, births, memory. */
#include "world.h"

#include <pthread.h>

#include "arena/body.h"
#include "arena/chunk.h"
#include "arena/map.h"
#include "seed.h"

#define A 0x7f0000000000ull
#define B 0x7f1000000000ull
#define C 0x7f2000000000ull

TestSuite(exec, .init = world_start);
TestSuite(birth, .init = world_start);
TestSuite(map);
TestSuite(chunk);

static uint32_t holders(const struct range *r)
{
	return load_relaxed(&r->holders_count);
}

static struct range *range_at(uint64_t addr)
{
	struct range_view v;

	return ledger_find(addr, &v) ? v.owner : NULL;
}

/* ---- the table ---- */

enum { EXECS = 10000 };

static uint64_t handle_of(unsigned i)
{
	return 0x55550000 + i * 0x1c0ull;
}

Test(exec, many_handles)
{
	world_alloc(A);
	for (unsigned i = 0; i < EXECS; i++)
		world_exec(handle_of(i), KERNEL(1, 1, A));
	for (unsigned i = 0; i < EXECS; i += 2)
		exec_close(handle_of(i));
	for (unsigned i = 0; i < EXECS; i++) {
		struct exec *e = exec_find(handle_of(i));

		cr_assert_eq(e != NULL, i % 2);
		cr_assert(!e || e->handle == handle_of(i));
	}
	cr_assert_eq(world_counters().execs_live, EXECS / 2);
	cr_assert_eq(world_counters().execs_opened, EXECS);
	cr_assert_eq(holders(range_at(A)), EXECS / 2);
	cr_assert_null(exec_find(0));
}

Test(exec, handle_is_reused)
{
	uint64_t serial;

	world_alloc(A);
	world_alloc(B);
	serial = world_exec(1, KERNEL(1, 1, A))->serial;
	/* Its destruction was not seen. */
	cr_assert_neq(world_exec(1, KERNEL(2, 2, B))->serial, serial);
	cr_assert_eq(world_counters().execs_live, 1);
	cr_assert_eq(holders(range_at(A)), 0);
	cr_assert_eq(holders(range_at(B)), 1);
	exec_close(1);
	cr_assert_eq(holders(range_at(B)), 0);
	exec_close(1);
	cr_assert_eq(world_counters().execs_live, 0);
}

static void ignore(const struct event *e)
{
}

static void *launch_elsewhere(void *arg)
{
	cr_assert_null(guard_launch_quick(1, STREAM), "this thread launched nothing");
	return NULL;
}

Test(exec, what_was_launched_last_is_quick)
{
	struct exec *e;
	pthread_t thread;

	world_alloc(A);
	world_alloc(B);
	e = world_exec(1, KERNEL(1, 1, A));
	world_exec(2, KERNEL(2, 2, B));
	cr_assert_null(guard_launch_quick(0, STREAM));
	cr_assert_null(guard_launch_quick(1, STREAM));
	cr_assert(guard_launch(1, STREAM) && guard_launched());
	cr_assert_null(guard_launch_quick(0, STREAM));
	cr_assert_null(guard_launch_quick(2, STREAM));
	cr_assert_eq(guard_launch_quick(1, STREAM + 8), e);
	cr_assert_eq(load_relaxed(&e->last_stream), STREAM + 9);
	cr_assert_eq(load_relaxed(&launcher_self->exec), e, "a publisher waits for it");
	guard_launched_quick(e, launcher_self);
	cr_assert_eq(load_relaxed(&e->last_ticket), load_relaxed(&sync_now));
	cr_assert_null(load_relaxed(&launcher_self->exec));
	pthread_create(&thread, NULL, launch_elsewhere, NULL);
	pthread_join(thread, NULL);
	event_sink = ignore;
	cr_assert_null(guard_launch_quick(1, STREAM), "it must be told");
	event_sink = NULL;
	world_free(A);
	cr_assert_null(guard_launch_quick(1, STREAM), "it must be judged");
	cr_assert_null(load_relaxed(&launcher_self->exec));
}

Test(exec, what_was_launched_last_is_gone)
{
	world_alloc(A);
	world_exec(1, KERNEL(1, 1, A));
	cr_assert(guard_launch(1, STREAM) && guard_launched());
	exec_close(1);
	cr_assert_null(guard_launch_quick(1, STREAM));
	/* Its object has another handle now. */
	world_exec(2, KERNEL(1, 1, A));
	cr_assert_null(guard_launch_quick(1, STREAM));
	cr_assert_null(guard_launch_quick(2, STREAM));
	cr_assert_null(load_relaxed(&launcher_self->exec));
}

Test(exec, context_takes_its_execs_with_it)
{
	struct exec_builder *b = exec_build_begin();

	world_alloc(A);
	world_exec(1, KERNEL(1, 1, A));
	world_exec(2, KERNEL(1, 1, A));
	exec_build_node(b, KERNEL(1, 1, A));
	exec_open(3, 2, b);
	exec_close_context(1);
	cr_assert_null(exec_find(1));
	cr_assert_null(exec_find(2));
	cr_assert_not_null(exec_find(3));
	cr_assert_eq(holders(range_at(A)), 1);
}

/*
 * A reader that is interrupted in the middle of a chain may go on in another one: the object
 * under it was destroyed and made again with another handle. So all handles of this test are
 * made to fall into two buckets, whatever the size of the table (table.c's multiplier, inverted).
 */
enum { STAY = 4, CHURN = 24, CHANGES = 300000 };
static _Atomic bool stop;

static uint64_t colliding_handle(unsigned side, unsigned i)
{
	const uint64_t multiplier = 0x9e3779b97f4a7c15u;
	uint64_t inverse = multiplier;

	for (int k = 0; k < 6; k++) /* Newton: each step doubles the right bits */
		inverse *= 2 - multiplier * inverse;
	return ((uint64_t)side << 63 | (i + 1)) * inverse;
}

/* The first STAY execs of each side stay; every look must find them. */
static void *reader(void *arg)
{
	uint64_t *bad = arg;

	while (!load_relaxed(&stop))
		for (unsigned i = 0; i < 2 * STAY; i++) {
			uint64_t handle = colliding_handle(i % 2, i / 2);
			struct exec *e = exec_find(handle);

			*bad += !e || load_relaxed(&e->handle) != handle;
			*bad += !guard_launch(handle, STREAM);
		}
	return NULL;
}

Test(exec, readers_never_miss, .timeout = 120)
{
	uint64_t seed = seed_start("readers_never_miss"), bad[4] = { 0 };
	pthread_t threads[4];

	world_alloc(A);
	for (unsigned i = 0; i < 2 * STAY; i++)
		world_exec(colliding_handle(i % 2, i / 2), KERNEL(1, 1, A));
	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, reader, &bad[i]), 0);
	for (int i = 0; i < CHANGES; i++) {
		unsigned k = STAY + (unsigned)seed_below(&seed, CHURN);
		unsigned side = (unsigned)seed_below(&seed, 2);

		/* The free object goes to the other side. */
		exec_close(colliding_handle(side, k));
		exec_open(colliding_handle(!side, k), 1, exec_build_begin());
	}
	store_relaxed(&stop, true);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		cr_assert_eq(bad[i], 0);
	}
}

/* ---- bodies ---- */

Test(exec, node_update_moves_the_hold)
{
	world_alloc(A);
	world_alloc(B);
	world_exec(1, KERNEL(1, 7, A, A + 8, A + 16));
	exec_set_node(1, KERNEL(1, 7, B));
	cr_assert_eq(holders(range_at(B)), 1);
	exec_set_node(1, KERNEL(1, 7, A, A + 8, B, B + 8));
	world_free(A);
	cr_assert_eq(world_found.refs_total, 2);
	exec_set_node(1, KERNEL(1, 99, B)); /* no such node: nothing happens */
	cr_assert(!exec_find(99));
	exec_set_node(99, KERNEL(1, 7, B));
}

/* Endless updates to ever new memory do not grow the mirror nor keep dead ranges. */
Test(exec, node_updates_do_not_accumulate)
{
	struct ledger_counters before, after;
	uint64_t bytes;

	world_alloc(A);
	world_exec(1, KERNEL(1, 7, A));
	for (unsigned i = 0; i < 100; i++) {
		world_alloc(B);
		exec_set_node(1, KERNEL(1, 7, B, B + i, A));
		world_free(B);
	}
	bytes = world_counters().bytes;
	ledger_read_counters(&before);
	for (unsigned i = 0; i < 10000; i++) {
		world_alloc(B);
		exec_set_node(1, KERNEL(1, 7, B, B + i, A));
		world_free(B);
	}
	ledger_read_counters(&after);
	cr_assert_leq(world_counters().bytes, 2 * bytes);
	cr_assert_eq(after.live, before.live);
	exec_set_node(1, KERNEL(1, 7, A));
	cr_assert(guard_launch(1, STREAM));
	cr_assert_eq(world_counters().dropped, 0);
}

Test(exec, update_keeps_keys_and_enabled_states)
{
	struct exec_builder *b = exec_build_begin();

	world_alloc(A);
	world_alloc(B);
	world_alloc(C);
	exec_build_node(b, KERNEL(1, 1, A));
	exec_build_node(b, KERNEL(1, 2, A));
	exec_open(5, 1, b);
	exec_set_enabled(5, 2, false);
	b = exec_build_begin();
	exec_build_node(b, KERNEL(9, 91, A));
	exec_build_node(b, KERNEL(9, 92, B));
	exec_update(5, b);
	world_free(B);
	cr_assert_eq(world_findings, 0, "its node is still disabled");
	exec_set_node(5, KERNEL(1, 2, C));
	exec_set_enabled(5, 2, true);
	cr_assert(guard_launch(5, STREAM));
	cr_assert_eq(world_findings, 0);
	world_free(C);
	cr_assert_eq(world_refs[0].node, 1);
}

static const struct node_desc *deep(const struct node_desc *n, uint32_t depth)
{
	((struct node_desc *)n)->depth = depth;
	return n;
}

Test(exec, child_update_replaces_what_is_below)
{
	struct exec_builder *b = exec_build_begin();
	struct node_desc child = { .graph = 1, .node = 2, .kind = NODE_CHILD };

	world_alloc(A);
	world_alloc(B);
	world_alloc(C);
	exec_build_node(b, KERNEL(1, 1, A));
	exec_build_node(b, &child);
	exec_build_node(b, deep(KERNEL(2, 21, B), 1));
	exec_build_node(b, deep(KERNEL(2, 22, B), 1));
	exec_build_node(b, KERNEL(1, 3, A));
	exec_open(5, 1, b);
	b = exec_build_begin();
	exec_build_node(b, KERNEL(3, 31, C));
	exec_build_node(b, KERNEL(3, 32, C, C + 8));
	exec_set_child(5, 2, b);
	world_free(B);
	cr_assert_eq(world_findings, 0);
	world_free(C);
	cr_assert_eq(world_found.refs_total, 3);
	cr_assert_eq(world_refs[0].node, 2);
	cr_assert_eq(world_refs[1].node, 3);
	exec_set_node(5, KERNEL(2, 21, A));
	exec_set_node(5, KERNEL(2, 22, A));
	cr_assert(guard_launch(5, STREAM));
	cr_assert_eq(world_findings, 1, "keys of the child's nodes stayed");
	world_free(A);
	cr_assert_eq(world_found.refs_total, 4);
}

Test(exec, many_owners)
{
	struct exec_builder *b = exec_build_begin();

	for (unsigned i = 0; i < 1000; i++) {
		world_alloc(A + i * MIB);
		exec_build_node(b, KERNEL(1, i + 1, A + i * MIB, A, A + i * MIB + 8));
	}
	exec_open(5, 1, b);
	for (unsigned i = 0; i < 1000; i++)
		cr_assert_eq(holders(range_at(A + i * MIB)), 1);
	for (unsigned i = 999; i > 0; i--) {
		world_free(A + i * MIB);
		cr_assert_eq(world_found.refs_total, 2);
		cr_assert_eq(world_refs[0].node, i);
		cr_assert_eq(world_refs[1].value, A + i * MIB + 8);
	}
	exec_close(5);
	cr_assert_eq(holders(range_at(A)), 0);
}

/* Values far inside a huge reservation survive the packing. */
Test(exec, far_and_wide)
{
	const uint64_t base = 0x100000000000ull, far = base + (1ull << 43);
	struct word w = word_at(32000, far + 8);

	w.offset = 32752;
	w.confidence = CONFIDENCE_STRUCT;
	world_open(base, 1ull << 44, RANGE_RESERVED);
	world_map(far, MIB);
	world_exec(5, &(struct node_desc){ .node = 1, .graph = 1, .words = &w, .words_count = 1 });
	world_unmap(far, MIB);
	guard_launch(5, STREAM);
	cr_assert_eq(world_refs[0].value, far + 8);
	cr_assert_eq(world_refs[0].param, 32000);
	cr_assert_eq(world_refs[0].offset, 32752);
	cr_assert_eq(world_refs[0].confidence, CONFIDENCE_STRUCT);
	cr_assert_eq(world_counters().refs_struct, 1);
}

/* ---- births ---- */

static bool has_ref(uint64_t graph, uint64_t node, uint64_t value)
{
	uint64_t before = world_counters().refs;
	bool has;

	world_exec(77, KERNEL(graph, node, value));
	has = world_counters().refs != before;
	exec_close(77);
	return has;
}

Test(birth, word_that_differs_is_resolved_now)
{
	birth_record(KERNEL(1, 1, A));
	world_alloc(A);
	world_alloc(B);
	cr_assert_not(has_ref(1, 1, A));
	cr_assert(has_ref(1, 1, B));
	cr_assert(has_ref(1, 2, A), "no birth: what lives now");
}

Test(birth, new_parameters_are_a_new_birth)
{
	birth_record(KERNEL(1, 1, A));
	world_alloc(A);
	birth_record(KERNEL(0, 1, A));
	cr_assert(has_ref(1, 1, A));
}

Test(birth, copies_mean_the_same)
{
	birth_record(KERNEL(1, 1, A));
	birth_copy(1, 1, 2, 2);
	birth_copy(1, 5, 2, 3);
	world_alloc(A);
	birth_forget_graph(1);
	cr_assert(has_ref(1, 1, A));
	cr_assert_not(has_ref(2, 2, A));
	birth_forget_node(2, 2);
	cr_assert(has_ref(2, 2, A));
	cr_assert(has_ref(2, 3, A));
}

Test(birth, graphs_are_forgotten_whole)
{
	for (unsigned i = 1; i <= 1000; i++)
		birth_record(KERNEL(1 + i % 3, i, A));
	world_alloc(A);
	for (unsigned i = 1; i <= 1000; i += 7)
		birth_forget_node(0, i);
	birth_forget_graph(2);
	for (unsigned i = 1; i <= 1000; i++)
		cr_assert_eq(has_ref(1 + i % 3, i, A), i % 3 == 1 || i % 7 == 1);
	cr_assert_eq(world_counters().births, 1000);
}

/* A birth keeps the object of a dead range, and lets it go. */
Test(birth, pins_are_returned)
{
	struct range *r = world_alloc(A);

	birth_record(KERNEL(1, 1, A, A + 8, 64));
	birth_copy(1, 1, 2, 2);
	cr_assert_eq(load_relaxed(&r->pins), 5);
	world_free(A);
	cr_assert_eq(load_relaxed(&r->pins), 4);
	birth_forget_node(0, 2);
	birth_forget_graph(1);
	cr_assert_eq(load_relaxed(&r->pins), 0);
	cr_assert_eq(chunk_bytes(), 0);
}

/* What the driver refuses to destroy means what it meant; what is born meanwhile is newer. */
Test(birth, a_refusal_puts_them_back)
{
	struct birth *away;

	for (unsigned i = 1; i <= 4; i++)
		birth_record(KERNEL(1, i, A));
	birth_record(KERNEL(2, 5, A));
	world_alloc(A);
	away = birth_detach_node(5, birth_detach_node(4, NULL));
	away = birth_detach_graph(1, away);
	cr_assert_not(birth_known(1, 1) || birth_known(1, 4) || birth_known(2, 5));
	birth_record(KERNEL(3, 2, A));
	birth_attach(away);
	cr_assert(birth_known(1, 1) && birth_known(1, 3) && birth_known(1, 4) && birth_known(2, 5));
	cr_assert(birth_known(3, 2));
	cr_assert_not(birth_known(1, 2));
	cr_assert_not(has_ref(1, 1, A));
	cr_assert(has_ref(3, 2, A));
	birth_forget_graph(1);
	cr_assert_not(birth_known(1, 1) || birth_known(1, 3) || birth_known(1, 4));
	cr_assert(birth_known(2, 5));
	birth_forget_graph(2);
	birth_forget_graph(3);
	exec_read_counters(&(struct exec_counters){ 0 });
	cr_assert_eq(chunk_bytes(), 0);
}

static struct node_desc *hashed(uint64_t node, const struct word *words, uint32_t count)
{
	static struct node_desc n;

	n = (struct node_desc){
		.graph = 1, .node = node, .words = words, .words_count = count, .hash = 77
	};
	return &n;
}

/* While the bytes are the same, so are the words, whatever can be read out of them now. */
Test(birth, words_that_cannot_be_read_again_are_those_of_the_birth)
{
	struct word w[] = { word_at(0, A), word_at(1, B) };
	struct node_desc other;

	world_alloc(A);
	world_alloc(B);
	birth_record(hashed(1, w, 2));
	world_exec(1, hashed(1, w, 1));
	world_exec(2, hashed(1, w, 0));
	cr_assert_eq(world_counters().refs, 4);
	cr_assert_eq(holders(range_at(B)), 2);
	other = *hashed(1, w, 1);
	other.hash++;
	world_exec(3, &other);
	cr_assert_eq(world_counters().refs, 5);
	cr_assert_eq(holders(range_at(B)), 2);
}

static bool replicate(uint64_t exec, struct node_desc **nodes, uint32_t count)
{
	struct exec_replica r;
	bool ok = exec_replicate(exec, &r);

	for (uint32_t i = 0; ok && i < count; i++)
		ok = birth_replicate(&r, nodes[i]);
	exec_replica_free(&r);
	return ok;
}

/* A captured launch means what the exec means, not what its words read now. */
Test(birth, a_replica_means_what_the_exec_means)
{
	struct word w[] = { word_at(0, A), word_at(1, B), word_at(2, C) };
	struct node_desc n = { .graph = 1, .node = 1, .words = w, .words_count = 2 };

	world_alloc(A);
	world_exec(1, &n);
	world_free(A);
	world_alloc(A);
	world_alloc(B); /* was a number when the exec was made */
	n.graph = n.node = 2;
	cr_assert(replicate(1, (struct node_desc *[]){ &n }, 1));
	exec_close(1);
	world_exec(2, &n);
	cr_assert_eq(world_counters().refs, 2);
	cr_assert_eq(holders(range_at(A)), 0);
	cr_assert_eq(holders(range_at(B)), 0);
	cr_assert_neq(load_relaxed(&exec_find(2)->mark), 0, "it is stale");
}

Test(birth, a_replica_has_refs_that_cannot_be_read_again)
{
	struct word w[] = { word_at(0, A), word_at(1, B) };
	struct node_desc n = *hashed(1, w, 2);

	world_alloc(A);
	world_alloc(B);
	world_exec(1, &n);
	n.node = 2;
	n.words_count = 1;
	cr_assert(replicate(1, (struct node_desc *[]){ &n }, 1));
	exec_close(1);
	world_exec(2, &n);
	cr_assert_eq(holders(range_at(A)), 1);
	cr_assert_eq(holders(range_at(B)), 1);
}

Test(birth, a_replica_of_another_shape_is_refused)
{
	struct word a = word_at(0, A), b = word_at(0, B);
	struct node_desc n = *KERNEL(2, 1, A);

	n.words = &a;
	world_alloc(A);
	world_exec(1, KERNEL(1, 1, A));
	cr_assert_not(replicate(2, NULL, 0), "it is not known");
	cr_assert(replicate(1, (struct node_desc *[]){ &n }, 1));
	cr_assert_not(replicate(1, (struct node_desc *[]){ &n, &n }, 2));
	n.words = &b;
	cr_assert_not(replicate(1, (struct node_desc *[]){ &n }, 1));
	n.words = &a;
	n.kind = NODE_MEMSET;
	cr_assert_not(replicate(1, (struct node_desc *[]){ &n }, 1));
	n.kind = NODE_KERNEL;
	n.depth = 1;
	cr_assert_not(replicate(1, (struct node_desc *[]){ &n }, 1));
}

/* ---- updates ---- */

static bool update(struct node_desc *first, struct node_desc *second)
{
	struct exec_builder *b = exec_build_begin();

	exec_build_node(b, first);
	exec_build_node(b, second);
	return exec_update(1, b);
}

Test(exec, an_update_that_may_pair_otherwise_says_so)
{
	struct node_desc x = { .graph = 1, .node = 1 }, y = { .graph = 1, .node = 2, .name = 5 };
	struct node_desc x2 = x, y2 = y;
	struct exec_builder *b = exec_build_begin();

	exec_build_node(b, &x);
	exec_build_node(b, &y);
	exec_open(1, 1, b);
	x2.node = 3;
	y2.node = 4;
	cr_assert(update(&x2, &y2));
	cr_assert_not(update(&y2, &x2));
	cr_assert(update(&y2, &x2), "it is what it is now");
	cr_assert_not(update(&x2, &y2));
	exec_set_enabled(1, 1, false);
	cr_assert_not(update(&x2, &y2));
	cr_assert(update(&x, &y), "its own template");
}

/* ---- memory ---- */

Test(exec, budget_per_node)
{
	enum { NODES = 1000 };
	struct exec_builder *b = exec_build_begin();
	struct exec_counters c;

	for (unsigned i = 0; i < 64; i++)
		world_alloc(A + i * MIB);
	for (unsigned i = 0; i < NODES; i++)
		exec_build_node(b, KERNEL(1, i + 1, A + i % 64 * MIB, A + i, A + MIB, A + 8));
	exec_open(5, 1, b);
	c = world_counters();
	cr_assert_eq(c.nodes_live, NODES);
	cr_assert_eq(c.refs_exact, 4 * NODES);
	cr_assert_leq(c.bytes, 96 * NODES, "%lu bytes a node", (unsigned long)(c.bytes / NODES));
	exec_close(5);
	cr_assert_eq(world_counters().bytes, 0);
}

Test(exec, limit_is_kept_and_counted)
{
	uint64_t opened;

	world_alloc(A);
	exec_limit_bytes = 16384;
	for (unsigned i = 0; i < 1000; i++) {
		struct exec_builder *b = exec_build_begin();

		exec_build_node(b, KERNEL(1, 1, A, A + 8));
		exec_open(handle_of(i), 1, b);
	}
	opened = world_counters().execs_opened;
	cr_assert_gt(opened, 10);
	cr_assert_lt(opened, 1000);
	cr_assert_eq(world_counters().dropped, 1000 - opened);
	cr_assert_leq(chunk_bytes(), 16384);
	cr_assert_null(exec_find(handle_of(999)));
	cr_assert(guard_launch(handle_of(999), STREAM));
	/* An update that cannot be followed takes the mirror away: it would be wrong. */
	exec_update(handle_of(0), NULL);
	cr_assert_null(exec_find(handle_of(0)));
	exec_limit_bytes = 0;
	for (unsigned i = 0; i < 1000; i++)
		exec_close(handle_of(i));
	cr_assert_eq(holders(range_at(A)), 0);
}

Test(exec, null_builder_is_counted)
{
	exec_build_node(NULL, KERNEL(1, 1, A));
	exec_build_owns(NULL, A);
	exec_build_discard(NULL);
	exec_open(1, 1, NULL);
	cr_assert_null(exec_find(1));
	cr_assert_eq(world_counters().dropped, 1);
}

Test(chunk, sizes)
{
	for (size_t size = 1; size < 40000; size += 1 + size / 37) {
		char *p = chunk_get(size), *q = chunk_get(size);
		uint64_t bytes = chunk_bytes();

		cr_assert(p && q && p != q);
		memset(p, 1, size);
		memset(q, 2, size);
		cr_assert_eq(p[size - 1], 1);
		cr_assert_geq(bytes, 2 * size);
		cr_assert(size < 64 || bytes <= 3 * size, "%zu bytes take %lu", size,
			  (unsigned long)bytes);
		chunk_put(p, size);
		chunk_put(q, size);
		cr_assert_eq(chunk_bytes(), 0);
	}
	chunk_put(NULL, 100);
}

Test(map, against_a_plain_array)
{
	uint64_t seed = seed_start("map");
	static void *model[4096];
	struct map m = { 0 };
	uint32_t count = 0;

	cr_assert_null(map_get(&m, 1));
	map_remove(&m, 1);
	for (unsigned i = 0; i < 200000; i++) {
		uint64_t k = seed_below(&seed, 4096);
		void *value = seed_below(&seed, 3) ? &model[seed_below(&seed, 4096)] : NULL;

		count += (value != NULL) - (model[k] != NULL);
		if (value)
			cr_assert_eq(map_put(&m, (k + 1) << 8, value), 0);
		else
			map_remove(&m, (k + 1) << 8);
		model[k] = value;
		k = seed_below(&seed, 4096);
		cr_assert_eq(map_get(&m, (k + 1) << 8), model[k]);
		cr_assert_eq(m.count, count);
	}
}

/* ---- events ---- */

static struct event events[16];
static unsigned events_count;

static void note_event(const struct event *e)
{
	if (e->kind >= EVENT_INSTANTIATE)
		events[events_count++ % 16] = *e;
}

Test(exec, events_in_order)
{
	const enum event_kind want[] = { EVENT_INSTANTIATE, EVENT_LAUNCH, EVENT_UPDATE,
					 EVENT_REFUSED, EVENT_DESTROY };

	guard_refuses = true;
	event_sink = note_event;
	world_alloc(A);
	world_exec(1, KERNEL(1, 1, A));
	guard_launch(1, STREAM);
	exec_set_node(1, KERNEL(1, 1, A + 8));
	world_free(A);
	guard_launch(1, STREAM);
	exec_close(1);
	cr_assert_eq(events_count, 5);
	for (unsigned i = 0; i < 5; i++) {
		cr_assert_eq(events[i].kind, want[i]);
		cr_assert_eq(events[i].serial, events[0].serial);
	}
	cr_assert_eq(events[1].size_bytes, 1);
}
