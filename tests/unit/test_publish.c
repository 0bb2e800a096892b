/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the batched copy is cut (kernels/publish.h, which the kernel is built from): whatever the
 * sizes and the grid, each byte is copied once, to its place, and blocks get equal shares.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/publish.h"
#include "seed.h"

#define OPS_MAX	  64
#define BYTES_MAX (3 * PUBLISH_TILE_BYTES)

static uint8_t from[OPS_MAX * BYTES_MAX], to[OPS_MAX * BYTES_MAX], times[OPS_MAX * BYTES_MAX];
static uint64_t bytes_of_block;

static void copy(uint64_t dst, uint64_t src, uint64_t bytes)
{
	cr_assert_neq(bytes, 0);
	cr_assert_leq(dst + bytes, sizeof(to));
	memcpy(to + dst, from + src, bytes);
	for (uint64_t i = 0; i < bytes; i++)
		times[dst + i]++;
	bytes_of_block += bytes;
}

static uint64_t below(uint64_t *seed, uint64_t limit)
{
	return seed_below(seed, limit);
}

/* Any size from one byte on, often around the edge of a tile. */
static uint64_t some_bytes(uint64_t *seed)
{
	switch (below(seed, 3)) {
	case 0:
		return 1 + below(seed, BYTES_MAX);
	case 1:
		return 1 + below(seed, 64);
	default:
		return PUBLISH_TILE_BYTES * (1 + below(seed, 2)) - 2 + below(seed, 5);
	}
}

/* Places without overlap, sources in another order and of other alignment. */
static uint32_t make(struct publish_op *ops, uint64_t *seed)
{
	uint32_t count = 1 + (uint32_t)below(seed, OPS_MAX);

	for (uint32_t i = 0; i < count; i++) {
		ops[i].bytes = some_bytes(seed);
		ops[i].dst = i * BYTES_MAX + below(seed, BYTES_MAX - ops[i].bytes + 1);
		ops[i].src =
			(count - 1 - i) * BYTES_MAX + below(seed, BYTES_MAX - ops[i].bytes + 1);
	}
	return count;
}

static void check(const struct publish_op *ops, uint32_t count)
{
	uint64_t total = 0, touched = 0;

	for (uint32_t i = 0; i < count; i++) {
		total += ops[i].bytes;
		cr_assert_eq(memcmp(to + ops[i].dst, from + ops[i].src, ops[i].bytes), 0);
	}
	for (uint64_t i = 0; i < sizeof(times); i++) {
		cr_assert_leq(times[i], 1);
		touched += times[i];
	}
	cr_assert_eq(touched, total);
}

Test(publish, each_byte_once)
{
	uint64_t seed = seed_start("publish");

	for (int round = 0; round < 20; round++) {
		struct publish_op ops[OPS_MAX];
		uint32_t count = make(ops, &seed), blocks = 1 + (uint32_t)below(&seed, 200);
		struct publish_grid g = { ops, count, publish_plan(ops, count) };
		uint64_t share = (g.tiles + blocks - 1) / blocks * PUBLISH_TILE_BYTES;

		for (uint64_t i = 0; i < sizeof(from); i++)
			from[i] = (uint8_t)(i * 31 + i / 256 + (unsigned)round);
		memset(times, 0, sizeof(times));
		for (uint32_t b = 0; b < blocks; b++) {
			bytes_of_block = 0;
			publish_twin(&g, b, blocks, copy);
			cr_assert_leq(bytes_of_block, share);
		}
		check(ops, count);
	}
}

Test(publish, ten_thousand_small_ones_and_one_large)
{
	static struct publish_op ops[10000];
	struct publish_run last;

	for (uint32_t i = 0; i < 10000; i++)
		ops[i].bytes = 4096;
	cr_assert_eq(publish_plan(ops, 10000), 10000);
	cr_assert_eq(publish_find(ops, 10000, 9999), 9999);
	cr_assert_eq(publish_find(ops, 10000, 0), 0);
	ops[0].bytes = 1ull << 30;
	cr_assert_eq(publish_plan(ops, 1), (1ull << 30) / PUBLISH_TILE_BYTES);
	last = publish_run(65536, 527, 528);
	cr_assert_eq(last.end, 65536);
	cr_assert_eq(last.end - last.begin, 124);
}
