/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derivations of MoE routing: every index is in one place and that is its expert's; ids that are
 * none, experts of other ranks, experts without rows; what CUTLASS reads besides.
 */
#include <criterion/criterion.h>

#include "derive.h"
#include "kernels/number.h"
#include "seed.h"

#define COUNT_MAX   200
#define EXPERTS_MAX 20

static int32_t ids[COUNT_MAX], map[EXPERTS_MAX];

/* Every other expert is local. */
static uint32_t some_routing(uint32_t count, uint32_t experts, uint64_t *seed)
{
	uint32_t local = 0;

	for (uint32_t i = 0; i < count; i++)
		ids[i] = (int32_t)seed_below(seed, experts + 2) - 1; /* also -1 and experts */
	for (uint32_t e = 0; e < experts; e++)
		map[e] = e % 2 == 0 ? (int32_t)local++ : -1;
	return local;
}

static void check_align(uint32_t count, uint32_t experts, uint32_t block)
{
	static int32_t sorted[COUNT_MAX + EXPERTS_MAX * 16], blocks[COUNT_MAX + EXPERTS_MAX * 16];
	uint32_t capacity = count + experts * (block - 1), seen[COUNT_MAX] = { 0 };
	int32_t total;

	CALL(arena_moe_align, .ids = AT(ids), .map = AT(map), .sorted = AT(sorted),
	     .blocks = AT(blocks), .total = AT(&total), .count = count, .experts = experts,
	     .block = block, .capacity = capacity, .tail = -7);
	cr_assert(total % (int32_t)block == 0 && (uint32_t)total <= capacity);
	for (uint32_t at = 0; at < capacity; at++) {
		uint32_t i = (uint32_t)sorted[at];

		if (i == count)
			continue;
		cr_assert(i < count && ids[i] >= 0 && (uint32_t)ids[i] < experts);
		cr_assert_lt((int32_t)at, total);
		cr_assert_eq(blocks[at / block], map[ids[i]]);
		seen[i]++;
	}
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(seen[i], ids[i] >= 0 && (uint32_t)ids[i] < experts);
	for (uint32_t b = (uint32_t)total / block; b < DERIVE_CEIL(capacity, block); b++)
		cr_assert_eq(blocks[b], -7);
}

static void check_permute(uint32_t count, uint32_t experts, uint32_t local)
{
	int32_t sorted[COUNT_MAX], inverse[COUNT_MAX];
	int64_t offsets[EXPERTS_MAX + 1];

	CALL(arena_moe_permute_index, .ids = AT(ids), .map = AT(map), .sorted = AT(sorted),
	     .inverse = AT(inverse), .offsets = AT(offsets), .count = count, .experts = experts,
	     .local = local);
	cr_assert_eq(offsets[0], 0);
	for (uint32_t i = 0; i < count; i++) {
		int32_t id = ids[i], d = inverse[i];
		bool here = id >= 0 && (uint32_t)id < experts && map[id] >= 0;

		cr_assert_eq(sorted[d], (int32_t)i);
		cr_assert_eq(here, d < offsets[local]);
		cr_assert(!here || (d >= offsets[map[id]] && d < offsets[map[id] + 1]));
		cr_assert(d == 0 || ids[sorted[d - 1]] != id || sorted[d - 1] < (int32_t)i);
	}
}

Test(derive_moe, routing)
{
	uint64_t seed = seed_start("moe");

	for (int round = 0; round < 100; round++) {
		uint32_t count = 1 + (uint32_t)seed_below(&seed, COUNT_MAX);
		uint32_t experts = 1 + (uint32_t)seed_below(&seed, EXPERTS_MAX);
		uint32_t local = some_routing(count, experts, &seed);

		check_align(count, experts, 1u << seed_below(&seed, 5));
		check_permute(count, experts, local);
	}
}

/* With weights that add up to 1, permuted rows come back as they were; foreign ones do not count.
 */
Test(derive_moe, rows_come_back)
{
	enum { TOKENS = 6, TOPK = 2, HIDDEN = 3, COUNT = TOKENS * TOPK };
	uint16_t x[TOKENS][HIDDEN], rows[COUNT][HIDDEN], back[TOKENS][HIDDEN];
	int32_t sorted[COUNT], inverse[COUNT], all[COUNT] = { 3, 1, 0, 2, 1, 3, 2, 0, 3, 2, 0, 1 };
	int32_t here[4] = { 0, -1, 1, 2 };
	float weights[COUNT];
	int64_t offsets[5];

	for (int i = 0; i < TOKENS * HIDDEN; i++)
		x[i / HIDDEN][i % HIDDEN] = number_to_half((float)(i + 1) / 8);
	for (int i = 0; i < COUNT; i++)
		weights[i] = i % 2 ? 0.75f : 0.25f;
	memset(rows, 0xee, sizeof(rows));
	for (int foreign = 0; foreign < 2; foreign++) {
		uint32_t local = foreign ? 3 : 4;

		CALL(arena_moe_permute_index, .ids = AT(all), .map = foreign ? AT(here) : 0,
		     .sorted = AT(sorted), .inverse = AT(inverse), .offsets = AT(offsets),
		     .count = COUNT, .experts = 4, .local = local);
		CALL(arena_moe_permute_rows, .x = AT(x), .sorted = AT(sorted),
		     .offsets = AT(offsets), .out = AT(rows), .count = COUNT, .topk = TOPK,
		     .row_bytes = 2 * HIDDEN, .local = local);
		CALL(arena_moe_unpermute, .rows = AT(rows), .inverse = AT(inverse),
		     .weights = AT(weights), .offsets = AT(offsets), .out = AT(back),
		     .tokens = TOKENS, .topk = TOPK, .hidden = HIDDEN, .local = local,
		     .type = DERIVE_FP16);
		for (int i = 0; i < TOKENS * HIDDEN; i++) {
			int t = i / HIDDEN;
			float kept = (foreign && all[2 * t] == 1 ? 0 : 0.25f) +
				     (foreign && all[2 * t + 1] == 1 ? 0 : 0.75f);

			cr_assert_eq(number_from_half(back[t][i % HIDDEN]),
				     kept * number_from_half(x[t][i % HIDDEN]));
		}
	}
}

Test(derive_moe, rows_of_other_ranks_stay)
{
	uint8_t x[4] = { 1, 2, 3, 4 }, out[4];
	int32_t sorted[4] = { 2, 0, 1, 3 };
	int64_t offsets[2] = { 0, 2 };

	memset(out, 0xee, sizeof(out));
	CALL(arena_moe_permute_rows, .x = AT(x), .sorted = AT(sorted), .offsets = AT(offsets),
	     .out = AT(out), .count = 4, .topk = 1, .row_bytes = 1, .local = 1);
	cr_assert(out[0] == 3 && out[1] == 1 && out[2] == 0xee && out[3] == 0xee);
}

/* A capacity that is too small: what does not fit is dropped, the total counts it. */
Test(derive_moe, align_stays_in_its_capacity)
{
	int32_t all[6] = { 0, 1, 1, 0, 1, 2 }, sorted[8], blocks[4], total = 0;

	memset(sorted, 0xee, sizeof(sorted));
	memset(blocks, 0xee, sizeof(blocks));
	CALL(arena_moe_align, .ids = AT(all), .sorted = AT(sorted), .blocks = AT(blocks),
	     .total = AT(&total), .count = 6, .experts = 3, .block = 2, .capacity = 3, .tail = -7);
	cr_assert(sorted[0] == 0 && sorted[1] == 3 && sorted[2] == 1);
	cr_assert(blocks[0] == 0 && blocks[1] == 1 && total == 8);
	for (int i = 3; i < 8; i++)
		cr_assert_eq((uint32_t)sorted[i], 0xeeeeeeee);
	cr_assert_eq((uint32_t)blocks[2], 0xeeeeeeee);
	CALL(arena_moe_align, .ids = AT(all), .sorted = AT(sorted), .blocks = AT(blocks),
	     .total = AT(&total), .count = 6, .experts = 3, .block = 0, .capacity = 3);
	cr_assert_eq(total, 8);
}

Test(derive_moe, experts_that_are_not_taken)
{
	int32_t all[1] = { 0 }, sorted[1] = { 5 }, inverse[1] = { 5 };
	int64_t offsets[2] = { 5, 5 };

	for (uint32_t experts = 0; experts <= 1; experts++)
		CALL(arena_moe_permute_index, .ids = AT(all), .sorted = AT(sorted),
		     .inverse = AT(inverse), .offsets = AT(offsets), .count = 1, .experts = experts,
		     .local = 2 * experts);
	cr_assert(sorted[0] == 5 && inverse[0] == 5 && offsets[0] == 5 && offsets[1] == 5);
}

/* Garbage for indices and offsets: rows of zeros, rows that are left out. */
Test(derive_moe, indices_that_are_none)
{
	uint8_t x[2] = { 1, 2 }, out[5] = { 9, 9, 9, 9, 9 };
	int32_t sorted[4] = { -1, 3, 4, 0x7f7f7f7f }, inverse[4] = { 0, -1, 4, 3 };
	int64_t offsets[1] = { INT64_MAX };
	uint16_t rows[4] = { number_to_bf16(1), number_to_bf16(2), number_to_bf16(4),
			     number_to_bf16(8) },
		 sum = 0;
	float weights[4] = { 1, 1, 1, 1 };

	CALL(arena_moe_permute_rows, .x = AT(x), .sorted = AT(sorted), .offsets = AT(offsets),
	     .out = AT(out), .count = 4, .topk = 2, .row_bytes = 1);
	cr_assert(out[0] == 0 && out[1] == 2 && out[2] == 0 && out[3] == 0 && out[4] == 9);
	CALL(arena_moe_unpermute, .rows = AT(rows), .inverse = AT(inverse), .weights = AT(weights),
	     .offsets = AT(offsets), .out = AT(&sum), .tokens = 1, .topk = 4, .hidden = 1);
	cr_assert_eq(sum, number_to_bf16(9));
	offsets[0] = -1;
	CALL(arena_moe_permute_rows, .x = AT(x), .sorted = AT(sorted), .offsets = AT(offsets),
	     .out = AT(out), .count = 4, .topk = 2, .row_bytes = 1);
	cr_assert_eq(out[1], 2);
}

Test(derive_moe, cutlass)
{
	int64_t offsets[4] = { 0, 5, 5, 12 }, ab1[3], ab2[3], c1[3], s1[3][2], s2[3][2];
	int32_t size1[3][3], size2[3][3];
	uint64_t table[5][3];

	CALL(arena_cutlass_strides, .ab1 = AT(ab1), .ab2 = AT(ab2), .c1 = AT(c1), .experts = 3,
	     .hidden = 40, .inter = 24);
	CALL(arena_cutlass_s_strides, .s1 = AT(s1), .s2 = AT(s2), .experts = 3, .hidden = 40,
	     .inter = 24);
	for (int e = 0; e < 3; e++) {
		cr_assert(ab1[e] == 40 && ab2[e] == 24 && c1[e] == 48);
		cr_assert(s1[e][0] == 48 && s1[e][1] == 0 && s2[e][0] == 40 && s2[e][1] == 0);
	}
	for (uint32_t swap = 0; swap < 2; swap++) {
		CALL(arena_cutlass_problems, .offsets = AT(offsets), .sizes1 = AT(size1),
		     .sizes2 = AT(size2), .experts = 3, .hidden = 40, .inter = 24, .swap = swap);
		for (int e = 0; e < 3; e++) {
			int m = (int)(offsets[e + 1] - offsets[e]);

			cr_assert(size1[e][swap] == m && size1[e][1 - swap] == 48);
			cr_assert(size2[e][swap] == m && size2[e][1 - swap] == 40);
			cr_assert(size1[e][2] == 40 && size2[e][2] == 24);
		}
	}
	for (uint32_t flags = 0; flags < 4; flags++) {
		CALL(arena_cutlass_starts, .offsets = AT(offsets), .table = AT(table), .a = 1000,
		     .b = 2000, .out = 3000, .sa = 4000, .sb = 5000, .experts = 3, .n = 48, .k = 40,
		     .flags = flags);
		for (unsigned e = 0; e < 3; e++) {
			uint64_t row = (uint64_t)offsets[e];

			cr_assert_eq(table[0][e], 1000 + row * 40);
			cr_assert_eq(table[1][e], 2000 + e * 40 * 48);
			cr_assert_eq(table[2][e], 3000 + row * 48 * 2);
			cr_assert_eq(table[3][e], 4000 + (flags & CUTLASS_PER_TOKEN ? 4 * row : 0));
			cr_assert_eq(table[4][e],
				     5000 + 4 * (flags & CUTLASS_PER_CHANNEL ? 48 * e : e));
		}
	}
}
