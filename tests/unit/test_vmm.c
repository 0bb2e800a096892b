/* SPDX-License-Identifier: Apache-2.0 */
/* Unit tests of arena/vmm.c: reservations, mappings, unmapping, undefined content. */
#include <criterion/criterion.h>

#include "tests/unit/doubles.h"

#define R    ((uint64_t)0x600000000000)
#define PAGE ((uint64_t)2 << 20)

static void start(void)
{
	cr_assert_eq(ledger_init(), 0);
}

TestSuite(vmm, .init = start);

static struct range *reserve(uint64_t base, uint64_t pages)
{
	struct range_desc d = { .base = base, .size_bytes = pages * PAGE, .kind = RANGE_RESERVED };

	return ledger_open(&d);
}

static struct range *map(uint64_t base, uint64_t pages)
{
	struct range_desc d = {
		.base = base, .size_bytes = pages * PAGE, .kind = RANGE_MAPPED, .scope = 0x77
	};

	return ledger_map(&d);
}

/* @return how many mappings it was. */
static unsigned unmap(uint64_t base, uint64_t pages, bool done)
{
	struct unmap_batch b = { 0 };
	unsigned count;

	ledger_unmap_begin(base, pages * PAGE, 5, &b);
	count = b.count;
	ledger_unmap_end(&b, done);
	return count;
}

static bool lives(uint64_t addr)
{
	struct range_view v;

	return ledger_find(addr, &v);
}

static struct range_view pinned(uint64_t addr)
{
	struct range_view v;

	cr_assert(ledger_find(addr, &v));
	cr_assert(ledger_pin(&v));
	return v;
}

Test(vmm, a_view_of_a_mapping_is_its_reservations)
{
	struct range *r = reserve(R, 8), *m = map(R + PAGE, 2);
	struct range_view v = pinned(R + PAGE + 100);

	cr_assert_eq(v.range, m);
	cr_assert_eq(v.owner, r);
	cr_assert_eq(v.generation, r->generation);
	cr_assert_neq(v.generation, m->generation);
	cr_assert_eq(v.kind, RANGE_MAPPED);
	cr_assert_eq(v.base, R + PAGE);
	cr_assert_not(lives(R), "reserved is not memory");
	cr_assert(ledger_find_reserved(R, &v));
	cr_assert_eq(v.range, r);
	cr_assert_not(ledger_find_reserved(R + 8 * PAGE, &v));
}

/* Rule 3 of design.md. */
Test(vmm, the_generation_is_the_reservations)
{
	struct range *r = reserve(R, 4);
	struct range_view v;

	map(R, 4);
	v = pinned(R + 100);
	cr_assert_eq(ledger_health(r, v.generation, R + 100), RANGE_HEALTHY);
	cr_assert_eq(unmap(R, 4, true), 1);
	cr_assert_eq(ledger_health(r, v.generation, R + 100), RANGE_IS_UNMAPPED);
	map(R, 1);
	cr_assert_eq(ledger_health(r, v.generation, R + 100), RANGE_HEALTHY);
	cr_assert_eq(ledger_health(r, v.generation, R + PAGE), RANGE_IS_UNMAPPED);
	unmap(R, 1, true);
	ledger_close_end(ledger_close_begin(R, 0), true);
	cr_assert_eq(ledger_health(r, v.generation, R + 100), RANGE_IS_FREED);
	reserve(R, 4);
	cr_assert_eq(ledger_health(r, v.generation, R + 100), RANGE_IS_FREED);
	map(R, 4);
	cr_assert_eq(ledger_health(r, v.generation, R + 100), RANGE_IS_REPLACED);
}

Test(vmm, part_of_several_mappings)
{
	reserve(R, 10);
	for (uint64_t i = 0; i < 10; i++)
		map(R + i * PAGE, 1);
	cr_assert_eq(unmap(R + 3 * PAGE, 4, true), 4);
	for (uint64_t i = 0; i < 10; i++)
		cr_assert_eq(lives(R + i * PAGE), i < 3 || i >= 7, "page %lu", i);
	cr_assert_eq(unmap(R, 10, true), 6);
	cr_assert_eq(unmap(R, 10, true), 0, "nothing is left");
	cr_assert_eq(unmap(0x1000, 1, true), 0, "an unknown address");
}

Test(vmm, many_mappings_at_once)
{
	reserve(R, 1000);
	for (uint64_t i = 0; i < 1000; i++)
		map(R + i * PAGE, 1);
	cr_assert_eq(unmap(R, 1000, true), 1000);
	cr_assert_not(lives(R + 500 * PAGE));
}

Test(vmm, a_refused_unmap_is_undone)
{
	struct range *m;

	reserve(R, 2);
	m = map(R, 2);
	cr_assert_eq(unmap(R, 2, false), 1);
	cr_assert(lives(R));
	cr_assert_eq(m->state, RANGE_LIVE);
	cr_assert_eq(m->content_undefined, 0);
	map(R, 2);
	cr_assert_eq(ledger_undefined_count, 1, "the mapping before was taken as gone");
}

Test(vmm, unmapping_marks_the_holders_of_the_reservation_and_frees_nothing)
{
	struct exec e = { 0 };
	struct range *r = reserve(R, 4);

	map(R, 1);
	map(R + PAGE, 1);
	ledger_holders_lock();
	ledger_hold(r, &e);
	ledger_holders_unlock();
	unmap(R, 4, false);
	cr_assert_eq(e.mark, 1);
	cr_assert_eq(told.marks, 1, "once for all mappings of one reservation");
	memset(&told, 0, sizeof(told));
	unmap(R, 4, true);
	cr_assert_eq(told.marks, 1 + 2, "and once more for each that is gone");
	cr_assert_eq(told.unmapped, 1);
	cr_assert_eq(told.count, 2);
	cr_assert_eq(told.stack, 5);
	cr_assert_eq(told.freed, 0);
	ledger_close_end(ledger_close_begin(R, 6), true);
	cr_assert_eq(told.freed, 1);
	cr_assert_eq(told.last, r);
}

Test(vmm, the_reservation_object_outlives_its_mappings)
{
	struct range *r = reserve(R, 4), *m = map(R, 4);
	struct range_view v;

	ledger_close_end(ledger_close_begin(R, 0), true);
	cr_assert_not(ledger_find(R, &v), "a mapping whose unmapping was not seen");
	cr_assert_eq(m->generation, 0);
	cr_assert_eq(r->generation, 0);
}

Test(vmm, what_is_being_unmapped_is_there_until_the_driver_did_it)
{
	struct range *r = reserve(R, 4);
	struct unmap_batch b = { 0 };
	struct range_view v;

	map(R, 2);
	v = pinned(R);
	ledger_unmap_begin(R, 2 * PAGE, 0, &b);
	cr_assert_not(ledger_find(R, &v));
	cr_assert_eq(ledger_health(r, v.generation, R + PAGE), RANGE_HEALTHY);
	cr_assert_eq(ledger_health(r, v.generation, R + 2 * PAGE), RANGE_IS_UNMAPPED);
	ledger_unmap_end(&b, false);
	cr_assert_eq(ledger_health(r, v.generation, R), RANGE_HEALTHY);
	ledger_unmap_begin(R, 2 * PAGE, 0, &b);
	ledger_unmap_end(&b, true);
	cr_assert_eq(ledger_health(r, v.generation, R), RANGE_IS_UNMAPPED);
	ledger_close_begin(R, 0);
	cr_assert_eq(ledger_health(r, v.generation, R), RANGE_IS_UNMAPPED);
}

Test(vmm, an_unknown_reservation_is_made_up)
{
	struct ledger_counters c;
	struct range_view v;

	map(R, 2);
	v = pinned(R + PAGE);
	cr_assert_eq(v.owner->kind, RANGE_RESERVED);
	unmap(R, 2, true);
	cr_assert_eq(ledger_health(v.owner, v.generation, R), RANGE_IS_UNMAPPED);
	map(R, 2);
	cr_assert_eq(ledger_health(v.owner, v.generation, R), RANGE_HEALTHY);
	ledger_read_counters(&c);
	cr_assert_eq(c.invented_reservations, 1);
}

Test(vmm, a_mapping_is_not_closed_by_a_free)
{
	reserve(R, 1);
	map(R, 1);
	/* The reservation is meant. */
	cr_assert_eq(ledger_close_begin(R, 0)->kind, RANGE_RESERVED);
}

/* ---- content ---- */

static bool undefined(uint64_t addr)
{
	struct range_view v;

	cr_assert(ledger_find(addr, &v));
	return v.range->content_undefined;
}

Test(vmm, memory_mapped_again_has_no_content_until_it_is_written)
{
	reserve(R, 8);
	map(R, 2);
	cr_assert_not(undefined(R), "mapped for the first time: nobody expects content");
	unmap(R, 2, true);
	map(R + 4 * PAGE, 2);
	cr_assert_not(undefined(R + 4 * PAGE), "another part of the reservation");
	map(R, 2);
	cr_assert(undefined(R));
	cr_assert_eq(ledger_undefined_count, 1);
	ledger_written(R + 4 * PAGE);
	cr_assert(undefined(R));
	ledger_written(R + PAGE);
	cr_assert_not(undefined(R));
	cr_assert_eq(ledger_undefined_count, 0);
	ledger_written(R + PAGE);
	cr_assert_eq(ledger_undefined_count, 0);
}

/* Mapped again in pieces: what a write covers has content, what lies beside it has not. */
Test(vmm, a_write_gives_content_to_all_that_it_covers)
{
	reserve(R, 8);
	for (unsigned i = 0; i < 5; i++)
		map(R + i * PAGE, 1);
	unmap(R, 5, true);
	for (unsigned i = 0; i < 5; i++)
		map(R + i * PAGE, 1);
	cr_assert_eq(ledger_undefined_count, 5);
	ledger_written_extent(R + 2 * PAGE - 1, PAGE + 2);
	cr_assert(undefined(R) && undefined(R + 4 * PAGE));
	cr_assert_not(undefined(R + PAGE) || undefined(R + 2 * PAGE) || undefined(R + 3 * PAGE));
	ledger_written_extent(R, 0);
	cr_assert_not(undefined(R));
	ledger_written_extent(R - PAGE, 100 * PAGE);
	cr_assert_eq(ledger_undefined_count, 0);
	ledger_written_extent(UINT64_MAX, UINT64_MAX);
}

Test(vmm, an_undefined_mapping_that_goes_is_not_counted)
{
	reserve(R, 2);
	for (int i = 0; i < 5; i++) {
		map(R, 1);
		cr_assert_eq(ledger_undefined_count, i != 0);
		unmap(R, 1, true);
		cr_assert_eq(ledger_undefined_count, 0);
	}
}

Test(vmm, a_new_reservation_knows_nothing_of_the_old)
{
	reserve(R, 2);
	map(R, 2);
	unmap(R, 2, true);
	ledger_close_end(ledger_close_begin(R, 0), true);
	reserve(R, 2);
	map(R, 2);
	cr_assert_not(undefined(R));
}

/* More holes than the history has room for: it may say too much, never too little. */
Test(vmm, history_of_many_holes)
{
	enum { HOLES = 200 };

	reserve(R, 2 * HOLES);
	for (uint64_t i = 0; i < HOLES; i++) {
		uint64_t page = i * 77 % HOLES * 2;

		map(R + page * PAGE, 1);
		unmap(R + page * PAGE, 1, true);
	}
	for (uint64_t i = 0; i < HOLES; i++) {
		map(R + 2 * i * PAGE, 1);
		cr_assert(undefined(R + 2 * i * PAGE), "hole %lu", i);
	}
}

Test(vmm, touching_spans_are_one)
{
	reserve(R, 1000);
	for (uint64_t i = 0; i < 500; i++) {
		map(R + i * PAGE, 1);
		unmap(R + i * PAGE, 1, true);
	}
	map(R + 499 * PAGE, 1);
	map(R + 500 * PAGE, 1);
	cr_assert(undefined(R + 499 * PAGE));
	cr_assert_not(undefined(R + 500 * PAGE), "one span, nothing was merged over a gap");
}

Test(vmm, a_multicast_object_changed)
{
	reserve(R, 4);
	map(R, 1);
	map(R + PAGE, 1);
	ledger_undefine_scope(0x78);
	cr_assert_eq(ledger_undefined_count, 0);
	ledger_undefine_scope(0x77);
	ledger_undefine_scope(0x77);
	cr_assert_eq(ledger_undefined_count, 2);
	unmap(R, 2, true);
	cr_assert_eq(ledger_undefined_count, 0);
}

static enum event_kind kinds[8];
static unsigned kinds_count;

static void note_event(const struct event *e)
{
	kinds[kinds_count++ % 8] = e->kind;
}

Test(vmm, events)
{
	event_sink = note_event;
	reserve(R, 1);
	map(R, 1);
	unmap(R, 1, false);
	unmap(R, 1, true);
	cr_assert_eq(kinds_count, 3);
	cr_assert_eq(kinds[0], EVENT_ALLOC);
	cr_assert_eq(kinds[1], EVENT_MAP);
	cr_assert_eq(kinds[2], EVENT_UNMAP);
}
