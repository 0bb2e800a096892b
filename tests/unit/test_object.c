/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects: made once, also by many threads at the same time, with what was allocated meanwhile.
 * Each test has a process of its own.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <time.h>

#include "arena/object.h"
#include "fake_device.h"

#define THREADS 8

TestSuite(object, .init = fake_start);

/* ---- factories ---- */

static _Atomic int made;
static struct arena *layer;
static uint64_t next_base = 0x10000000;

static uint64_t alloc(uint64_t bytes)
{
	uint64_t base = next_base;

	next_base += 1 << 20;
	ledger_open(
		&(struct range_desc){ .base = base, .size_bytes = bytes, .kind = RANGE_DEVICE });
	return base;
}

static void release(uint64_t base)
{
	ledger_close_end(ledger_close_begin(base, 0), true);
}

/* Allocates as many ranges as *ctx says, and one more that it gives back. */
static int make(void *ctx, void **object)
{
	uint64_t scratch = alloc(64);

	for (int i = 0; i < *(int *)ctx; i++)
		alloc(4096);
	release(scratch);
	*object = (void *)(uintptr_t)(0x1000 + add_relaxed(&made, 1));
	return 0;
}

static int get(const char *name, const char *type, arena_factory_fn factory, void *ctx,
	       void **object)
{
	return object_get(&(struct object_request){ fake_arena("a"), name, type, factory, ctx },
			  object);
}

static struct slot *slot(const char *name)
{
	return fake_find(fake_arena("a"), name);
}

/* ---- once ---- */

Test(object, is_made_once_with_its_ranges)
{
	void *one = NULL, *two = NULL;
	int count = 2;
	struct slot *s;

	cr_assert_eq(get("o", "wrapper", make, &count, &one), 0);
	alloc(4096); /* not its own */
	cr_assert_eq(get("o", "wrapper", make, &count, &two), 0);
	cr_assert_eq(one, two);
	cr_assert_eq(load_relaxed(&made), 1);
	s = slot("o");
	cr_assert_eq(s->kind, ARENA_OBJECT);
	cr_assert_eq(s->base, (uint64_t)(uintptr_t)one);
	cr_assert_eq(s->ranges_count, 2);
	cr_assert_eq(s->ranges[0].size_bytes, 4096);
	cr_assert_neq(s->ranges[0].generation, 0);
	cr_assert_neq(s->ranges[0].base, s->ranges[1].base);
	cr_assert_null(ledger_opened);
}

Test(object, without_ranges)
{
	void *one = NULL;
	int none = 0;

	cr_assert_eq(get("o", "plan", make, &none, &one), 0);
	cr_assert_eq(slot("o")->ranges_count, 0);
}

Test(object, is_made_again_after_unbind)
{
	void *one = NULL, *two = NULL;
	int count = 1;
	uint64_t identity;
	struct slot *s;

	cr_assert_eq(get("o", "wrapper", make, &count, &one), 0);
	s = slot("o");
	identity = s->object;
	registry_lock();
	binding_clear(s);
	registry_unlock();
	count = 3;
	cr_assert_eq(get("o", "wrapper", make, &count, &two), 0);
	cr_assert_neq(one, two);
	cr_assert_eq(slot("o"), s);
	cr_assert_neq(s->object, identity);
	cr_assert_eq(s->ranges_count, 3);
}

static int reallocate(void *ctx, void **object)
{
	release(alloc(4096));
	next_base -= 1 << 20;
	alloc(4096);
	*object = ctx;
	return 0;
}

Test(object, keeps_the_newer_of_two_at_one_address)
{
	struct range_view v;
	void *o = NULL;
	int ctx;

	cr_assert_eq(get("o", "wrapper", reallocate, &ctx, &o), 0);
	cr_assert_eq(slot("o")->ranges_count, 1);
	cr_assert(ledger_find(slot("o")->ranges[0].base, &v));
	cr_assert_eq(slot("o")->ranges[0].generation, v.generation);
}

static int map_some(void *ctx, void **object)
{
	ledger_open(&(struct range_desc){
		.base = 0x40000000, .size_bytes = 1 << 22, .kind = RANGE_RESERVED });
	ledger_map(&(struct range_desc){
		.base = 0x40000000, .size_bytes = 1 << 21, .kind = RANGE_MAPPED });
	*object = ctx;
	return 0;
}

Test(object, knows_mappings)
{
	struct range_view v;
	void *o = NULL;
	int ctx;

	cr_assert_eq(get("o", "wrapper", map_some, &ctx, &o), 0);
	cr_assert_eq(o, &ctx);
	cr_assert_eq(slot("o")->ranges_count, 1);
	cr_assert(ledger_find(0x40000000, &v));
	cr_assert_eq(slot("o")->ranges[0].size_bytes, 1 << 21);
	cr_assert_eq(slot("o")->ranges[0].generation, v.generation);
}

/* ---- refusals ---- */

static int fail(void *ctx, void **object)
{
	alloc(64);
	*object = ctx;
	return *(int *)ctx;
}

static int set_nothing(void *ctx, void **object)
{
	return 0;
}

Test(object, that_fails_leaves_nothing)
{
	void *o = (void *)&made;
	int code = 4711;

	cr_assert_eq(get("o", "wrapper", fail, &code, &o), 4711);
	cr_assert_eq(o, (void *)&made);
	cr_assert_null(slot("o"));
	cr_assert_null(ledger_opened);
	cr_assert_eq(get("o", "wrapper", set_nothing, NULL, &o), ARENA_E_INVALID);
	cr_assert_not_null(strstr(arena_message(), "a/o"));
	code = 0;
	cr_assert_eq(get("o", "wrapper", fail, &code, &o), 0);
	cr_assert_eq(o, &code);
}

Test(object, of_another_type_or_kind)
{
	int count = 0;
	void *o = NULL;

	cr_assert_eq(get("o", "wrapper", make, &count, &o), 0);
	cr_assert_eq(get("o", "plan", make, &count, &o), ARENA_E_SPEC);
	cr_assert_not_null(strstr(arena_message(), "it is a wrapper, asked for as a plan"));
	fake_slot(fake_arena("a"), "s", ARENA_SCRATCH, 64);
	cr_assert_eq(get("s", "wrapper", make, &count, &o), ARENA_E_SPEC);
	cr_assert_eq(load_relaxed(&made), 1);
}

static int ask_for_itself(void *ctx, void **object)
{
	*object = ctx;
	return get("o", "wrapper", ask_for_itself, ctx, object);
}

Test(object, that_asks_for_itself)
{
	void *o = NULL;

	cr_assert_eq(get("o", "wrapper", ask_for_itself, &o, &o), ARENA_E_BUSY);
	cr_assert_null(slot("o"));
}

/* ---- inside a factory ---- */

static int make_outer(void *ctx, void **object)
{
	int inner_count = 3, err;
	uint64_t addr;
	void *inner;

	alloc(4096);
	err = get("inner", "wrapper", make, &inner_count, &inner);
	scope_enter(layer);
	if (tag_push("ws", ARENA_SCRATCH) != 0 ||
	    !tag_serve(&(struct tag_request){ .bytes = 512, .align = 1 }, &addr))
		err = -1;
	tag_pop();
	scope_leave();
	alloc(4096);
	*object = ctx;
	return err;
}

Test(object, nests_and_may_use_slots)
{
	void *o = NULL;

	layer = fake_arena("layer");
	cr_assert_eq(get("outer", "engine", make_outer, &o, &o), 0);
	/* Its two; not the inner object's, and not the chunk of the slot. */
	cr_assert_eq(slot("outer")->ranges_count, 2);
	cr_assert_eq(slot("inner")->ranges_count, 3);
}

/* ---- threads ---- */

static int make_slowly(void *ctx, void **object)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	*object = (void *)(uintptr_t)(0x1000 + add_relaxed(&made, 1));
	return 0;
}

static void *worker(void *arg)
{
	void *o = NULL;

	return get("o", "wrapper", make_slowly, NULL, &o) == 0 ? o : NULL;
}

Test(object, is_the_same_for_all_threads)
{
	pthread_t threads[THREADS];
	void *objects[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, worker, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], &objects[i]);
	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(objects[i], (void *)0x1000);
	cr_assert_eq(load_relaxed(&made), 1);
}
