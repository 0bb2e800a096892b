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
 * caches; grow: one block that is larger each time it is handed out, up to eight times its size.
 * Blocks are 1 KiB to 8 KiB, in segments of 2 MiB. With the library preloaded, the events go
 * through it, as PyTorch's do.
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

static const struct kind {
	const char *name;
	void (*run)(size_t pairs, uint64_t *seed);
} kinds[] = { { "same", same }, { "stack", stack }, { "random", random_one }, { "grow", grow } };
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
	printf("ns per event\n%9s%10s%10s%10s%10s%12s\n", "live", "same", "stack", "random", "grow",
	       "bytes/block");
	for (size_t count = 1; count <= (argc > 1 ? strtoul(argv[1], NULL, 0) : 1000000);
	     count *= 1000)
		table(count);
	return 0;
}
