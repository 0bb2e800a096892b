/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads on one ledger, with a printed seed (ARENA_TEST_SEED). A plain program, so that it runs
 * under TSan as it is. Argument: rounds per thread.
 *
 * Fixed ranges live during the whole run, between them and in one granule with them others come
 * and go: a fixed range must be found by every look-up. Each thread has addresses of its own
 * where it knows what lives; pins and holders are shared by all. At the end, memory whose free was
 * not seen is found dead although others come and go above it.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/slab.h"
#include "tests/unit/doubles.h"
#include "tests/unit/seed.h"

#define THREADS	     16
#define FIXED	     64
#define BASE	     ((uint64_t)0x7f0000000000)
#define SHARED	     ((uint64_t)0x100000000000) /* where all threads hold and free */
#define FIXED_STRIDE ((uint64_t)40 << 10)	/* crowds at several levels */
#define SHARED_COUNT 32
#define PAGE	     ((uint64_t)2 << 20)
#define LOST	     ((uint64_t)0x300000000000) /* frees here are not seen */

struct worker {
	pthread_t thread;
	unsigned number;
	uint64_t seed;
};

static unsigned rounds = 2000;
static struct range *fixed[FIXED];
static struct exec execs[THREADS];
static pthread_mutex_t shared_locks[SHARED_COUNT];

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static struct range *open_at(enum range_kind kind, uint64_t base, uint64_t size_bytes)
{
	struct range_desc d = {
		.base = base, .size_bytes = size_bytes, .kind = kind, .context = 1, .scope = base
	};
	struct range *r = ledger_open(&d);

	if (r == NULL)
		fail("no memory for %#lx", base);
	return r;
}

static void close_at(uint64_t base, bool done)
{
	struct range *r = ledger_close_begin(base, 0);

	if (r == NULL)
		fail("not found: %#lx", base);
	ledger_close_end(r, done);
}

static uint64_t fixed_base(unsigned i)
{
	return BASE + i * FIXED_STRIDE + 128;
}

static void look_at_fixed(struct worker *w)
{
	unsigned i = (unsigned)seed_below(&w->seed, FIXED);
	uint64_t addr = fixed_base(i) + seed_below(&w->seed, 32);
	struct range_view v;

	if (!ledger_find(addr, &v) || v.range != fixed[i])
		fail("fixed range %u is missing", i);
	if (v.base != fixed_base(i) || v.size_bytes != 32 || v.kind != RANGE_HOST)
		fail("fixed range %u reads wrong", i);
}

/* This thread's own 8 bytes in the granule of a fixed range, below or above it. */
static void churn_in_granule(struct worker *w)
{
	unsigned i = (unsigned)seed_below(&w->seed, FIXED);
	uint64_t base = BASE + i * FIXED_STRIDE + (w->number % 2 ? 256 : 0) + w->number / 2 * 8;
	struct range_view v;

	open_at(RANGE_GLOBAL, base, 8);
	look_at_fixed(w);
	if (!ledger_find(base + 7, &v) || v.base != base)
		fail("own range at %#lx is missing", base);
	if (seed_below(&w->seed, 4) == 0)
		close_at(base, false);
	close_at(base, true);
	if (ledger_find(base, &v))
		fail("closed range at %#lx is found", base);
}

/* Allocations of this thread between the fixed ranges, at any scale. */
static void churn_between(struct worker *w)
{
	uint64_t base[8];
	struct range_view v;

	for (int i = 0; i < 8; i++) {
		base[i] = BASE + seed_below(&w->seed, FIXED) * FIXED_STRIDE + 1024 +
			  (w->number * 8 + i) * 256;
		if (!ledger_find(base[i], &v))
			open_at(RANGE_DEVICE, base[i], 256);
	}
	look_at_fixed(w);
	for (int i = 0; i < 8; i++)
		if (ledger_find(base[i], &v))
			close_at(base[i], true);
}

static bool marked_soon(const struct exec *e)
{
	for (int i = 0; i < 10000 && !load_acquire(&e->mark); i++)
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	return load_acquire(&e->mark) != 0;
}

/* Several threads pin, hold, judge and free the same ranges: a holder that saw its range live
 * after it was entered as holder is marked by whoever closes the range. */
static void hold_shared(struct worker *w)
{
	uint64_t base = SHARED + seed_below(&w->seed, SHARED_COUNT) * PAGE;
	struct exec *e = &execs[w->number];
	struct range_view v;

	if (!ledger_find(base, &v) || !ledger_pin(&v))
		return;
	store_release(&e->mark, 0);
	ledger_holders_lock();
	if (ledger_hold(v.owner, e) != 0)
		fail("no memory for a holder");
	ledger_holders_unlock();
	if (ledger_health(v.owner, v.generation, base) == RANGE_HEALTHY) {
		for (int i = 0; i < 50; i++)
			spin_pause();
		/* Dead and not marked: the closer is on its way from the one to the other. */
		if (load_acquire(&v.owner->state) == RANGE_DEAD && !marked_soon(e))
			fail("the range at %#lx died and its holder was not marked", base);
	}
	ledger_holders_lock();
	ledger_release(v.owner, e);
	ledger_holders_unlock();
	if (v.owner->base != base || v.owner->generation != v.generation)
		fail("a pinned range changed");
	ledger_unpin(v.owner);
}

static void replace_shared(struct worker *w)
{
	unsigned i = (unsigned)seed_below(&w->seed, SHARED_COUNT);
	uint64_t base = SHARED + i * PAGE;

	/* As a program does: one free of one allocation. */
	pthread_mutex_lock(&shared_locks[i]);
	close_at(base, seed_below(&w->seed, 8) == 0 ? false : true);
	if (!ledger_find(base, &(struct range_view){ 0 }))
		open_at(RANGE_DEVICE, base, PAGE);
	pthread_mutex_unlock(&shared_locks[i]);
}

/* A reservation of this thread, mapped and unmapped in parts. */
static void map_and_unmap(struct worker *w)
{
	uint64_t base = 0x200000000000 + w->number * (PAGE * 64);
	struct range_desc d = { .base = base, .size_bytes = 8 * PAGE, .kind = RANGE_RESERVED };
	struct unmap_batch b = { 0 };
	struct range_view v;

	ledger_open(&d);
	d.kind = RANGE_MAPPED;
	d.size_bytes = PAGE;
	for (int i = 0; i < 8; i++, d.base += PAGE)
		ledger_map(&d);
	ledger_unmap_begin(base + PAGE, 3 * PAGE, 0, &b);
	if (b.count != 3)
		fail("%u mappings instead of 3", b.count);
	ledger_unmap_end(&b, true);
	for (unsigned i = 0; i < 8; i++)
		if (ledger_find(base + i * PAGE, &v) != (i < 1 || i > 3))
			fail("mapping %u", i);
	ledger_unmap_begin(base, 8 * PAGE, 0, &b);
	ledger_unmap_end(&b, true);
	close_at(base, true);
}

static void *work(void *arg)
{
	static void (*const deeds[])(struct worker *) = {
		look_at_fixed, churn_in_granule, churn_between,
		hold_shared,   replace_shared,	 map_and_unmap,
	};
	struct worker *w = arg;

	for (unsigned i = 0; i < rounds; i++)
		deeds[seed_below(&w->seed, sizeof(deeds) / sizeof(deeds[0]))](w);
	return NULL;
}

static void check_counters(void)
{
	struct ledger_counters c;

	ledger_read_counters(&c);
	if (c.live != FIXED + SHARED_COUNT || c.opened - c.closed != c.live)
		fail("%lu live, %lu opened, %lu closed", c.live, c.opened, c.closed);
	if (c.overlaps != 0 || c.dropped != 0 || c.unknown_frees != 0)
		fail("%lu overlaps, %lu dropped, %lu unknown", c.overlaps, c.dropped,
		     c.unknown_frees);
	if (ledger_undefined_count != 0)
		fail("%u ranges without content", ledger_undefined_count);
}

static _Atomic bool is_over;

static void *come_and_go(void *arg)
{
	while (!load_relaxed(&is_over)) {
		open_at(RANGE_DEVICE, LOST + 8 * PAGE, PAGE);
		ledger_close_end(ledger_close_begin(LOST + 8 * PAGE, 0), true);
	}
	return NULL;
}

/* What opens over a range whose free was not seen closes it, whatever happens above that. */
static void lose_frees(void)
{
	struct range_view v;
	pthread_t other;

	if (pthread_create(&other, NULL, come_and_go, NULL) != 0)
		fail("no thread");
	for (unsigned i = 0; i < rounds * 10; i++) {
		open_at(RANGE_DEVICE, LOST + PAGE, PAGE);
		open_at(RANGE_DEVICE, LOST, 16 * PAGE);
		if (ledger_find(LOST + PAGE, &v) && v.base == LOST + PAGE)
			fail("round %u: what lies under a new range still lives", i);
		ledger_close_end(ledger_close_begin(LOST, 0), true);
	}
	store_relaxed(&is_over, true);
	pthread_join(other, NULL);
}

int main(int argc, char **argv)
{
	static struct worker workers[THREADS];
	uint64_t seed = seed_start("stress_ledger");

	if (argc > 1)
		rounds = (unsigned)atoi(argv[1]);
	if (ledger_init() != 0)
		fail("no memory");
	for (unsigned i = 0; i < FIXED; i++)
		fixed[i] = open_at(RANGE_HOST, fixed_base(i), 32);
	for (unsigned i = 0; i < SHARED_COUNT; i++) {
		pthread_mutex_init(&shared_locks[i], NULL);
		open_at(RANGE_DEVICE, SHARED + i * PAGE, PAGE);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .number = i, .seed = seed_next(&seed) };
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			fail("no thread");
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	check_counters();
	lose_frees();
	return 0;
}
