/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects: made once, also by many threads at the same time, with what was allocated meanwhile.
 * Each test has a process of its own.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

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

/* ---- rings ---- */

#define RING_MAX 3

/* Each thread makes an object whose factory asks for that of the next thread. */
static struct {
	pthread_barrier_t all_make;
	int threads;
	_Atomic int busy;
	char why[512]; /* of the one that was busy */
} ring;

static const char *const ring_names[RING_MAX] = { "o0", "o1", "o2" };

static int make_plain(void *ctx, void **object)
{
	*object = ctx;
	return 0;
}

static int make_with_the_next(void *ctx, void **object)
{
	int next = (*(int *)ctx + 1) % ring.threads, err;
	void *other;

	pthread_barrier_wait(&ring.all_make);
	err = get(ring_names[next], "wrapper", make_plain, ctx, &other);
	if (err == ARENA_E_BUSY && add_relaxed(&ring.busy, 1) == 0)
		snprintf(ring.why, sizeof(ring.why), "%s", arena_message());
	/* It goes on without. */
	*object = ctx;
	return err == ARENA_E_BUSY ? 0 : err;
}

static void *ring_thread(void *arg)
{
	void *o;

	return get(ring_names[*(int *)arg], "wrapper", make_with_the_next, arg, &o) == 0 ? o : NULL;
}

static void ring_of_threads(int count)
{
	static int numbers[RING_MAX] = { 0, 1, 2 };
	pthread_t threads[RING_MAX];
	int named = 0;
	void *o;

	ring.threads = count;
	pthread_barrier_init(&ring.all_make, NULL, (unsigned)count);
	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, ring_thread, &numbers[i]);
	for (int i = 0; i < count; i++) {
		pthread_join(threads[i], &o);
		cr_assert_eq(o, &numbers[i]);
	}
	cr_assert_eq(load_relaxed(&ring.busy), 1);
	for (int i = 0; i < count; i++) {
		char name[16];

		snprintf(name, sizeof(name), "object a/%s", ring_names[i]);
		named += strstr(ring.why, name) != NULL;
	}
	cr_assert_eq(named, 2, "%s", ring.why);
}

Test(object, two_that_need_each_other, .timeout = 60)
{
	ring_of_threads(2);
}

Test(object, three_in_a_ring, .timeout = 60)
{
	ring_of_threads(3);
}

static int ask_back(void *ctx, void **object)
{
	*object = ctx;
	return get("o", "wrapper", ask_back, ctx, object);
}

static int ask_for_another(void *ctx, void **object)
{
	*object = ctx;
	return get("inner", "wrapper", ask_back, ctx, object);
}

Test(object, that_asks_for_itself_by_another)
{
	void *o = NULL;

	cr_assert_eq(get("o", "wrapper", ask_for_another, &o, &o), ARENA_E_BUSY);
	cr_assert_null(slot("o"));
	cr_assert_null(slot("inner"));
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

/* ---- threads that end in a factory ---- */

static int leave(void *ctx, void **object)
{
	alloc(4096);
	pthread_exit(ctx);
	return 0;
}

static int leave_nested(void *ctx, void **object)
{
	return get("inner", "wrapper", leave, ctx, object);
}

static int wait_for_ever(void *ctx, void **object)
{
	pthread_barrier_wait(ctx);
	while (true)
		pause();
	return 0;
}

static void *thread_leaves(void *arg)
{
	void *o;

	get("o", "wrapper", arg ? leave_nested : leave, arg, &o);
	return &made; /* not reached */
}

static void *thread_waits(void *barrier)
{
	void *o;

	get("o", "wrapper", wait_for_ever, barrier, &o);
	return NULL;
}

static void is_made_by_the_next(const char *name)
{
	int count = 1;
	void *o = NULL;

	cr_assert_null(slot(name));
	cr_assert_eq(get(name, "wrapper", make, &count, &o), 0, "%s", arena_message());
	cr_assert_eq(slot(name)->ranges_count, 1);
}

Test(object, factory_that_leaves_with_its_thread, .timeout = 60)
{
	pthread_t thread;
	void *left;

	for (int nested = 0; nested < 2; nested++) {
		cr_assert_eq(pthread_create(&thread, NULL, thread_leaves,
					    nested ? (void *)"nested" : NULL),
			     0);
		pthread_join(thread, &left);
		cr_assert_neq(left, &made);
		cr_assert_null(slot("o"));
	}
	is_made_by_the_next("o");
	is_made_by_the_next("inner");
}

Test(object, factory_that_is_cancelled, .timeout = 60)
{
	pthread_barrier_t runs;
	pthread_t thread, waiter;
	void *o;

#ifdef __SANITIZE_ADDRESS__
	/* A cancelled thread leaves its marks on the stack that the next one gets. */
	cr_skip_test("AddressSanitizer takes the stack of a cancelled thread for bad");
#endif
	pthread_barrier_init(&runs, NULL, 2);
	pthread_create(&thread, NULL, thread_waits, &runs);
	pthread_barrier_wait(&runs);
	/* Who waits for it is not cancelled in between. */
	pthread_create(&waiter, NULL, worker, NULL);
	pthread_cancel(waiter);
	pthread_cancel(thread);
	pthread_join(thread, &o);
	cr_assert_eq(o, PTHREAD_CANCELED);
	pthread_join(waiter, &o);
	cr_assert_eq(get("o", "wrapper", make_slowly, NULL, &o), 0, "%s", arena_message());
}
