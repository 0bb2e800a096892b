/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of PyTorch's caching allocator at 1, 1,000 and 1,000,000 live blocks.
 *
 *	bench_blocks [live]		ns per event, host bytes a block; a table
 *	bench_blocks count KIND LIVE N	N pairs of one kind and nothing else, for callgrind
 *
 * Kinds. same: one block is handed out and taken back, as by torch.empty() in a loop; stack: a
 * hundred of them, last out first in, as by a decode step; random: any of the live blocks is taken
 * back and handed out again, which no caching allocator does for long: each event misses the
 * caches; grow: one block that is larger each time it is handed out, up to eight times its size;
 * decode: those of an eager decode step, whose places come from the rules of PyTorch's small pool
 * (best fit, split, merge), so that pieces of many sizes begin at the same places. The others are
 * of 1 KiB to 8 KiB, in segments of 2 MiB. With the library preloaded, the events go through it, as
 * PyTorch's do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arena/block.h"
#include "arena/slab.h"
#include "tests/unit/seed.h"

#define START	    ((uint64_t)0x7f0000000000)
#define KIB	    ((uint64_t)1024)
#define STEP_BLOCKS 100
#define PAIRS	    2000000
#define ROUNDS	    10

static uint64_t *pieces; /* base, a multiple of KIB, and size in KIB: one cache miss */
static size_t live;

static uint64_t base_of(size_t i)
{
	return pieces[i] & ~(KIB - 1);
}

static int64_t size_of(size_t i)
{
	return (int64_t)((pieces[i] & (KIB - 1)) * KIB);
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void die(const char *why)
{
	fprintf(stderr, "bench_blocks: %s\n", why);
	exit(1);
}

/* What is preloaded, if anything is. */
struct c10_device {
	int8_t type, index;
};
void c10_report(
	void *ptr, int64_t bytes, size_t allocated, size_t reserved,
	struct c10_device where) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
	__attribute__((weak));
int cuInit(unsigned flags) __attribute__((weak));

static void event(uint64_t base, int64_t bytes)
{
	struct block_shard *s = &block_shards[0];

	if (c10_report != NULL)
		c10_report((void *)(uintptr_t)base, bytes, 0, 0, (struct c10_device){ 1, 0 });
	else if (block_event_quick(s, base, bytes) || block_enter(s, base, bytes))
		return;
	else if (bytes > 0)
		block_opened(0, base, (uint64_t)bytes, false, 0);
	else if (block_closed(0, base) != NULL)
		die("nothing refers to a block here");
}

static void carve(size_t i)
{
	event(base_of(i), size_of(i));
}

static void give_back(size_t i)
{
	event(base_of(i), -size_of(i));
}

/* ---- a decode step ---- */

/* A pool as PyTorch's small one: a piece is the least that is large enough, split if something is
 * left, and merged with its free neighbours. One segment, in the order of its addresses. */
#define SEGMENT	    (START - 2048 * KIB)
#define ROUND	    ((uint64_t)512)
#define EVENTS_MAX  1024

static struct piece {
	uint64_t base, bytes;
	bool used;
} pool[256];
static size_t pool_count;
static struct { uint64_t base; int64_t bytes; } step[EVENTS_MAX];
static size_t step_count;

static void note(uint64_t base, int64_t bytes)
{
	if (step_count == EVENTS_MAX)
		die("a step of too many events");
	step[step_count].base = base;
	step[step_count++].bytes = bytes;
}

static void pool_insert(size_t at, struct piece p)
{
	memmove(pool + at + 1, pool + at, (pool_count++ - at) * sizeof(*pool));
	pool[at] = p;
}

static void pool_remove(size_t at)
{
	memmove(pool + at, pool + at + 1, (--pool_count - at) * sizeof(*pool));
}

static uint64_t pool_get(uint64_t bytes)
{
	size_t best = pool_count;

	bytes = (bytes + ROUND - 1) / ROUND * ROUND;
	for (size_t i = 0; i < pool_count; i++)
		if (!pool[i].used && pool[i].bytes >= bytes &&
		    (best == pool_count || pool[i].bytes < pool[best].bytes))
			best = i;
	if (best == pool_count)
		die("the segment is full");
	if (pool[best].bytes > bytes) {
		pool_insert(best + 1, (struct piece){ pool[best].base + bytes,
						      pool[best].bytes - bytes, false });
		pool[best].bytes = bytes;
	}
	pool[best].used = true;
	note(pool[best].base, (int64_t)bytes);
	return pool[best].base;
}

static void pool_put(uint64_t base)
{
	size_t i = 0;

	while (pool[i].base != base)
		i++;
	note(base, -(int64_t)pool[i].bytes);
	pool[i].used = false;
	if (i + 1 < pool_count && !pool[i + 1].used) {
		pool[i].bytes += pool[i + 1].bytes;
		pool_remove(i + 1);
	}
	if (i > 0 && !pool[i - 1].used) {
		pool[i - 1].bytes += pool[i].bytes;
		pool_remove(i);
	}
}

/* The tensors of tests/gpu/torch_overhead.py: attention over 4 rows of 256 floats, a layer norm. */
static void decode_step(void)
{
	const uint64_t row = 4 * 256 * 4, small = 64;
	uint64_t h = 0, p = 0;

	for (int layer = 0; layer < 8; layer++) {
		uint64_t q = pool_get(row), k = pool_get(row), s = pool_get(small);
		uint64_t v, a, o, x, n, mean, rstd;

		pool_put(q);
		pool_put(k);
		n = pool_get(small);
		pool_put(s);
		if (p != 0)
			pool_put(p);
		p = n;
		v = pool_get(row);
		a = pool_get(row);
		pool_put(v);
		o = pool_get(row);
		pool_put(a);
		x = pool_get(row);
		pool_put(o);
		n = pool_get(row);
		mean = pool_get(16);
		rstd = pool_get(16);
		pool_put(mean);
		pool_put(rstd);
		pool_put(x);
		if (h != 0)
			pool_put(h);
		h = n;
	}
	pool_put(p);
	pool_put(h);
}

static void make_step(void)
{
	pool[0] = (struct piece){ SEGMENT, 2048 * KIB, false };
	pool_count = 1;
	decode_step();		/* the pool is in pieces */
	step_count = 0;
	decode_step();
}

/* ---- kinds of events ---- */

/* Blocks from the start of the address space on; STEP_BLOCKS more than are live. */
static void make(size_t count)
{
	uint64_t seed = 1, at = START;

	live = count;
	pieces = pages_get((count + STEP_BLOCKS) * sizeof(*pieces));
	if (pieces == NULL)
		die("no memory");
	for (size_t i = 0; i < count + STEP_BLOCKS; i++) {
		pieces[i] = at + 1 + seed_below(&seed, 8);
		at += (uint64_t)size_of(i);
		if (i < count)
			carve(i);
	}
	make_step();
}

static void same(size_t pairs, uint64_t *seed)
{
	for (size_t i = 0; i < pairs; i++) {
		carve(live);
		give_back(live);
	}
}

static void stack(size_t pairs, uint64_t *seed)
{
	for (size_t done = 0; done < pairs; done += STEP_BLOCKS) {
		for (size_t i = 0; i < STEP_BLOCKS; i++)
			carve(live + i);
		for (size_t i = STEP_BLOCKS; i-- > 0;)
			give_back(live + i);
	}
}

static void random_one(size_t pairs, uint64_t *seed)
{
	for (size_t done = 0; done < pairs; done++) {
		size_t i = seed_below(seed, live);

		give_back(i);
		carve(i);
	}
}

static void grow(size_t pairs, uint64_t *seed)
{
	for (size_t i = 0; i < pairs; i++) {
		int64_t bytes = (int64_t)((i % 8 + 1) * KIB);

		event(base_of(live + STEP_BLOCKS - 1), bytes);
		event(base_of(live + STEP_BLOCKS - 1), -bytes);
	}
}

static void decode(size_t pairs, uint64_t *seed)
{
	for (size_t done = 0; done < pairs;)
		for (size_t i = 0; i < step_count && done < pairs; i++) {
			event(step[i].base, step[i].bytes);
			done += step[i].bytes < 0;
		}
}

static const struct kind {
	const char *name;
	void (*run)(size_t pairs, uint64_t *seed);
} kinds[] = { { "same", same }, { "stack", stack }, { "random", random_one },
	    { "grow", grow },
	    { "decode", decode } };
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* The best of several rounds: other processes only make it slower. */
static double event_ns(const struct kind *k)
{
	uint64_t seed = 7;
	double best = 1e9;

	for (int i = 0; i < ROUNDS; i++) {
		double start = now_ns(), each;

		k->run(PAIRS / ROUNDS, &seed);
		each = (now_ns() - start) / (2.0 * PAIRS / ROUNDS);
		best = each < best ? each : best;
	}
	return best;
}

static void table(size_t count)
{
	uint64_t before = slab_bytes(), own;

	make(count);
	own = (count + STEP_BLOCKS) * sizeof(*pieces);
	printf("%9zu", count);
	for (size_t i = 0; i < KINDS; i++)
		printf("%10.1f", event_ns(&kinds[i]));
	printf("%12.1f\n", ((double)(slab_bytes() - before) - (double)own) / (double)count);
	for (size_t i = 0; i < count; i++)
		give_back(i);
}

static int count_pairs(char **argv)
{
	uint64_t seed = 7;

	make(strtoul(argv[1], NULL, 0));
	for (size_t i = 0; i < KINDS; i++)
		if (strcmp(argv[0], kinds[i].name) == 0)
			return kinds[i].run(strtoul(argv[2], NULL, 0), &seed), 0;
	die("no such kind");
	return 1;
}

int main(int argc, char **argv)
{
	if (cuInit != NULL ? cuInit(0) != 0 : ledger_init() != 0)
		die("no memory, or no driver");
	if (argc == 5 && strcmp(argv[1], "count") == 0)
		return count_pairs(argv + 2);
	printf("ns per event\n%9s", "live");
	for (size_t i = 0; i < KINDS; i++)
		printf("%10s", kinds[i].name);
	printf("%12s\n", "bytes/block");
	for (size_t count = 1; count <= (argc > 1 ? strtoul(argv[1], NULL, 0) : 1000000);
	     count *= 1000)
		table(count);
	return 0;
}
