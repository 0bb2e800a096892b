/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zero, fingerprint, compare and scan (kernels/maintain.h) by their C twins: whatever the sizes,
 * the alignment and the grid, each byte counts once, where it is.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/maintain.h"
#include "seed.h"

#define OPS_MAX	  12
#define BYTES_MAX (5 * PUBLISH_TILE_BYTES)
#define ROOM	  (OPS_MAX * BYTES_MAX)

static _Alignas(16) uint8_t a[ROOM], b[ROOM];

static uint64_t host(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static void fill(uint8_t *p, uint64_t bytes, uint64_t *seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)seed_below(seed, 256);
}

/* Places without overlap; b has the contents of a. */
static uint32_t make(struct publish_op *ops, uint64_t *seed)
{
	uint32_t count = 1 + (uint32_t)seed_below(seed, OPS_MAX);

	fill(a, sizeof(a), seed);
	memcpy(b, a, sizeof(b));
	for (uint32_t i = 0; i < count; i++) {
		uint64_t bytes = 1 + seed_below(seed, i % 2 ? 100 : BYTES_MAX);
		uint64_t at = i * BYTES_MAX + seed_below(seed, BYTES_MAX - bytes + 1);

		ops[i] = (struct publish_op){ .dst = host(b + at),
					      .src = host(a + at),
					      .bytes = bytes };
	}
	return count;
}

static struct publish_grid grid_of(struct publish_op *ops, uint32_t count)
{
	return (struct publish_grid){ ops, count, publish_plan(ops, count) };
}

static uint64_t fingerprint(const void *p, uint64_t bytes, uint32_t blocks)
{
	struct publish_op op = { .src = host(p), .bytes = bytes };
	struct publish_grid g = grid_of(&op, 1);
	uint64_t out = 0;

	for (uint32_t i = 0; i < blocks; i++)
		fingerprint_twin(&g, i, blocks, &out);
	return out;
}

Test(maintain, zero)
{
	uint64_t seed = seed_start("maintain zero");
	struct publish_op ops[OPS_MAX];
	uint32_t count = make(ops, &seed), blocks = 1 + (uint32_t)seed_below(&seed, 40);
	struct publish_grid g = grid_of(ops, count);

	for (uint32_t i = 0; i < blocks; i++)
		zero_twin(&g, i, blocks);
	for (uint32_t i = 0; i < count; i++)
		memset((void *)(uintptr_t)ops[i].src, 0, ops[i].bytes);
	cr_assert_eq(memcmp(a, b, sizeof(a)), 0);
}

Test(maintain, fingerprint_of_a_copy)
{
	uint64_t seed = seed_start("maintain fingerprint");

	for (int round = 0; round < 10; round++) {
		struct publish_op ops[OPS_MAX];
		uint32_t count = make(ops, &seed), blocks = 1 + (uint32_t)seed_below(&seed, 40);
		struct publish_grid g = grid_of(ops, count);
		uint64_t out[OPS_MAX] = { 0 };

		/* In any order of blocks. */
		for (uint32_t i = blocks; i-- > 0;)
			fingerprint_twin(&g, i, blocks, out);
		for (uint32_t i = 0; i < count; i++)
			cr_assert_eq(out[i],
				     fingerprint((void *)(uintptr_t)ops[i].dst, ops[i].bytes, 1));
	}
}

/* Known values: kernels and programs elsewhere may rely on them. */
Test(maintain, fingerprint_values)
{
	const uint8_t nine[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
	uint64_t word = 0x0807060504030201;

	cr_assert_eq(fingerprint(nine, 8, 1), fingerprint_mix(word ^ 0x9e3779b97f4a7c15ull));
	cr_assert_eq(fingerprint(nine, 9, 1),
		     fingerprint_mix(word ^ 0x9e3779b97f4a7c15ull) +
			     fingerprint_mix(9 ^ 2 * 0x9e3779b97f4a7c15ull));
	cr_assert_eq(fingerprint_mix(1), 0x4c8bacd9c4bef5b7ull);
}

/* One bit anywhere, two words changing places, signs of two numbers. */
Test(maintain, fingerprint_tells_changes)
{
	uint64_t seed = seed_start("maintain changes"), bytes = 3 * PUBLISH_TILE_BYTES + 5, before;

	fill(a, bytes, &seed);
	before = fingerprint(a, bytes, 4);
	for (int round = 0; round < 200; round++) {
		uint64_t i = seed_below(&seed, bytes), k = seed_below(&seed, bytes / 8 - 1);
		uint64_t m = seed_below(&seed, bytes / 8 - 1);

		memcpy(b, a, bytes);
		b[i] ^= 1u << seed_below(&seed, 8);
		cr_assert_neq(fingerprint(b, bytes, 4), before);
		if (k == m)
			continue;
		memcpy(b, a, bytes);
		b[8 * k + 7] ^= 0x80;
		b[8 * m + 7] ^= 0x80;
		cr_assert_neq(fingerprint(b, bytes, 4), before);
		memcpy(b, a, bytes);
		memcpy(b + 8 * k, a + 8 * m, 8);
		memcpy(b + 8 * m, a + 8 * k, 8);
		cr_assert(memcmp(a + 8 * k, a + 8 * m, 8) == 0 ||
			  fingerprint(b, bytes, 4) != before);
	}
}

Test(maintain, compare)
{
	uint64_t seed = seed_start("maintain compare");

	for (int round = 0; round < 20; round++) {
		struct publish_op ops[OPS_MAX];
		uint32_t count = make(ops, &seed), blocks = 1 + (uint32_t)seed_below(&seed, 40);
		struct publish_grid g = grid_of(ops, count);
		uint64_t out[OPS_MAX], first[OPS_MAX];

		for (uint32_t i = 0; i < count; i++) {
			out[i] = first[i] = COMPARE_EQUAL;
			for (int n = 0; n < 3 && i % 3 != 0; n++) {
				uint64_t k = seed_below(&seed, ops[i].bytes);

				((uint8_t *)(uintptr_t)ops[i].dst)[k] =
					(uint8_t) ~((uint8_t *)(uintptr_t)ops[i].src)[k];
				first[i] = k < first[i] ? k : first[i];
			}
		}
		for (uint32_t i = 0; i < blocks; i++)
			compare_twin(&g, round % 2 ? i : blocks - 1 - i, blocks, out);
		cr_assert_eq(memcmp(out, first, count * sizeof(*out)), 0);
	}
}

Test(maintain, scan)
{
	static const struct scan_range ranges[] = { { 0x1000, 0x2000 },
						    { 0x3000, 0x3001 },
						    { 0x7f0000000000, 0x7f0000001000 } };
	static const uint64_t words[] = { 0x0fff,	  0x1000, 0x1fff,	  0x2000,
					  0x3000,	  0x3001, 0x7effffffffff, 0x7f0000000fff,
					  0x7f0000001000, 0 };
	static const uint64_t hits_of[] = { 1, 2, 4, 7 };
	struct scan_hit hits[3];
	struct scan_job job = { .ranges = host(ranges),
				.hits = host(hits),
				.lowest = 0x1000,
				.highest = 0x7f0000001000,
				.ranges_count = 3,
				.cap = 3 };
	struct publish_op op = { .src = host(words), .bytes = sizeof(words) };
	struct publish_grid g = grid_of(&op, 1);
	uint64_t far = 0x100000;

	scan_twin(&g, 0, 1, &job, &far);
	cr_assert_eq(job.found, 4);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(hits[i].word, words[hits_of[i]]);
		cr_assert_eq(hits[i].address, host(&words[hits_of[i]]) + far);
	}
	job.ranges_count = 0;
	job.found = 0;
	scan_twin(&g, 0, 1, &job, NULL);
	cr_assert_eq(job.found, 0);
}
