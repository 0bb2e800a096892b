/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scopes, tags and leases: what is served, what a free does, and what a sequence that does not fit
 * becomes; one by one, and against a model. Each test has a process of its own. (Many threads:
 * stress_tag.c.)
 */
#include <criterion/criterion.h>
#include <pthread.h>

#include "seed.h"
#include "tags.h"

TestSuite(tag, .init = fake_start);
TestSuite(scope, .init = fake_start);

/* ---- scopes ---- */

Test(scope, nests)
{
	struct arena *a = fake_arena("a"), *b = fake_arena("b");

	cr_assert_null(scope_current());
	cr_assert_eq(scope_enter(NULL), ARENA_E_INVALID);
	cr_assert_eq(scope_enter(a), 0);
	cr_assert_eq(scope_enter(b), 0);
	cr_assert_eq(scope_enter(a), 0);
	cr_assert_eq(scope_current(), a);
	cr_assert_eq(scope_leave(), 0);
	cr_assert_eq(scope_current(), b);
	cr_assert_eq(scope_leave(), 0);
	cr_assert_eq(scope_leave(), 0);
	cr_assert_null(scope_current());
	cr_assert_eq(scope_leave(), ARENA_E_BUSY);
}

Test(scope, has_a_limit)
{
	struct arena *a = fake_arena("a");

	for (int i = 0; i < SCOPE_DEPTH; i++)
		cr_assert_eq(scope_enter(a), 0);
	cr_assert_eq(scope_enter(a), ARENA_E_BUSY);
	cr_assert_not_null(strstr(arena_message(), "arena a: 32 scopes"));
	for (int i = 0; i < SCOPE_DEPTH; i++)
		cr_assert_eq(scope_leave(), 0);
}

Test(scope, is_not_left_under_a_tag)
{
	struct arena *a = fake_arena("a"), *b = fake_arena("b");

	scope_enter(a);
	push("t", ARENA_SCRATCH);
	scope_enter(b);
	cr_assert_eq(scope_leave(), 0);
	cr_assert_eq(scope_leave(), ARENA_E_BUSY);
	cr_assert_not_null(strstr(arena_message(), "tag t is open"));
	cr_assert_eq(scope_current(), a);
	pop();
	cr_assert_eq(scope_leave(), 0);
}

static void *other_thread(void *arg)
{
	struct arena *a = arg;

	if (scope_current() != NULL || tag_depth != 0 || scope_enter(a) != 0)
		return "not its own stack";
	return tag_push("t", ARENA_SCRATCH) == ARENA_E_BUSY ? NULL : (void *)"the tag is not busy";
}

Test(scope, is_the_threads_own)
{
	struct arena *a = fake_arena("a");
	pthread_t thread;
	void *wrong;

	scope_enter(a);
	push("t", ARENA_SCRATCH);
	pthread_create(&thread, NULL, other_thread, a);
	pthread_join(thread, &wrong);
	cr_assert_null(wrong, "%s", (char *)wrong);
}

/* ---- refusals ---- */

Test(tag, wants_a_name_a_kind_and_a_scope)
{
	char name[300];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	cr_assert_eq(tag_push("t", ARENA_SCRATCH), ARENA_E_BUSY);
	cr_assert_not_null(strstr(arena_message(), "in no arena"));
	scope_enter(fake_arena("a"));
	cr_assert_eq(tag_push(NULL, ARENA_SCRATCH), ARENA_E_INVALID);
	cr_assert_eq(tag_push("", ARENA_SCRATCH), ARENA_E_INVALID);
	cr_assert_eq(tag_push(name, ARENA_SCRATCH), ARENA_E_INVALID);
	cr_assert_eq(tag_push("t", ARENA_OBJECT), ARENA_E_INVALID);
	cr_assert_eq(tag_push("t", ARENA_BOUND), ARENA_E_INVALID);
	cr_assert_eq(tag_push("t", (enum arena_kind)9), ARENA_E_INVALID);
	cr_assert_eq(tag_pop(), ARENA_E_BUSY);
	cr_assert_eq(tag_depth, 0);
}

Test(tag, is_open_once_and_of_one_kind)
{
	scope_enter(fake_arena("a"));
	push("t", ARENA_SCRATCH);
	cr_assert_eq(tag_push("t", ARENA_SCRATCH), ARENA_E_BUSY);
	cr_assert_not_null(strstr(arena_message(), "tag t of arena a"));
	cr_assert_eq(tag_depth, 1);
	pop();
	cr_assert_eq(tag_push("t", ARENA_VALUE), ARENA_E_SPEC);
	cr_assert_not_null(strstr(arena_message(), "it was scratch before"));
	cr_assert_eq(tag_depth, 0);
	scope_enter(fake_arena("b"));
	push("t", ARENA_VALUE);
}

Test(tag, has_a_limit)
{
	char name[8];

	scope_enter(fake_arena("a"));
	for (int i = 0; i < SCOPE_DEPTH; i++) {
		snprintf(name, sizeof(name), "t%d", i);
		push(name, ARENA_SCRATCH);
	}
	cr_assert_eq(tag_push("more", ARENA_SCRATCH), ARENA_E_BUSY);
	for (int i = 0; i < SCOPE_DEPTH; i++)
		pop();
	push("more", ARENA_SCRATCH);
}

/* ---- scratch ---- */

Test(tag, gives_a_rebuilt_wrapper_its_workspaces_back)
{
	const uint64_t sizes[3] = { 4096, 256, 3 << 20 };
	uint64_t first[3], again[3];
	struct arena *a = fake_arena("a");

	scope_enter(a);
	push("ws", ARENA_SCRATCH);
	for (int i = 0; i < 3; i++)
		first[i] = served(sizes[i]);
	pop();
	for (int i = 0; i < 3; i++)
		absorbed(first[i]);
	push("ws", ARENA_SCRATCH);
	for (int i = 0; i < 3; i++)
		again[i] = served(sizes[i]);
	pop();
	cr_assert_arr_eq(first, again, sizeof(first));
	cr_assert_eq(fake_find(a, "ws#1")->base, first[1]);
	cr_assert_eq(fake_find(a, "ws#1")->spec.bytes, 256);
	cr_assert_eq(findings_count(), 0);
}

Test(tag, shares_scratch_with_the_old_object)
{
	struct arena *a = fake_arena("a");
	uint64_t addr;

	scope_enter(a);
	push("ws", ARENA_SCRATCH);
	addr = served(512);
	pop();
	push("ws", ARENA_SCRATCH);
	cr_assert_eq(served(512), addr);
	pop();
	cr_assert_eq(fake_find(a, "ws#0")->leases, 2);
	absorbed(addr);
	cr_assert_eq(fake_find(a, "ws#0")->leases, 1);
	absorbed(addr);
	cr_assert_eq(tag_absorb(addr), TAG_REFUSED);
	cr_assert_eq(fake_find(a, "ws#0")->leases, 0);
	cr_assert_eq(findings_count(), 0);
}

Test(tag, leaves_foreign_frees_and_guards_chunks)
{
	struct slot *s = fake_slot(fake_arena("a"), "plain", ARENA_SCRATCH, 4096);
	uint64_t addr;

	cr_assert_eq(tag_absorb(0), TAG_FOREIGN);
	cr_assert_eq(tag_absorb(0x123000), TAG_FOREIGN);
	/* The first slot of a chunk is where the driver's allocation begins. */
	cr_assert_eq(tag_absorb(s->base), TAG_REFUSED);
	cr_assert_eq(tag_absorb(s->base + 256), TAG_FOREIGN);
	scope_enter(fake_arena("b"));
	push("t", ARENA_SCRATCH);
	addr = served(4096);
	absorbed(addr);
	cr_assert_eq(tag_absorb(addr), TAG_REFUSED);
	/* An address of the application, in the ledger like a chunk. */
	ledger_open(
		&(struct range_desc){ .base = 0x700000, .size_bytes = 4096, .kind = RANGE_DEVICE });
	cr_assert_eq(tag_absorb(0x700000), TAG_FOREIGN);
}

Test(tag, serves_what_is_aligned)
{
	uint64_t addr;

	scope_enter(fake_arena("a"));
	push("t", ARENA_SCRATCH);
	served(256);
	cr_assert(tag_serve(&(struct tag_request){ .bytes = 4096, .align = 512 }, &addr));
	cr_assert_eq(addr % 512, 0);
}

Test(tag, belongs_to_the_arena_it_was_pushed_in)
{
	struct arena *a = fake_arena("a"), *b = fake_arena("b");
	uint64_t outer, inner;

	scope_enter(a);
	push("outer", ARENA_SCRATCH);
	outer = served(512);
	scope_enter(b);
	served(512);
	push("inner", ARENA_SCRATCH);
	inner = served(512);
	pop();
	scope_leave();
	served(512);
	pop();
	cr_assert_eq(fake_find(a, "outer#0")->base, outer);
	cr_assert_eq(fake_find(b, "inner#0")->base, inner);
	cr_assert_not_null(fake_find(a, "outer#1"));
	cr_assert_not_null(fake_find(a, "outer#2"));
	cr_assert_null(fake_find(b, "outer#1"));
}

/* ---- sequences that do not fit ---- */

static void first_pass(enum arena_kind kind)
{
	scope_enter(fake_arena("a"));
	push("t", kind);
	absorbed(served(1024));
	absorbed(served(2048));
	pop();
	look_from_now();
}

Test(tag, over)
{
	first_pass(ARENA_SCRATCH);
	push("t", ARENA_SCRATCH);
	served(1024);
	served(2048);
	not_served(2048);
	pop();
	cr_assert(finds("t#2", "the first pass had fewer calls"));
	cr_assert_eq(findings_count(), 1);
	/* A pass that fits does not take it back, but a newer snapshot knows nothing of it. */
	push("t", ARENA_SCRATCH);
	served(1024);
	served(2048);
	pop();
	cr_assert_eq(findings_count(), 1);
	look_from_now();
	cr_assert_eq(findings_count(), 0);
}

Test(tag, under)
{
	first_pass(ARENA_SCRATCH);
	push("t", ARENA_SCRATCH);
	served(1024);
	cr_assert_eq(findings_count(), 0);
	pop();
	cr_assert(finds("t", "1 allocations, 2 in the first pass"));
	cr_assert_eq(findings_count(), 1);
}

Test(tag, pass_without_a_call_is_none)
{
	scope_enter(fake_arena("a"));
	push("t", ARENA_SCRATCH);
	pop();
	push("t", ARENA_SCRATCH);
	served(64);
	served(64);
	pop();
	push("t", ARENA_SCRATCH);
	pop();
	cr_assert_eq(findings_count(), 0);
	push("t", ARENA_SCRATCH);
	served(64);
	served(64);
	pop();
	cr_assert_eq(findings_count(), 0);
}

Test(tag, mis_sized)
{
	struct slot_findings f;

	first_pass(ARENA_SCRATCH);
	push("t", ARENA_SCRATCH);
	not_served(1025);
	served(2048);
	pop();
	cr_assert(finds("t#0", "1025 bytes: the slot has another size"));
	f = findings();
	cr_assert_eq(f.count, 1);
	cr_assert_eq(f.list[0].severity, SEVERITY_WARN);
	cr_assert_eq(f.list[0].old_spec.bytes, 1024);
	cr_assert_eq(f.list[0].new_spec.bytes, 1025);
	slot_findings_free(&f);
}

Test(tag, other_device_kind_alignment)
{
	uint64_t addr;

	first_pass(ARENA_SCRATCH);
	fake_slot(fake_arena("a"), "t#2", ARENA_VALUE, 512);
	push("t", ARENA_SCRATCH);
	cr_assert(
		!tag_serve(&(struct tag_request){ .bytes = 1024, .align = 1, .device = 1 }, &addr));
	cr_assert(!tag_serve(&(struct tag_request){ .bytes = 2048, .align = 1u << 30 }, &addr));
	not_served(512);
	pop();
	cr_assert(finds("t#0", "another device"));
	cr_assert(finds("t#1", "aligned to less"));
	cr_assert(finds("t#2", "another kind"));
}

Test(tag, of_a_value_is_an_error)
{
	struct slot_findings f;

	first_pass(ARENA_VALUE);
	push("t", ARENA_VALUE);
	served(1024);
	pop();
	f = findings();
	cr_assert_eq(f.count, 1);
	cr_assert_eq(f.list[0].severity, SEVERITY_ERROR);
	slot_findings_free(&f);
}

Test(tag, call_that_no_slot_can_serve)
{
	first_pass(ARENA_SCRATCH);
	push("t", ARENA_SCRATCH);
	tag_decline(1024, "its stream is elsewhere");
	served(2048);
	pop();
	cr_assert(finds("t#0", "1024 bytes: its stream is elsewhere"));
	cr_assert_eq(findings_count(), 1);
}

Test(tag, endless_sequence_is_bounded)
{
	first_pass(ARENA_SCRATCH);
	push("t", ARENA_SCRATCH);
	for (int i = 0; i < 1000; i++)
		not_served(7);
	pop();
	cr_assert_eq(findings_count(), 65);
	cr_assert(finds("t", "more calls do not fit"));
	cr_assert(finds("t#999", "7 bytes") && !finds("t#935", "7 bytes"));
	/* What is forgotten is known to be old, too. */
	look_from_now();
	cr_assert_eq(findings_count(), 0);
}

Test(tag, verify_asks_one_arena)
{
	struct slot_findings f = { 0 };

	first_pass(ARENA_SCRATCH);
	push("t", ARENA_SCRATCH);
	not_served(7);
	pop();
	cr_assert_eq(tag_verify(NULL, fake_arena("b"), &f), 0);
	cr_assert_eq(f.count, 0);
	cr_assert_eq(findings_count(), 2); /* mis-sized, and short */
}

Test(tag, alike_misfits_are_one)
{
	first_pass(ARENA_SCRATCH);
	for (int pass = 0; pass < 100; pass++) {
		push("t", ARENA_SCRATCH);
		not_served(7);
		served(2048);
		pop();
	}
	cr_assert_eq(findings_count(), 1);
}

/* ---- values ---- */

static void fill(uint64_t addr, int byte, uint64_t bytes)
{
	memset((void *)(uintptr_t)addr, byte, bytes);
}

Test(tag, stages_a_value_again)
{
	struct arena *a = fake_arena("a");
	uint64_t live, fresh;
	struct slot *s;

	scope_enter(a);
	push("w", ARENA_VALUE);
	live = served(4096);
	pop();
	fill(live, 1, 4096);
	s = fake_find(a, "w#0");
	cr_assert_eq(s->base, live);
	/* Outside of a reload there is no commit to wait for. */
	push("w", ARENA_VALUE);
	cr_assert_eq(served(4096), live);
	pop();
	open_reload();
	push("w", ARENA_VALUE);
	fresh = served(4096);
	pop();
	cr_assert_neq(fresh, live);
	cr_assert_eq(((char *)(uintptr_t)fresh)[4095], 0);
	fill(fresh, 2, 4096);
	cr_assert_eq(fake_value(s), 1);
	commit(a);
	cr_assert_eq(fake_value(s), 2);
	cr_assert_eq(s->base, live);
	cr_assert_eq(findings_count(), 0);
}

static bool known(uint64_t addr)
{
	struct range_view v;

	return ledger_find(addr, &v) && v.base == addr;
}

Test(tag, shadow_is_freed_by_who_comes_last)
{
	struct arena *a = fake_arena("a");
	uint64_t before, fresh;

	scope_enter(a);
	push("w", ARENA_VALUE);
	served(4096);
	pop();
	open_reload();
	before = load_relaxed(&fake.bytes_live);
	/* The layer first. */
	push("w", ARENA_VALUE);
	fresh = served(4096);
	pop();
	cr_assert(known(fresh));
	commit(a);
	fill(fresh, 3, 4096);
	cr_assert(known(fresh));
	cr_assert_eq(load_relaxed(&fake.bytes_live), before + 4096);
	absorbed(fresh);
	cr_assert(!known(fresh));
	cr_assert_eq(load_relaxed(&fake.bytes_live), before);
	cr_assert_eq(tag_absorb(fresh), TAG_FOREIGN);
	/* The user first: what he wrote is still published. */
	push("w", ARENA_VALUE);
	fresh = served(4096);
	pop();
	fill(fresh, 4, 4096);
	absorbed(fresh);
	cr_assert(!known(fresh));
	cr_assert_eq(tag_absorb(fresh), TAG_REFUSED);
	commit(a);
	cr_assert_eq(fake_value(fake_find(a, "w#0")), 4);
	cr_assert_eq(load_relaxed(&fake.bytes_live), before);
	cr_assert_eq(tag_absorb(fresh), TAG_FOREIGN);
}

Test(tag, value_built_twice_is_the_newer_one)
{
	struct arena *a = fake_arena("a");
	uint64_t before, one, two;

	scope_enter(a);
	push("w", ARENA_VALUE);
	served(512);
	pop();
	open_reload();
	before = load_relaxed(&fake.bytes_live);
	push("w", ARENA_VALUE);
	one = served(512);
	pop();
	push("w", ARENA_VALUE);
	two = served(512);
	pop();
	cr_assert_neq(one, two);
	fill(two, 6, 512);
	fill(one, 5, 512);
	commit(a);
	cr_assert_eq(fake_value(fake_find(a, "w#0")), 6);
	absorbed(one);
	absorbed(two);
	cr_assert_eq(load_relaxed(&fake.bytes_live), before);
	/* And over a put. */
	cr_assert_eq(fake_stage(a, "w#0", 512, 7), 0);
	push("w", ARENA_VALUE);
	one = served(512);
	pop();
	fill(one, 8, 512);
	commit(a);
	cr_assert_eq(fake_value(fake_find(a, "w#0")), 8);
	absorbed(one);
	stage_trim();
	cr_assert_eq(load_relaxed(&fake.bytes_live), before);
}

Test(tag, discarded_value_stays_the_users)
{
	struct arena *a = fake_arena("a");
	uint64_t live, fresh;

	scope_enter(a);
	push("w", ARENA_VALUE);
	live = served(512);
	pop();
	open_reload();
	fill(live, 1, 512);
	push("w", ARENA_VALUE);
	fresh = served(512);
	pop();
	fill(fresh, 2, 512);
	stage_discard(a);
	cr_assert_eq(fake_value(fake_find(a, "w#0")), 1);
	fill(fresh, 3, 512);
	commit(a);
	cr_assert_eq(fake_value(fake_find(a, "w#0")), 1);
	absorbed(fresh);
}

/* ---- failures ---- */

Test(tag, device_without_memory)
{
	struct arena *a = fake_arena("a");
	uint64_t live;

	scope_enter(a);
	push("w", ARENA_VALUE);
	fake_fail(1);
	not_served(4096);
	cr_assert_null(fake_find(a, "w#0"));
	served(4096);
	pop();
	cr_assert(finds("w#0", "no "));
	cr_assert_eq(findings_count(), 1);
	/* The next pass makes up for it. */
	look_from_now();
	push("w", ARENA_VALUE);
	live = served(4096);
	served(4096);
	pop();
	cr_assert_eq(fake_find(a, "w#0")->base, live);
	cr_assert_eq(findings_count(), 0);
	open_reload();
	push("w", ARENA_VALUE);
	fake_fail(1);
	not_served(4096);
	served(4096);
	pop();
	cr_assert(finds("w#0", "no device memory for a shadow"));
	cr_assert_eq(fake_find(a, "w#0")->shadow, 0);
}

/* ---- against a model ---- */

enum { TAGS = 3, CALLS = 4, HELD = 512 };

/* What the model knows of one call of one tag. */
struct modelled {
	uint64_t bytes, live;
	bool misfit; /* since the newest snapshot */
};
/* An address that is held; the same one may be held several times. */
static struct {
	uint64_t addr;
	bool live;
} held[HELD];
static unsigned held_count;

static void model_free_one(uint64_t *seed)
{
	unsigned i = (unsigned)seed_below(seed, held_count);
	uint64_t addr = held[i].addr;
	bool live = held[i].live, again = false;

	held[i] = held[--held_count];
	for (unsigned k = 0; k < held_count; k++)
		again |= held[k].addr == addr;
	absorbed(addr);
	if (live && !again)
		cr_assert_eq(tag_absorb(addr), TAG_REFUSED);
}

static void model_pass(struct modelled m[CALLS], bool value, uint64_t *seed)
{
	for (int c = 0; c < CALLS; c++) {
		bool wrong = seed_below(seed, 10) == 0 && m[c].live != 0;
		uint64_t addr;

		if (wrong) {
			not_served(m[c].bytes + 1);
			m[c].misfit = true;
			continue;
		}
		addr = served(m[c].bytes);
		if (m[c].live == 0)
			m[c].live = addr;
		else if (!value)
			cr_assert_eq(addr, m[c].live);
		else
			for (unsigned k = 0; k < held_count; k++)
				cr_assert_neq(addr, held[k].addr);
		fill(addr, c, m[c].bytes);
		held[held_count].live = addr == m[c].live;
		held[held_count++].addr = addr;
	}
}

static unsigned model_misfits(struct modelled m[TAGS][CALLS], bool forget)
{
	unsigned count = 0;

	for (int t = 0; t < TAGS; t++)
		for (int c = 0; c < CALLS; c++) {
			count += m[t][c].misfit;
			m[t][c].misfit &= !forget;
		}
	return count;
}

Test(tag, model)
{
	static const char *const names[TAGS] = { "s0", "s1", "v" };
	uint64_t seed = seed_start("tag model"), before;
	struct arena *a = fake_arena("a");
	struct modelled m[TAGS][CALLS] = { 0 };

	for (int t = 0; t < TAGS; t++)
		for (int c = 0; c < CALLS; c++)
			m[t][c].bytes = 1 + seed_below(&seed, 8192);
	scope_enter(a);
	open_reload();
	for (int step = 0; step < 3000; step++) {
		int t = (int)seed_below(&seed, TAGS);
		bool value = t == TAGS - 1;

		if (held_count > HELD - CALLS || (held_count && seed_below(&seed, 5))) {
			model_free_one(&seed);
			continue;
		}
		push(names[t], value ? ARENA_VALUE : ARENA_SCRATCH);
		model_pass(m[t], value, &seed);
		pop();
		cr_assert_eq(findings_count(), model_misfits(m, false));
		if (seed_below(&seed, 4) == 0) {
			look_from_now();
			model_misfits(m, true);
		}
		if (seed_below(&seed, 2))
			commit(a);
		else if (seed_below(&seed, 2))
			stage_discard(a);
	}
	close_reload();
	while (held_count)
		model_free_one(&seed);
	commit(a);
	before = load_relaxed(&fake.bytes_live);
	cr_assert_eq(before, storage_bytes());
}
