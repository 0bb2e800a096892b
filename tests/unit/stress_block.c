/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks under threads. Each worker has a device and a segment of its own: it carves a block,
 * captures it next to one that all graphs share, launches, frees, and launches again; at times its
 * segment goes back to the driver. Others refer to any address of anybody, and read the counters.
 * A launch must be sound while the worker's block lives, and refused once it is freed or its
 * segment is gone. A plain program, so that it runs under TSan as it is. Argument: rounds.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena/block.h"
#include "arena/exec.h"
#include "tests/unit/seed.h"

#define WORKERS 3
#define READERS 2
#define SEGMENT ((uint64_t)20 << 20)
#define SHARED	((uint64_t)0x600000000000)
#define BLOCKS	16
#define BYTES	((uint64_t)4096)

static unsigned rounds = 2000;
static uint64_t seed_all;
static _Atomic unsigned workers_left = WORKERS;

static void die(const char *why)
{
	fprintf(stderr, "stress_block: %s\n", why);
	exit(1);
}

static uint64_t segment_of(unsigned worker)
{
	return 0x700000000000 + worker * SEGMENT;
}

static void open_segment(uint64_t base)
{
	const struct range_desc d = { .base = base, .size_bytes = SEGMENT, .kind = RANGE_DEVICE };

	if (ledger_open(&d) == NULL)
		die("no memory");
}

static void close_segment(uint64_t base)
{
	ledger_close_end(ledger_close_begin(base, 0), true);
}

static void carve(unsigned device_number, uint64_t base, uint64_t size_bytes)
{
	struct block_shard *s = &block_shards[device_number];

	if (!block_event_quick(s, base, (int64_t)size_bytes) &&
	    !block_enter(s, base, (int64_t)size_bytes))
		block_opened(device_number, base, size_bytes, false, 0);
}

static void give_back(unsigned device_number, uint64_t base)
{
	struct range *r = NULL;

	if (!block_event_quick(&block_shards[device_number], base, -1))
		r = block_closed(device_number, base);
	if (r != NULL)
		block_freed(r, 0);
}

static void capture(uint64_t handle, uint64_t addr)
{
	const struct word words[] = {
		{ .value = addr, .param = 0, .confidence = CONFIDENCE_EXACT },
		{ .value = SHARED + 64, .param = 1, .confidence = CONFIDENCE_EXACT },
	};
	struct exec_builder *b = exec_build_begin();

	exec_build_node(b, &(struct node_desc){ .graph = handle,
						.node = handle + 1,
						.kind = NODE_KERNEL,
						.words = words,
						.words_count = 2 });
	exec_open(handle, 0, b);
}

static bool launches(uint64_t handle)
{
	bool sound = guard_launch(handle, handle);

	if (sound)
		guard_launched();
	return sound;
}

static void *work(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	uint64_t seed = seed_all + me, handle = 0x1000 * (me + 1), segment = segment_of(me);

	open_segment(segment);
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t base = segment + seed_below(&seed, BLOCKS) * BYTES;

		carve(me, base, BYTES);
		capture(handle, base + seed_below(&seed, BYTES));
		if (!launches(handle))
			die("a block that lives was not found");
		if (seed_below(&seed, 8) != 0) {
			give_back(me, base);
		} else {
			close_segment(segment);
			open_segment(segment);
		}
		if (launches(handle))
			die("a launch on memory that is gone");
		if (seed_below(&seed, 2) != 0) {
			carve(me, base, BYTES);
			if (launches(handle))
				die("another block is not the old one");
			give_back(me, base);
		}
		exec_close(handle);
	}
	add_acq_rel(&workers_left, (unsigned)-1);
	return NULL;
}

static void *refer(void *arg)
{
	uint64_t seed = seed_all + 100 + (uintptr_t)arg;

	while (load_acquire(&workers_left) != 0) {
		uint64_t addr = segment_of((unsigned)seed_below(&seed, WORKERS)) +
				seed_below(&seed, BLOCKS * BYTES);
		struct block_counters c;
		struct range_view v;

		if (ledger_refer(addr, &v) && ledger_pin(&v)) {
			(void)ledger_health(v.owner, v.generation, addr);
			ledger_unpin(v.owner);
		}
		block_tell_freed();
		block_read_counters(&c);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[WORKERS + READERS];
	struct block_counters c;

	if (argc > 1)
		rounds = (unsigned)atoi(argv[1]);
	seed_all = seed_start("stress_block");
	guard_refuses = true;
	if (ledger_init() != 0)
		die("no memory");
	open_segment(SHARED);
	carve(WORKERS, SHARED, BYTES);
	for (uintptr_t i = 0; i < WORKERS + READERS; i++)
		if (pthread_create(&t[i], NULL, i < WORKERS ? work : refer, (void *)i) != 0)
			die("no thread");
	for (int i = 0; i < WORKERS + READERS; i++)
		pthread_join(t[i], NULL);
	block_read_counters(&c);
	if (c.live != 1)
		die("blocks were left behind");
	return 0;
}
