/* SPDX-License-Identifier: Apache-2.0 */
/* What is looked for behind parameters, where, and what becomes of it. The device reads the memory
 * of the host, and finds all words but 0. */
#include "world.h"

#include <errno.h>

#include "arena/scan.h"
#include "arena/suspect.h"

#define INNER 0x7f1000000000ull
#define OTHER 0x7f2000000000ull
#define G     0x100ull /* handle of the exec under test */
#define WORDS 16384u   /* two spans */

static uint64_t table[WORDS] __attribute__((aligned(4096)));
static int answer; /* of the device */
static struct device_span asked[8];
static uint32_t asked_count, ranges_count;
static void (*meanwhile)(void);

static uint64_t table_at(uint32_t word)
{
	return (uint64_t)(uintptr_t)(table + word);
}

static int fake_scan(struct device_scan *s)
{
	asked_count = s->spans_count;
	ranges_count = s->ranges_count;
	for (uint32_t i = 0; i < s->spans_count; i++) {
		const uint64_t *words = (const uint64_t *)(uintptr_t)s->spans[i].addr;

		if (i < 8)
			asked[i] = s->spans[i];
		if (s->spans[i].addr - table_at(0) >= sizeof(table))
			s->spans[i].bytes = 0; /* cannot be read */
		for (uint64_t n = 0; answer == 0 && n < s->spans[i].bytes / 8; n++) {
			if (words[n] != 0 && s->found++ < s->cap)
				s->hits[s->found - 1] =
					(struct device_hit){ s->spans[i].addr + 8 * n, words[n] };
		}
	}
	if (meanwhile)
		meanwhile();
	return answer;
}

static void start(void)
{
	world_start();
	device.scan = fake_scan;
	world_open(table_at(0), sizeof(table), RANGE_DEVICE);
	world_alloc(INNER);
}

TestSuite(scan, .init = start);

static void open_exec(uint64_t at)
{
	world_exec(G, KERNEL(1, 1, at));
}

Test(scan, a_word_that_points_is_told_when_its_memory_is_freed)
{
	struct scan_result r;
	char text[512];

	open_exec(table_at(8));
	table[10] = INNER + 64;
	r = scan_exec(G);
	cr_assert_eq(r.kept, 1);
	cr_assert_not(r.skipped);
	cr_assert_not(r.cut);
	cr_assert_eq(world_findings, 0);
	world_free(INNER);
	cr_assert_eq(world_findings, 1);
	cr_assert_eq(world_found.kind, FINDING_SUSPECT_FREED);
	cr_assert_eq(finding_severity(world_found.kind), SEVERITY_INFO);
	cr_assert_eq(world_refs[0].confidence, CONFIDENCE_SUSPECT);
	cr_assert_eq(world_refs[0].table, table_at(8));
	cr_assert_eq(world_refs[0].table_offset, 16);
	cr_assert_eq(world_refs[0].value, INNER + 64);
	cr_assert_eq(world_refs[0].old.base, INNER);
	cr_assert_str_eq(interned(world_refs[0].name), "k1");
	finding_text(&world_found, text, sizeof(text));
	cr_assert_not_null(strstr(text, "ARENA_SCAN found 0x7f1000000040, a word that looks like"));
	cr_assert_not_null(strstr(text, "kernel k1 param 0 (+0)"));
	cr_assert_not(suspect_any());
}

Test(scan, a_launch_never_looks_at_it)
{
	guard_refuses = true;
	open_exec(table_at(0));
	table[0] = INNER;
	scan_exec(G);
	world_free(INNER);
	cr_assert(guard_launch(G, STREAM));
	cr_assert_eq(world_findings, 1);
	cr_assert_eq(world_counters().launches_judged, 0);
	cr_assert_eq(world_counters().refs_suspect, 1);
}

Test(scan, a_free_that_the_driver_refuses_is_none)
{
	open_exec(table_at(0));
	table[0] = INNER;
	scan_exec(G);
	ledger_close_end(ledger_close_begin(INNER, 0), false);
	cr_assert_eq(world_findings, 0);
	world_free(INNER);
	cr_assert_eq(world_findings, 1);
}

Test(scan, an_exec_takes_its_suspects_along)
{
	open_exec(table_at(0));
	table[0] = INNER;
	cr_assert_eq(scan_exec(G).kept, 1);
	exec_close(G);
	cr_assert_not(suspect_any());
	world_free(INNER);
	cr_assert_eq(world_findings, 0);
}

Test(scan, new_parameters_of_a_node_end_its_suspects)
{
	open_exec(table_at(0));
	table[0] = INNER;
	scan_exec(G);
	exec_set_node(G, KERNEL(1, 1, table_at(64)));
	cr_assert_not(suspect_any());
}

Test(scan, a_second_scan_takes_the_place_of_the_first)
{
	open_exec(table_at(0));
	table[0] = INNER;
	scan_exec(G);
	table[0] = 0;
	cr_assert_eq(scan_exec(G).kept, 0);
	cr_assert_not(suspect_any());
}

Test(scan, what_a_parameter_holds_is_told_as_that)
{
	struct scan_result r;

	world_exec(G, KERNEL(1, 1, table_at(0), INNER));
	table[0] = INNER;
	r = scan_exec(G);
	cr_assert_eq(r.kept, 0);
	cr_assert(r.cut, "what the device cannot read is told");
	world_free(INNER);
	cr_assert_eq(world_findings, 1);
	cr_assert_eq(world_found.kind, FINDING_FREED_WHILE_REFERENCED);
}

Test(scan, words_that_point_nowhere_are_nothing)
{
	open_exec(table_at(0));
	table[0] = INNER - 1;
	table[1] = INNER + MIB;
	table[2] = 42;
	cr_assert_eq(scan_exec(G).kept, 0);
}

Test(scan, each_piece_of_memory_is_read_once_and_belongs_to_the_nearest_parameter)
{
	world_exec(G, KERNEL(1, 1, table_at(512), table_at(0), table_at(512)));
	table[511] = INNER;
	table[512] = INNER + 8;
	cr_assert_eq(scan_exec(G).kept, 2);
	cr_assert_eq(asked_count, 2);
	cr_assert_eq(asked[0].addr, table_at(0));
	cr_assert_eq(asked[0].bytes, 4096);
	cr_assert_eq(asked[1].addr, table_at(512));
	cr_assert_eq(asked[1].bytes, SCAN_SPAN_BYTES);
	world_free(INNER);
	cr_assert_eq(world_found.refs_total, 2);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(world_refs[i].table + world_refs[i].table_offset,
			     table_at(world_refs[i].value == INNER ? 511 : 512));
}

Test(scan, it_does_not_look_past_the_end)
{
	open_exec(table_at(WORDS - 2) + 4);
	scan_exec(G);
	cr_assert_eq(asked_count, 1);
	cr_assert_eq(asked[0].addr, table_at(WORDS - 1));
	cr_assert_eq(asked[0].bytes, 8);
}

Test(scan, memory_of_other_kinds_is_left_alone)
{
	world_free(table_at(0));
	world_open(table_at(0), sizeof(table), RANGE_MANAGED);
	open_exec(table_at(0));
	table[0] = INNER;
	cr_assert_eq(scan_exec(G).kept, 0);
	cr_assert_eq(asked_count, 0);
}

Test(scan, neighbours_are_looked_for_as_one)
{
	world_alloc(INNER + MIB);
	world_alloc(OTHER);
	open_exec(table_at(0));
	scan_exec(G);
	cr_assert_eq(ranges_count, 3);
}

Test(scan, a_device_that_does_not_answer_is_told)
{
	open_exec(table_at(0));
	table[0] = INNER;
	answer = -EBUSY;
	cr_assert(scan_exec(G).skipped);
	device.scan = NULL;
	cr_assert(scan_exec(G).skipped);
	cr_assert_not(suspect_any());
}

static void close_it(void)
{
	exec_close(G);
	open_exec(table_at(32));
}

Test(scan, what_was_found_of_another_exec_is_dropped)
{
	open_exec(table_at(0));
	table[0] = INNER;
	meanwhile = close_it;
	scan_exec(G);
	cr_assert_not(suspect_any());
	world_free(INNER);
	cr_assert_eq(world_findings, 0);
}

Test(scan, more_words_than_are_kept_are_told)
{
	open_exec(table_at(0));
	for (uint32_t i = 0; i < SCAN_HITS_MAX + 1; i++)
		table[i] = INNER + i;
	cr_assert(scan_exec(G).cut);
	world_free(INNER);
	cr_assert_eq(world_findings, 1);
	cr_assert_eq(world_found.refs_total, SCAN_HITS_MAX);
	cr_assert_leq(world_found.refs_count, 32);
}

Test(scan, a_reservation_is_told_when_its_addresses_go)
{
	world_open(OTHER, 2 * MIB, RANGE_RESERVED);
	world_map(OTHER, MIB);
	open_exec(table_at(0));
	table[0] = OTHER;
	cr_assert_eq(scan_exec(G).kept, 1);
	world_unmap(OTHER, MIB);
	cr_assert_eq(world_findings, 0, "it may be mapped again, and mean the same");
	world_free(OTHER);
	cr_assert_eq(world_findings, 1);
}
