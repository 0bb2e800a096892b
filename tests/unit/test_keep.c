/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory under a tag, call by call, with a driver that always succeeds played by the test:
 * what is forwarded, absorbed, refused, handed out again, and what has to give way. Each test has a
 * process of its own.
 */
#include <criterion/criterion.h>

#include "arena/keep.h"
#include "fake_device.h"

#define M      ((uint64_t)2 << 20)
#define BASE   ((uint64_t)0x7000000000)
#define HANDLE ((uint64_t)0xa110c)
#define PHYSICAL                                     \
	{                                            \
		.bytes = M, .type = 1, .location = 1 \
	}

static struct arena *a;

static void start(void)
{
	fake_start();
	a = fake_arena("a");
	scope_enter(a);
}
TestSuite(keep, .init = start);

static void push(void)
{
	cr_assert_eq(tag_push("v", ARENA_SCRATCH), 0, "%s", arena_message());
}

static struct arena_snapshot *since; /* findings are newer than this one */

static uint32_t findings_count(const char *word)
{
	struct slot_findings f = { 0 };
	uint32_t count = 0;
	char text[512];

	cr_assert_eq(tag_verify(since, NULL, &f), 0);
	for (uint32_t i = 0; i < f.count; i++) {
		slot_finding_text(&f.list[i], text, sizeof(text));
		count += strstr(text, word) != NULL;
	}
	slot_findings_free(&f);
	return count;
}

/* ---- calls, with the driver's part ---- */

static bool reserve(uint64_t bytes, uint64_t driver_gives, uint64_t *base)
{
	struct keep_ticket t;

	if (keep_reserve(bytes, 0, base, &t) == KEEP_ABSORBED)
		return true;
	*base = driver_gives;
	ledger_open(
		&(struct range_desc){ .base = *base, .size_bytes = bytes, .kind = RANGE_RESERVED });
	keep_reserved(&t, *base, bytes);
	return false;
}

static bool create(uint64_t bytes, uint64_t driver_gives, uint64_t *handle)
{
	struct keep_physical p = PHYSICAL;
	struct keep_ticket t;

	p.bytes = bytes;
	if (keep_create(&p, handle, &t) == KEEP_ABSORBED)
		return true;
	*handle = driver_gives;
	keep_created(&t, &p, *handle);
	return false;
}

static enum keep_answer map(uint64_t base, uint64_t bytes, uint64_t handle)
{
	const struct keep_mapping m = { base, bytes, 0, handle };
	enum keep_answer answer = keep_map(&m);
	struct keep_mapping gone;

	while (answer == KEEP_GIVE_WAY && keep_give_way(&m, &gone)) {
		struct unmap_batch b = { 0 };

		ledger_unmap_begin(gone.base, gone.bytes, 0, &b);
		ledger_unmap_end(&b, true);
	}
	if (answer == KEEP_FORWARD || answer == KEEP_GIVE_WAY) {
		ledger_map(&(struct range_desc){
			.base = base, .size_bytes = bytes, .kind = RANGE_MAPPED });
		keep_mapped(&m);
	}
	return answer;
}

/* One allocation as vLLM's sleep mode does it. */
static bool allocate(uint64_t bytes, uint64_t *base, uint64_t *handle)
{
	bool reserved = reserve(bytes, BASE, base), created = create(bytes, HANDLE, handle);

	return (map(*base, bytes, *handle) == KEEP_ABSORBED) & reserved & created;
}

static void let_go(uint64_t base, uint64_t bytes, uint64_t handle)
{
	cr_assert_eq(keep_unmap(base, bytes), KEEP_ABSORBED);
	cr_assert_eq(keep_release(handle), KEEP_ABSORBED);
	cr_assert_eq(keep_address_free(base, bytes), KEEP_ABSORBED);
}

static void first_pass(void)
{
	uint64_t base, handle;

	push();
	cr_assert(!allocate(M, &base, &handle));
	tag_pop();
	let_go(base, M, handle);
}

/* ---- the story ---- */

Test(keep, hands_out_again)
{
	uint64_t base, handle;
	struct slot *s;

	first_pass();
	s = fake_find(a, "v#0");
	cr_assert_not_null(s);
	cr_assert_eq(s->base, BASE);
	cr_assert_eq(s->spec.bytes, M);
	cr_assert_neq(s->generation, 0);
	for (int pass = 0; pass < 3; pass++) {
		push();
		cr_assert(allocate(M, &base, &handle));
		tag_pop();
		cr_assert_eq(base, BASE);
		cr_assert_eq(handle, HANDLE);
		cr_assert_eq(s->base, BASE);
		let_go(base, M, handle);
	}
	cr_assert_eq(findings_count(""), 0);
}

Test(keep, released_right_after_mapping)
{
	uint64_t base, handle;

	push();
	allocate(M, &base, &handle);
	cr_assert_eq(keep_release(handle), KEEP_ABSORBED);
	tag_pop();
	cr_assert_eq(keep_unmap(base, M), KEEP_ABSORBED);
	cr_assert_eq(keep_address_free(base, M), KEEP_ABSORBED);
	push();
	cr_assert(allocate(M, &base, &handle));
	tag_pop();
	cr_assert_eq(findings_count(""), 0);
}

Test(keep, is_let_go_once)
{
	first_pass();
	cr_assert_eq(keep_unmap(BASE, M), KEEP_REFUSED);
	cr_assert_eq(keep_release(HANDLE), KEEP_REFUSED);
	cr_assert_eq(keep_address_free(BASE, M), KEEP_REFUSED);
	/* Mapping what was released. */
	cr_assert_eq(keep_map(&(struct keep_mapping){ BASE, M, 0, HANDLE }), KEEP_REFUSED);
}

Test(keep, leaves_others_alone)
{
	first_pass();
	cr_assert_eq(keep_unmap(BASE + 16 * M, M), KEEP_FORWARD);
	cr_assert_eq(keep_release(0x1), KEEP_FORWARD);
	cr_assert_eq(keep_address_free(BASE + 16 * M, M), KEEP_FORWARD);
	cr_assert_eq(keep_map(&(struct keep_mapping){ BASE + 16 * M, M, 0, 1 }), KEEP_FORWARD);
}

Test(keep, address_is_not_freed_while_mapped)
{
	uint64_t base, handle;

	push();
	allocate(M, &base, &handle);
	tag_pop();
	/* The driver's own refusal. */
	cr_assert_eq(keep_address_free(base, M), KEEP_FORWARD);
	cr_assert_eq(keep_address_free(base, 2 * M), KEEP_FORWARD);
	cr_assert_eq(keep_unmap(base, M / 2), KEEP_FORWARD);
	let_go(base, M, handle);
}

Test(keep, unmaps_several_at_once)
{
	uint64_t base, one, two;

	push();
	reserve(2 * M, BASE, &base);
	create(M, HANDLE, &one);
	create(M, HANDLE + 1, &two);
	map(base, M, one);
	map(base + M, M, two);
	tag_pop();
	cr_assert_eq(fake_find(a, "v#1")->base, base + M);
	cr_assert_eq(keep_unmap(base, 2 * M), KEEP_ABSORBED);
	cr_assert_eq(keep_unmap(base, M), KEEP_REFUSED);
	cr_assert_eq(keep_address_free(base, 2 * M), KEEP_ABSORBED);
	cr_assert_eq(keep_release(one), KEEP_ABSORBED);
	cr_assert_eq(keep_release(two), KEEP_ABSORBED);
	push();
	cr_assert(reserve(2 * M, 0, &base));
	cr_assert(create(M, 0, &one));
	cr_assert(create(M, 0, &two));
	cr_assert_eq(map(base, M, one), KEEP_ABSORBED);
	cr_assert_eq(map(base + M, M, two), KEEP_ABSORBED);
	tag_pop();
	cr_assert_eq(findings_count(""), 0);
}

Test(keep, retained_handle_is_the_drivers)
{
	uint64_t base, handle;

	push();
	allocate(M, &base, &handle);
	tag_pop();
	keep_retained(handle);
	keep_retained(0x1);
	cr_assert_eq(keep_release(handle), KEEP_FORWARD);
	cr_assert_eq(keep_release(handle), KEEP_ABSORBED);
	cr_assert_eq(keep_release(handle), KEEP_REFUSED);
}

/* ---- what does not fit ---- */

Test(keep, old_owner_still_there)
{
	uint64_t base, handle, other;

	push();
	allocate(M, &base, &handle);
	tag_pop();
	push();
	cr_assert(!reserve(M, BASE + 16 * M, &other));
	cr_assert(!create(M, HANDLE + 1, &handle));
	map(other, M, handle);
	tag_pop();
	cr_assert_eq(other, BASE + 16 * M);
	cr_assert_eq(findings_count("its old owner still has"), 2);
	cr_assert_eq(findings_count("nothing was reserved"), 1);
	/* What did not fit is the application's alone. */
	cr_assert_eq(keep_unmap(other, M), KEEP_FORWARD);
	cr_assert_eq(keep_release(handle), KEEP_FORWARD);
	let_go(base, M, HANDLE);
}

Test(keep, physical_memory_in_use_is_not_handed_out)
{
	uint64_t base, handle, other;

	push();
	allocate(M, &base, &handle);
	tag_pop();
	/* Its owner needs no handle any more, but he has it mapped. */
	cr_assert_eq(keep_release(handle), KEEP_ABSORBED);
	push();
	cr_assert(!create(M, HANDLE + 1, &other));
	tag_pop();
	cr_assert_eq(findings_count("still has the physical memory"), 1);
}

Test(keep, over_under_and_mis_sized)
{
	uint64_t base, handle;

	first_pass();
	snapshot_take(NULL, &since);
	push();
	cr_assert(!reserve(2 * M, BASE + 16 * M, &base));
	cr_assert(!create(2 * M, HANDLE + 1, &handle));
	tag_pop();
	cr_assert_eq(findings_count("reserved another size"), 1);
	cr_assert_eq(findings_count("created other physical memory"), 1);
	cr_assert_eq(findings_count("0 allocations, 1 in the first pass"), 1);
	snapshot_take(NULL, &since);
	push();
	cr_assert(allocate(M, &base, &handle));
	cr_assert(!reserve(M, BASE + 16 * M, &base));
	cr_assert(!create(M, HANDLE + 1, &handle));
	tag_pop();
	cr_assert_eq(findings_count("reserved less often"), 1);
	cr_assert_eq(findings_count("created less often"), 1);
	cr_assert_eq(findings_count(""), 2);
}

Test(keep, not_under_a_value_tag)
{
	uint64_t base, handle;

	cr_assert_eq(tag_push("w", ARENA_VALUE), 0);
	cr_assert(!allocate(M, &base, &handle));
	tag_pop();
	cr_assert_eq(findings_count("is not staged"), 1);
	cr_assert_eq(load_relaxed(&keep_count), 0);
	cr_assert_null(fake_find(a, "w#0"));
}

/* Sleep and wake: other physical memory at the same address, outside of the tag. */
Test(keep, gives_way)
{
	const struct keep_mapping woken = { BASE, M, 0, HANDLE + 5 };
	struct keep_mapping gone;
	uint64_t base, handle;

	push();
	allocate(M, &base, &handle);
	tag_pop();
	cr_assert_eq(keep_unmap(base, M), KEEP_ABSORBED);
	cr_assert_eq(keep_release(handle), KEEP_ABSORBED);
	cr_assert_eq(keep_map(&woken), KEEP_GIVE_WAY);
	cr_assert(keep_give_way(&woken, &gone));
	cr_assert_eq(gone.base, BASE);
	cr_assert_eq(gone.bytes, M);
	cr_assert_eq(gone.handle, HANDLE); /* nobody has it any more */
	cr_assert(!keep_give_way(&woken, &gone));
	keep_mapped(&woken);
	cr_assert_eq(keep_release(HANDLE), KEEP_FORWARD);
	cr_assert_eq(keep_map(&woken), KEEP_FORWARD); /* the driver refuses */
	/* The next pass gets the address, and physical memory from the driver. */
	cr_assert_eq(keep_unmap(BASE, M), KEEP_ABSORBED);
	cr_assert_eq(keep_address_free(BASE, M), KEEP_ABSORBED);
	push();
	cr_assert(reserve(M, 0, &base));
	cr_assert(!create(M, HANDLE + 6, &handle));
	cr_assert_eq(map(base, M, handle), KEEP_GIVE_WAY);
	tag_pop();
	cr_assert_eq(findings_count(""), 0);
	let_go(base, M, handle);
	push();
	cr_assert(allocate(M, &base, &handle));
	tag_pop();
	cr_assert_eq(handle, HANDLE + 6);
}

Test(keep, handle_in_use_is_not_released)
{
	const struct keep_mapping other = { BASE, M, 0, HANDLE + 5 };
	struct keep_mapping gone;
	uint64_t base, handle;

	push();
	allocate(M, &base, &handle);
	tag_pop();
	cr_assert_eq(keep_unmap(base, M), KEEP_ABSORBED);
	cr_assert_eq(keep_map(&other), KEEP_GIVE_WAY);
	cr_assert(keep_give_way(&other, &gone));
	cr_assert_eq(gone.handle, 0);
	cr_assert_eq(keep_release(handle), KEEP_ABSORBED);
}

Test(keep, forgets_what_the_driver_did)
{
	uint64_t base, handle;

	push();
	allocate(M, &base, &handle);
	tag_pop();
	keep_unmapped(base, M);
	cr_assert_eq(keep_unmap(base, M), KEEP_FORWARD);
	keep_address_freed(base);
	cr_assert_eq(keep_address_free(base, M), KEEP_FORWARD);
	cr_assert_eq(keep_release(handle), KEEP_ABSORBED);
	cr_assert_eq(load_relaxed(&keep_count), 1);
}
