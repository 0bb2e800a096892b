/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address look-ups at 1,000,000 ranges: ns per hit and per miss, ns per insert and remove, the
 * rate of 2 to 16 threads against one, bytes per range; then the same of the ledger. Prints a
 * table; asserts nothing but that the answers are right. Arguments: [ranges] [max threads].
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "arena/index.h"
#include "arena/ledger.h"
#include "arena/slab.h"
#include "tests/unit/seed.h"

#define STRIDE	    ((uint64_t)64 << 10) /* 1,000,000 ranges in 64 GB */
#define RANGE_BYTES ((uint64_t)32 << 10) /* the upper half of each stride is a miss */
#define START	    ((uint64_t)0x7f0000000000)
#define LOOKUPS	    4000000
#define BATCHES	    40
#define THREADS_MAX 64

static struct index *ix;
static struct range **all; /* objects of a slab, as the ledger's are */
static struct slab objects = SLAB_INIT(struct range);
static size_t count = 1000000;
static _Atomic int go;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void die(const char *why)
{
	fprintf(stderr, "bench_index: %s\n", why);
	exit(1);
}

/* Look up random addresses at @offset of a stride; hits, if they must be inside. */
static void look(uint64_t *seed, uint64_t offset, bool hits, int lookups)
{
	for (int i = 0; i < lookups; i++) {
		uint64_t base = START + seed_below(seed, count) * STRIDE;
		struct range *r = index_floor(ix, base + offset);

		if (r == NULL || (base + offset - r->base < r->size_bytes) != hits)
			die("wrong answer");
	}
}

/* The best of several batches: other processes only make it slower. */
static double look_ns(uint64_t seed, uint64_t offset, bool hits)
{
	double best = 1e9;

	for (int batch = 0; batch < BATCHES; batch++) {
		double start = now_ns(), each;

		look(&seed, offset, hits, LOOKUPS / BATCHES);
		each = (now_ns() - start) / (LOOKUPS / BATCHES);
		best = each < best ? each : best;
	}
	return best;
}

static double insert_ns(void)
{
	double start = now_ns();

	for (size_t i = 0; i < count; i++)
		if (index_insert(ix, all[i]) != 0)
			die("no memory");
	return (now_ns() - start) / (double)count;
}

static double remove_ns(void)
{
	double start = now_ns();

	for (size_t i = 0; i < count; i++)
		if (index_remove(ix, all[i]) != 0)
			die("not found");
	return (now_ns() - start) / (double)count;
}

static void *looker(void *arg)
{
	uint64_t seed = (uint64_t)(uintptr_t)arg;

	while (!load_acquire(&go))
		spin_pause();

	look(&seed, 4096, true, LOOKUPS / 4);
	return NULL;
}

/* Look-ups a second of @threads together. */
static double rate(unsigned threads)
{
	pthread_t t[THREADS_MAX];
	double start;

	store_release(&go, 0);
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&t[i], NULL, looker, (void *)(uintptr_t)(i + 1)) != 0)
			die("no thread");
	start = now_ns();
	store_release(&go, 1);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	return threads * (LOOKUPS / 4) / ((now_ns() - start) / 1e9);
}

/* In a random order, as a process that ran for a while has them. */
static void make_ranges(void)
{
	uint64_t seed = 1;

	all = pages_get(count * sizeof(*all));
	for (size_t i = 0; all != NULL && i < count; i++) {
		size_t j = seed_below(&seed, i + 1);
		struct range *r = slab_get(&objects);

		if (r == NULL)
			die("no memory");
		store_relaxed(&r->base, START + i * STRIDE);
		store_relaxed(&r->size_bytes, RANGE_BYTES);
		all[i] = all[j];
		all[j] = r;
	}
	if (all == NULL)
		die("no memory");
}

/* ---- the ledger ---- */

static struct range *open_range(uint64_t base)
{
	struct range_desc d = { .base = base, .size_bytes = RANGE_BYTES, .kind = RANGE_DEVICE };
	struct range *r = ledger_open(&d);

	if (r == NULL)
		die("no memory");
	return r;
}

static double open_ns(void)
{
	double start = now_ns();

	for (size_t i = 0; i < count; i++)
		open_range(START + i * STRIDE);
	return (now_ns() - start) / (double)count;
}

static double find_ns(uint64_t seed)
{
	double best = 1e9;

	for (int batch = 0; batch < BATCHES; batch++) {
		double start = now_ns(), each;
		struct range_view v;

		for (int i = 0; i < LOOKUPS / BATCHES; i++)
			if (!ledger_find(START + seed_below(&seed, count) * STRIDE + 4096, &v))
				die("wrong answer");
		each = (now_ns() - start) / (LOOKUPS / BATCHES);
		best = each < best ? each : best;
	}
	return best;
}

/* Free and allocate the same memory, at random addresses: a caching allocator that is full. */
static double reopen_ns(uint64_t seed)
{
	const int rounds = LOOKUPS / BATCHES;
	double start = now_ns();

	for (int i = 0; i < rounds; i++) {
		uint64_t base = START + seed_below(&seed, count) * STRIDE;

		ledger_close_end(ledger_close_begin(base, 0), true);
		open_range(base);
	}
	return (now_ns() - start) / rounds;
}

static void ledger_table(void)
{
	if (ledger_init() != 0)
		die("no memory");
	printf("%-34s %10.1f ns\n", "ledger, open", open_ns());
	printf("%-34s %10.1f ns\n", "ledger, find", find_ns(3));
	printf("%-34s %10.1f ns\n", "ledger, close and open", reopen_ns(4));
}

int main(int argc, char **argv)
{
	unsigned threads_max = argc > 2 ? (unsigned)atoi(argv[2]) : 16;
	uint64_t before;
	double one;

	if (argc > 1)
		count = strtoul(argv[1], NULL, 0);
	ix = index_new();
	if (ix == NULL || count == 0 || threads_max > THREADS_MAX)
		die("usage: bench_index [ranges] [threads, at most 64]");
	make_ranges();
	before = slab_bytes();
	printf("%-34s %10zu\n", "ranges", count);
	printf("%-34s %10.1f ns\n", "insert", insert_ns());
	printf("%-34s %10.1f bytes\n", "index memory per range",
	       (double)(slab_bytes() - before) / (double)count);
	printf("%-34s %10.1f ns\n", "look-up, random hit", look_ns(1, 4096, true));
	printf("%-34s %10.1f ns\n", "look-up, random miss", look_ns(2, RANGE_BYTES + 4096, false));
	one = rate(1);
	for (unsigned n = 2; n <= threads_max; n *= 2)
		printf("rate of %2u threads / rate of one    %10.2f\n", n, rate(n) / one);
	printf("%-34s %10.1f ns\n", "remove", remove_ns());
	ledger_table();
	return 0;
}
