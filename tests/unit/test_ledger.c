/* SPDX-License-Identifier: Apache-2.0 */
/* Unit tests of arena/ledger.c and range.c: life of a range, look-ups, holders, health. */
#include <criterion/criterion.h>
#include <sys/resource.h>

#include "arena/slab.h"
#include "tests/unit/doubles.h"

#define A    ((uint64_t)0x7f0000000000)
#define B    ((uint64_t)0x7f0100000000)
#define SIZE ((uint64_t)1 << 20)
#define CTX  ((uint64_t)0xc0)

static void start(void)
{
	cr_assert_eq(ledger_init(), 0);
	cr_assert_eq(ledger_init(), 0);
}

TestSuite(ledger, .init = start);

static struct range *open_kind(enum range_kind kind, uint64_t base, uint64_t size_bytes)
{
	struct range_desc d = {
		.base = base, .size_bytes = size_bytes, .kind = kind, .context = CTX, .stack = 7
	};

	return ledger_open(&d);
}

static struct range *open_at(uint64_t base)
{
	return open_kind(RANGE_DEVICE, base, SIZE);
}

static void close_at(uint64_t base)
{
	struct range *r = ledger_close_begin(base, 8);

	cr_assert_not_null(r);
	ledger_close_end(r, true);
}

static struct range_view found(uint64_t addr)
{
	struct range_view v;

	cr_assert(ledger_find(addr, &v), "%#lx", addr);
	return v;
}

static bool lives(uint64_t addr)
{
	struct range_view v;

	return ledger_find(addr, &v);
}

static struct ledger_counters counters(void)
{
	struct ledger_counters c;

	ledger_read_counters(&c);
	return c;
}

static void hold(struct range *owner, struct exec *e)
{
	ledger_holders_lock();
	cr_assert_eq(ledger_hold(owner, e), 0);
	ledger_holders_unlock();
}

static void release(struct range *owner, struct exec *e)
{
	ledger_holders_lock();
	ledger_release(owner, e);
	ledger_holders_unlock();
}

/* ---- life ---- */

Test(ledger, find_is_interior_and_exact_at_the_ends)
{
	struct range *r = open_at(A);
	struct range_view v = found(A);

	cr_assert_eq(v.range, r);
	cr_assert_eq(v.owner, r);
	cr_assert_eq(v.base, A);
	cr_assert_eq(v.size_bytes, SIZE);
	cr_assert_eq(v.kind, RANGE_DEVICE);
	cr_assert_eq(v.generation, r->generation);
	cr_assert_eq(found(A + SIZE - 1).range, r);
	cr_assert_not(lives(A + SIZE));
	cr_assert_not(lives(A - 1));
	cr_assert_not(lives(0));
}

Test(ledger, generations_are_never_used_twice)
{
	uint64_t before = 0;

	for (int i = 0; i < 100; i++) {
		struct range *r = open_at(A);

		cr_assert_gt(r->generation, before);
		before = r->generation;
		close_at(A);
	}
}

Test(ledger, zero_bytes_are_no_range)
{
	cr_assert_null(open_kind(RANGE_DEVICE, A, 0));
	cr_assert_eq(counters().opened, 0);
	cr_assert_eq(counters().dropped, 0);
}

Test(ledger, closing_is_not_found_and_a_refused_free_is_undone)
{
	struct range *r = open_at(A);
	uint64_t generation = r->generation;
	struct range *closing = ledger_close_begin(A, 8);

	cr_assert_eq(closing, r);
	cr_assert_eq(r->state, RANGE_CLOSING);
	cr_assert_eq(r->stack_close, 8);
	cr_assert_not(lives(A));
	cr_assert_null(ledger_close_begin(A, 9), "closed twice at once");

	ledger_close_end(closing, false);
	cr_assert_eq(found(A).range, r);
	cr_assert_eq(found(A).generation, generation);
	cr_assert_eq(r->stack_close, 0);
	cr_assert_eq(counters().refused_frees, 1);
	cr_assert_eq(counters().closed, 0);
	close_at(A);
	cr_assert_not(lives(A));
}

Test(ledger, unknown_frees_are_counted_and_null_is_not)
{
	open_at(A);
	cr_assert_null(ledger_close_begin(A + 512, 0), "interior pointer");
	cr_assert_null(ledger_close_begin(B, 0));
	cr_assert_null(ledger_close_begin(0, 0));
	cr_assert_eq(counters().unknown_frees, 2);
	ledger_close_end(NULL, true);
	ledger_close_end(NULL, false);
}

Test(ledger, counters_by_kind)
{
	struct ledger_counters c;

	open_kind(RANGE_DEVICE, A, SIZE);
	open_kind(RANGE_DEVICE, A + SIZE, SIZE);
	open_kind(RANGE_HOST, B, 4096);
	close_at(A);
	c = counters();
	cr_assert_eq(c.opened, 3);
	cr_assert_eq(c.closed, 1);
	cr_assert_eq(c.live, 2);
	cr_assert_eq(c.live_by_kind[RANGE_DEVICE], 1);
	cr_assert_eq(c.bytes_by_kind[RANGE_DEVICE], SIZE);
	cr_assert_eq(c.bytes_by_kind[RANGE_HOST], 4096);
}

Test(ledger, without_memory_ranges_are_dropped_and_counted)
{
	struct rlimit none = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };
	uint64_t opened = 0;

	setrlimit(RLIMIT_AS, &none);
	/* Far apart, so that the index needs nodes as well. */
	for (uint64_t i = 0; i < 100000; i++)
		opened += open_kind(RANGE_DEVICE, (i + 1) << 32, SIZE) != NULL;
	cr_assert_lt(opened, 100000);
	cr_assert_eq(counters().dropped, 100000 - opened);
	cr_assert_eq(counters().live, opened);
	cr_assert_eq(ledger_close_context(CTX), opened);
	cr_assert_eq(counters().live, 0);
}

/* ---- overlaps ---- */

Test(ledger, what_overlaps_is_closed_as_an_unseen_free)
{
	struct exec e = { 0 };
	struct range *held = open_at(A + SIZE);

	open_at(A);
	open_at(A + 2 * SIZE);
	open_at(B);
	hold(held, &e);
	open_kind(RANGE_POOL, A + SIZE / 2, 2 * SIZE); /* the second half of A, and two more */

	cr_assert_eq(counters().overlaps, 3);
	cr_assert_not(lives(A), "the rest of an overlapped range is gone as well");
	cr_assert_eq(found(A + SIZE / 2).kind, RANGE_POOL);
	cr_assert_eq(found(A + SIZE).kind, RANGE_POOL);
	cr_assert_not(lives(A + 2 * SIZE + SIZE / 2));
	cr_assert(lives(B));
	cr_assert_eq(e.mark, 1);
	cr_assert_eq(told.freed, 0, "nobody saw the free, so nobody is told of one");
}

Test(ledger, neighbours_do_not_overlap)
{
	open_at(A);
	open_at(A + SIZE);
	open_at(A - SIZE);
	cr_assert_eq(counters().overlaps, 0);
	cr_assert_eq(counters().live, 3);
}

Test(ledger, several_ranges_in_one_granule)
{
	for (uint64_t i = 0; i < 16; i++)
		cr_assert_not_null(open_kind(RANGE_GLOBAL, A + 8 * i, 4));
	for (uint64_t i = 0; i < 16; i++) {
		cr_assert_eq(found(A + 8 * i + 3).base, A + 8 * i);
		cr_assert_not(lives(A + 8 * i + 4));
	}
	cr_assert_eq(counters().overlaps, 0);
}

/* ---- pins ---- */

Test(ledger, a_pinned_dead_range_stays_readable)
{
	struct range *r = open_at(A);
	struct range_view v = found(A);

	cr_assert(ledger_pin(&v));
	close_at(A);
	for (int i = 0; i < 64; i++)
		cr_assert_neq(open_kind(RANGE_DEVICE, B + i * SIZE, SIZE), r, "object reused");
	cr_assert_eq(r->state, RANGE_DEAD);
	cr_assert_eq(r->generation, v.generation);
	cr_assert_eq(r->base, A);
	cr_assert_eq(load_relaxed(&r->stack_open), 7);
	cr_assert_eq(r->stack_close, 8);
	ledger_unpin(r);
	cr_assert_eq(r->generation, 0);
}

Test(ledger, a_view_of_a_reused_object_cannot_be_pinned)
{
	struct range *r = open_at(A);
	struct range_view v = found(A);

	close_at(A);
	cr_assert_not(ledger_pin(&v), "free object");
	cr_assert_eq(open_at(B), r, "the slab gives the newest free object first");
	cr_assert_not(ledger_pin(&v), "reused object");
	cr_assert_eq(r->pins, 1);
	cr_assert_neq(open_at(B + SIZE), r, "the object is free once, not twice");
}

/* ---- holders ---- */

Test(ledger, holders_are_marked_before_the_driver_is_asked)
{
	struct exec held = { 0 }, other = { 0 };
	struct range *r = open_at(A), *closing;

	hold(r, &held);
	hold(open_at(B), &other);
	closing = ledger_close_begin(A, 8);
	cr_assert_eq(held.mark, 1);
	cr_assert_eq(other.mark, 0);
	cr_assert_eq(told.freed, 0, "a free that may be refused is not told yet");
	ledger_close_end(closing, true);
	cr_assert_eq(told.freed, 1);
	cr_assert_eq(told.last, r);
	cr_assert_eq(told.stack, 8);
}

Test(ledger, a_refused_free_is_never_told)
{
	struct exec e = { 0 };

	hold(open_at(A), &e);
	ledger_close_end(ledger_close_begin(A, 8), false);
	cr_assert_eq(told.freed, 0);
}

Test(ledger, without_holders_nothing_is_marked)
{
	struct exec e = { 0 };
	struct range *r = open_at(A);

	hold(r, &e);
	release(r, &e);
	cr_assert_eq(r->holders_count, 0);
	close_at(A);
	cr_assert_eq(told.marks, 0);
	cr_assert_eq(told.freed, 0);
}

Test(ledger, many_holders)
{
	static struct exec execs[500];
	struct range *r = open_at(A);

	for (int i = 0; i < 500; i++)
		hold(r, &execs[i]);
	for (int i = 0; i < 500; i += 2)
		release(r, &execs[i]);
	cr_assert_eq(r->holders_count, 250);
	close_at(A);
	for (int i = 0; i < 500; i++)
		cr_assert_eq(execs[i].mark, (uint32_t)i % 2, "exec %d", i);
}

/* ---- contexts and modules ---- */

Test(ledger, a_context_takes_its_ranges_with_it_without_findings)
{
	struct exec e = { 0 };
	struct range_desc other = {
		.base = B, .size_bytes = SIZE, .kind = RANGE_DEVICE, .context = CTX + 1
	};

	for (int i = 0; i < 200; i++)
		open_at(A + i * SIZE);
	open_kind(RANGE_HOST, A + 1000 * SIZE, SIZE);
	hold(found(A).range, &e);
	ledger_open(&other);
	cr_assert_eq(ledger_close_context(CTX), 201);
	cr_assert_eq(counters().live, 1);
	cr_assert(lives(B));
	cr_assert_eq(e.mark, 1);
	cr_assert_eq(told.freed, 0);
	cr_assert_eq(ledger_close_context(CTX), 0);
	cr_assert_eq(ledger_close_context(0), 0, "no context is no context");
}

static void open_global(uint64_t base, uint64_t module)
{
	struct range_desc d = { .base = base,
				.size_bytes = 64,
				.kind = RANGE_GLOBAL,
				.context = CTX,
				.scope = module };

	cr_assert_not_null(ledger_open(&d));
}

Test(ledger, a_module_takes_its_globals_with_it)
{
	struct exec e = { 0 };

	for (uint64_t i = 0; i < 150; i++)
		open_global(A + 64 * i, 0xabc);
	open_global(B, 0xdef);
	hold(found(A).range, &e);
	cr_assert_eq(ledger_close_scope(RANGE_DEVICE, 0xabc), 0, "other kind");
	cr_assert_eq(ledger_close_scope(RANGE_GLOBAL, 0xabc), 150);
	cr_assert(lives(B));
	cr_assert_eq(told.freed, 1);
	cr_assert_eq(e.mark, 1);
}

Test(ledger, a_refused_module_unload_is_undone)
{
	struct unmap_batch b = { 0 };

	for (uint64_t i = 0; i < 150; i++)
		open_global(A + 64 * i, 0xabc);
	ledger_scope_begin(RANGE_GLOBAL, 0xabc, 0, &b);
	cr_assert_eq(b.count, 150);
	cr_assert_not(lives(A));
	ledger_unmap_end(&b, false);
	for (uint64_t i = 0; i < 150; i++)
		cr_assert(lives(A + 64 * i));
	cr_assert_null(b.ranges);
}

/* ---- graph allocation nodes ---- */

Test(ledger, graph_memory_comes_back_under_its_generation)
{
	struct range *r = open_kind(RANGE_GRAPH, A, SIZE);
	struct range_view v = found(A);

	cr_assert(ledger_pin(&v));
	ledger_revive_graph(A);
	cr_assert_eq(counters().live, 1, "reviving what lives changes nothing");
	close_at(A);
	cr_assert_eq(ledger_health(r, v.generation, A), RANGE_IS_FREED);
	ledger_revive_graph(A + 512);
	cr_assert_not(lives(A));
	ledger_revive_graph(A);
	cr_assert_eq(found(A).range, r);
	cr_assert_eq(ledger_health(r, v.generation, A), RANGE_HEALTHY);
	ledger_revive_graph(A);
	cr_assert_eq(counters().live, 1);
	close_at(A);
	cr_assert_not(lives(A));
}

Test(ledger, graphs_may_share_an_address)
{
	uint64_t generation = open_kind(RANGE_GRAPH, A, SIZE)->generation;

	cr_assert_eq(open_kind(RANGE_GRAPH, A, SIZE)->generation, generation);
	cr_assert_neq(open_kind(RANGE_GRAPH, A, 2 * SIZE)->generation, generation);
	cr_assert_eq(counters().overlaps, 0);
	cr_assert_eq(counters().live, 1);
}

Test(ledger, of_two_sleepers_at_one_address_the_newer_comes_back)
{
	struct range *first = open_kind(RANGE_GRAPH, A, SIZE), *second;

	close_at(A);
	second = open_kind(RANGE_GRAPH, A, SIZE);
	close_at(A);
	cr_assert_eq(first->generation, 0, "nobody waits for the older one");
	ledger_revive_graph(A);
	cr_assert_eq(found(A).range, second);
	close_at(A);
	ledger_revive_graph(A);
	cr_assert_eq(counters().live, 1);
}

/* ---- health ---- */

Test(ledger, health_follows_the_memory)
{
	struct range *r = open_at(A);
	struct range_view v = found(A);
	struct range *closing;

	cr_assert(ledger_pin(&v));
	cr_assert_eq(ledger_health(r, v.generation, A + 100), RANGE_HEALTHY);
	cr_assert_eq(ledger_health(r, v.generation + 1, A + 100), RANGE_IS_REPLACED);
	ledger_close_end(ledger_close_begin(A, 0), false);
	cr_assert_eq(ledger_health(r, v.generation, A + 100), RANGE_HEALTHY);
	closing = ledger_close_begin(A, 0);
	cr_assert_eq(ledger_health(r, v.generation, A + 100), RANGE_HEALTHY, "not refused yet");
	ledger_close_end(closing, true);
	cr_assert_eq(ledger_health(r, v.generation, A + 100), RANGE_IS_FREED);
	open_kind(RANGE_DEVICE, A, 4096);
	cr_assert_eq(ledger_health(r, v.generation, A + 100), RANGE_IS_REPLACED);
	cr_assert_eq(ledger_health(r, v.generation, A + 5000), RANGE_IS_FREED);
}

/* Between the driver's free and our end of it, another thread may get the address. */
Test(ledger, what_lives_at_the_address_ends_a_closing)
{
	struct range *r = open_at(A), *closing;
	struct range_view v = found(A);

	cr_assert(ledger_pin(&v));
	closing = ledger_close_begin(A, 0);
	open_kind(RANGE_DEVICE, A, 4096);
	cr_assert_eq(ledger_health(r, v.generation, A + 100), RANGE_IS_REPLACED);
	ledger_close_end(closing, true);
	cr_assert_eq(ledger_health(r, v.generation, A + 100), RANGE_IS_REPLACED);
}

/* ---- events ---- */

static struct event seen[8];
static unsigned seen_count;

static void note_event(const struct event *e)
{
	seen[seen_count++ % 8] = *e;
}

Test(ledger, events_tell_what_happened)
{
	struct range *r;

	event_sink = note_event;
	r = open_at(A);
	ledger_close_end(ledger_close_begin(A, 8), false);
	cr_assert_eq(seen_count, 1, "a refused free is no event");
	close_at(A);
	event_sink = NULL;

	cr_assert_eq(seen_count, 2);
	cr_assert_eq(seen[0].kind, EVENT_ALLOC);
	cr_assert_eq(seen[0].address, A);
	cr_assert_eq(seen[0].size_bytes, SIZE);
	cr_assert_str_eq(seen[0].what, "device");
	cr_assert_eq(seen[0].stack, 7);
	cr_assert_eq(seen[1].kind, EVENT_FREE);
	cr_assert_eq(seen[1].serial, seen[0].serial);
	cr_assert_eq(seen[1].stack, 8);
	cr_assert_not_null(r);
}

Test(ledger, names)
{
	cr_assert_str_eq(range_kind_name(RANGE_RESERVED), "reserved");
	cr_assert_str_eq(range_kind_name((enum range_kind)99), "?");
	cr_assert_str_eq(event_kind_name(EVENT_UNMAP), "unmap");
	cr_assert_str_eq(event_kind_name((enum event_kind)99), "?");
}
