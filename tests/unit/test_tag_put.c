/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A put and a tag that want the same slot at the same time: each test lets one of them run while
 * the other is in the middle of a device call. Each test has a process of its own.
 */
#include "tags.h"

#include <pthread.h>

#define BYTES 512u
#define LARGE (1u << 20) /* storage of its own, so that the device is asked */

static struct arena *a;

static void start(void)
{
	fake_start();
	a = fake_arena("a");
	scope_enter(a);
}
TestSuite(tag_put, .init = start);

/* ---- words ---- */

/* What another thread does in the next call of the device. */
static void *(*meanwhile)(void *);

static void interrupt(void)
{
	void *(*run)(void *) = meanwhile;
	pthread_t thread;

	meanwhile = NULL;
	if (run == NULL || pthread_create(&thread, NULL, run, NULL) != 0)
		return;
	pthread_join(thread, NULL);
}

static int alloc_interrupted(uint64_t bytes, int32_t ordinal, uint64_t *addr)
{
	interrupt();
	return fake_alloc(bytes, ordinal, addr);
}

static int put_interrupted(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t stream)
{
	interrupt();
	return fake_put(dst, src, bytes, stream);
}

static bool was_served;
static int was_put;

/* A pass of one allocation, which its user fills. In whatever thread: no assertions. */
static bool pass(uint64_t bytes, int value)
{
	uint64_t addr;
	bool ok;

	if (tag_push("t", ARENA_VALUE) != 0)
		return false;
	ok = serve(bytes, &addr);
	if (ok)
		memset((void *)(uintptr_t)addr, value, bytes);
	ok = ok && tag_absorb(addr) == TAG_ABSORBED;
	return tag_pop() == 0 && ok;
}

static void *same_pass(void *arg)
{
	(void)arg;
	was_served = scope_enter(a) == 0 && pass(BYTES, 5);
	return NULL;
}

static void *other_pass(void *arg)
{
	(void)arg;
	was_served = scope_enter(a) == 0 && pass(2 * (uint64_t)BYTES, 5);
	return NULL;
}

static void *put_directly(void *arg)
{
	(void)arg;
	was_put = fake_give(a, "t#0", BYTES, 9, true);
	return NULL;
}

/* A reload after one that failed, in which a pass has made "t#0". */
static struct slot *slot_in_vain(void)
{
	open_reload();
	cr_assert(pass(BYTES, 1));
	close_reload();
	open_reload();
	return fake_find(a, "t#0");
}

/* ---- a slot that a pass may make anew ---- */

static void put_meets_another_size(bool direct)
{
	struct slot *s = slot_in_vain();
	uint64_t base = s->base;

	device.alloc = alloc_interrupted; /* of the shadow's block */
	device.put = put_interrupted;
	meanwhile = other_pass;
	cr_assert_eq(fake_give(a, "t#0", BYTES, 9, direct), 0, "%s", arena_message());
	cr_assert_null(meanwhile);
	cr_assert(!was_served);
	cr_assert(finds("t#0", "the slot has another size"));
	cr_assert_eq(s->spec.bytes, BYTES);
	cr_assert_eq(s->base, base);
	/* Who has put it was told its address, so it stays. */
	cr_assert(!pass(2 * (uint64_t)BYTES, 5));
	cr_assert_eq(s->base, base);
}

Test(tag_put, slot_that_is_being_staged_is_not_made_anew)
{
	put_meets_another_size(false);
}

Test(tag_put, slot_that_is_being_put_directly_is_not_made_anew)
{
	put_meets_another_size(true);
}

Test(tag_put, slot_has_its_storage_until_it_is_made_anew)
{
	struct slot *s = slot_in_vain();

	device.alloc = alloc_interrupted;
	meanwhile = put_directly;
	was_put = 1;
	cr_assert(!pass(LARGE, 5));
	cr_assert_eq(was_put, 0);
	cr_assert(finds("t#0", "somebody else made the slot at the same time"));
	cr_assert_eq(s->spec.bytes, BYTES);
	cr_assert_eq(fake_value(s), 9);
}

Test(tag_put, slot_stays_when_there_is_no_storage_to_make_it_anew)
{
	struct slot *s = slot_in_vain();
	uint64_t base = s->base;

	fake_fail(1);
	cr_assert(!pass(LARGE, 5));
	cr_assert_eq(s->base, base);
	cr_assert_eq(s->spec.bytes, BYTES);
	cr_assert(pass(LARGE, 5));
	cr_assert_neq(s->base, base);
	cr_assert_eq(s->spec.bytes, LARGE);
}

/* Between the look-up of the slot and the write. */
static int put_too_late(struct slot *s, bool direct)
{
	uint64_t base = s->base, id;
	char source[BYTES];
	int err;

	memset(source, 9, sizeof(source));
	cr_assert_eq(reload_enter_put(&id), 0);
	cr_assert(pass(2 * (uint64_t)BYTES, 5));
	err = reload_put(s, base, (uint64_t)(uintptr_t)source, direct, FAKE_STREAM);
	reload_leave_put();
	cr_assert_eq(s->shadow, 0);
	cr_assert_eq(fake_value(s), 5);
	return err;
}

Test(tag_put, staged_put_into_a_slot_that_was_made_anew)
{
	cr_assert_eq(put_too_late(slot_in_vain(), false), ARENA_E_BUSY);
}

Test(tag_put, direct_put_into_a_slot_that_was_made_anew)
{
	cr_assert_eq(put_too_late(slot_in_vain(), true), ARENA_E_BUSY);
}

Test(tag_put, put_outside_of_reloads_into_a_slot_that_was_made_anew)
{
	struct slot *s = slot_in_vain();

	close_reload();
	cr_assert_eq(put_too_late(s, true), ARENA_E_BUSY);
	cr_assert_str_eq(arena_message(),
			 "slot t#0 of a: it has got other storage meanwhile; put it again");
	cr_assert_eq(fake_give(a, "t#0", 2 * BYTES, 9, true), 0, "%s", arena_message());
	cr_assert_eq(fake_value(s), 9);
}

/* ---- a slot of an earlier pass ---- */

Test(tag_put, direct_put_keeps_what_a_tag_is_served_meanwhile)
{
	struct slot *s;

	cr_assert(pass(BYTES, 1));
	s = fake_find(a, "t#0");
	open_reload();
	device.put = put_interrupted;
	meanwhile = same_pass;
	cr_assert_eq(fake_give(a, "t#0", BYTES, 9, true), 0, "%s", arena_message());
	cr_assert(was_served);
	cr_assert_eq(fake_value(s), 9);
	cr_assert_eq(reload_commit(a, FAKE_STREAM), 0, "%s", arena_message());
	cr_assert_eq(fake_value(s), 5);
}
