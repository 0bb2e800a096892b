/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host has no memory, at each step of a reload in turn (linked with --wrap, see meson.build).
 * A reload that cannot see everything must not pass; one with a fault must not pass the more;
 * nothing is half published, nothing is left behind.
 */
#include "world.h"

#include "arena/map.h"
#include "arena/slab.h"
#include "fake_device.h"

#define BYTES 512u
#define BOUND 0x7f0000000000ull

static uint64_t asked, fail_at; /* requests for memory; number of the one that fails */

static bool fails(void)
{
	return ++asked == fail_at;
}

void *__real_pages_get(size_t size_bytes);
void *__wrap_pages_get(size_t size_bytes);
void *__wrap_pages_get(size_t size_bytes)
{
	return fails() ? NULL : __real_pages_get(size_bytes);
}

int __real_pages_grow(void *array, uint32_t *cap, uint32_t need, size_t elem_bytes);
int __wrap_pages_grow(void *array, uint32_t *cap, uint32_t need, size_t elem_bytes);
int __wrap_pages_grow(void *array, uint32_t *cap, uint32_t need, size_t elem_bytes)
{
	/* Growing within the capacity asks nobody. */
	if (need > *cap && fails())
		return -ENOMEM;
	return __real_pages_grow(array, cap, need, elem_bytes);
}

void *__real_slab_get(struct slab *s);
void *__wrap_slab_get(struct slab *s);
void *__wrap_slab_get(struct slab *s)
{
	return fails() ? NULL : __real_slab_get(s);
}

int __real_map_put(struct map *m, uint64_t key, void *value);
int __wrap_map_put(struct map *m, uint64_t key, void *value);
int __wrap_map_put(struct map *m, uint64_t key, void *value)
{
	/* Overwriting needs no room. */
	if (!map_get(m, key) && fails())
		return -ENOMEM;
	return __real_map_put(m, key, value);
}

static struct arena *a[2];
static struct slot *w[2], *v[2], *bound;

static void start(void)
{
	world_start();
	fake_start();
	a[0] = fake_arena("m.layers.0");
	a[1] = fake_arena("m.layers.1");
	for (int l = 0; l < 2; l++) {
		w[l] = fake_slot(a[l], "w", ARENA_VALUE, BYTES);
		v[l] = fake_slot(a[l], "v", ARENA_VALUE, BYTES);
	}
	world_alloc(BOUND);
	world_alloc(BOUND + MIB);
	bound = fake_add(a[1], "b", ARENA_BOUND, 64, BOUND);
	world_exec(1, KERNEL(1, 1, BOUND));
	cr_assert_eq(cache_register("prefix", NULL, NULL), 0);
}

TestSuite(reload_memory, .init = start, .timeout = 60);

/* What a reload is made to suffer from, apart from memory. */
enum fault { NO_FAULT, NO_RECEIPT, MOVED, NO_FLUSH, NO_COMMIT, HALF_WAY };

struct run {
	int errors;	  /* calls that failed */
	int committed[2]; /* what the commits returned */
	bool opened;
	struct reload_outcome o;
};

/* As far as it goes; what fails is left out, as a careless program does. */
static void run(struct run *r, int value, enum fault fault)
{
	uint64_t id = 0;

	*r = (struct run){ .errors = 0 };
	r->opened = reload_begin(NULL, &id) == 0;
	r->errors += !r->opened;
	for (int l = 0; l < 2; l++) {
		scope_enter(a[l]);
		if (fault != NO_RECEIPT || l != 1)
			r->errors += reload_receive("w", 0, BYTES) != 0;
		scope_leave();
		r->errors += fake_stage(a[l], "w", BYTES, value) != 0;
		r->errors += fake_stage(a[l], "v", BYTES, value) != 0;
	}
	if (fault == MOVED)
		fake_bind(bound, BOUND + MIB);
	for (int l = 0; l < 2 && (fault != NO_COMMIT || l == 0); l++) {
		store_relaxed(&fake.half, true);
		fake_fail(fault == HALF_WAY && l == 1); /* the copy is the first call */
		r->committed[l] = reload_commit(a[l], FAKE_STREAM);
		fake_fail(0);
		r->errors += r->committed[l] != 0;
	}
	if (fault != NO_FLUSH)
		cache_flushed("prefix");
	if (r->opened)
		cr_assert_eq(reload_end(id, &r->o), 0);
	cr_assert_not(reload_open());
	if (fault == MOVED)
		fake_bind(bound, BOUND);
}

static bool one_value(int l)
{
	return fake_value(w[l]) == fake_value(v[l]) && fake_value(w[l]) >= 0;
}

/* A whole reload without any fault, which also ends whatever was left. */
static void recover(int value)
{
	struct run r;

	fail_at = 0;
	run(&r, value, NO_FAULT);
	cr_assert_eq(r.errors, 0, "%s", arena_message());
	cr_assert_eq(r.o.verdict, RELOAD_PASS);
	cr_assert_not(reload_unsafe());
	for (int l = 0; l < 2; l++)
		cr_assert(one_value(l) && fake_value(w[l]) == value);
	reload_outcome_free(&r.o);
}

static void check(const struct run *r, enum fault fault, bool failed)
{
	/* A put that failed leaves one value of two, as the program asked for: no matter here. */
	bool put_failed = r->errors != 0;

	for (int l = 0; l < 2; l++)
		cr_assert(one_value(l) || (put_failed && r->committed[l] == 0) ||
				  r->committed[l] == ARENA_E_UNSAFE,
			  "layer %d", l);
	if (!r->opened)
		return;
	cr_assert(fault == NO_FAULT || r->o.verdict != RELOAD_PASS, "fault %d passed", fault);
	cr_assert(failed || fault != NO_FAULT || r->o.verdict == RELOAD_PASS);
	if (r->committed[0] != 0 || r->committed[1] != 0)
		cr_assert_neq(r->o.verdict, RELOAD_PASS);
}

static void sweep(enum fault fault)
{
	uint64_t device_bytes;
	unsigned step = 1;
	bool failed;
	struct run r;

	for (int value = 1; value < 4; value++)
		recover(value); /* learns the manifest, warms everything */
	device_bytes = load_relaxed(&fake.bytes_live);
	do {
		asked = 0;
		fail_at = step;
		run(&r, 100 + (int)(step % 100), fault);
		failed = asked >= step;
		check(&r, fault, failed);
		/* What was staged is gone, or a later commit would publish it. */
		for (int l = 0; l < 2 && r.opened; l++)
			cr_assert(!w[l]->shadow && !v[l]->shadow, "step %u", step);
		reload_outcome_free(&r.o);
		recover((int)(step % 100));
		cr_assert_eq(load_relaxed(&fake.bytes_live), device_bytes);
	} while (failed && ++step);
	fprintf(stderr, "# fault %d: each of %u requests has failed\n", fault, step - 1);
	cr_assert_geq(step, 10);
}

Test(reload_memory, sound)
{
	sweep(NO_FAULT);
}

Test(reload_memory, missing_receipt)
{
	sweep(NO_RECEIPT);
}

Test(reload_memory, moved_slot)
{
	sweep(MOVED);
}

Test(reload_memory, stale_cache)
{
	sweep(NO_FLUSH);
}

Test(reload_memory, half_published)
{
	sweep(HALF_WAY);
}

Test(reload_memory, uncommitted_layer)
{
	sweep(NO_COMMIT);
}
