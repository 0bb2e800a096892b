/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The twins of the derivations against an independent program: every row of vectors.def, by its
 * hash. A last test sees to it that no row was left out.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "derive.h"

static struct vector {
	const char *name;
	uint64_t hash;
	bool seen;
} vectors[] = {
#define VECTOR(name, hash) { #name, hash, false },
#include "vectors.def"
#undef VECTOR
};
#define VECTORS (sizeof(vectors) / sizeof(vectors[0]))

static void expect(const char *name, const void *data, size_t bytes)
{
	for (size_t i = 0; i < VECTORS; i++) {
		if (strcmp(vectors[i].name, name))
			continue;
		cr_expect_eq(fnv64(data, bytes), vectors[i].hash, "%s: %lx", name,
			     (unsigned long)fnv64(data, bytes));
		vectors[i].seen = true;
		return;
	}
	cr_assert_fail("%s is not in vectors.def", name);
}

#define EXPECT(data, bytes, ...)                             \
	do {                                                 \
		char name_[64];                              \
                                                             \
		snprintf(name_, sizeof(name_), __VA_ARGS__); \
		expect(name_, data, bytes);                  \
	} while (0)

static uint32_t codes[128 * 128], packed[128 * 128], out[128 * 128];

/* g_idx of @seed, sorted; the order is left in @perm. */
static void sort(uint32_t k, uint32_t seed, int32_t *perm)
{
	uint32_t g[128];
	int32_t sorted[128];

	lcg_fill(seed, 3, g, k);
	CALL(arena_argsort, .keys = AT(g), .sorted = AT(sorted), .order = AT(perm), .count = k);
	EXPECT(sorted, 4 * k, "gidx_%u_seed%u_sorted", k, seed);
	EXPECT(perm, 4 * k, "gidx_%u_seed%u_perm_stable", k, seed);
}

static void repack(struct arena_marlin_repack_args args, uint32_t flags, const int32_t *perm)
{
	args.q = AT(packed);
	args.out = AT(out);
	args.flags = flags;
	args.perm = AT(perm);
	memset(out, 0xee, sizeof(out));
	arena_marlin_repack_twin(&args);
}

static void marlin(uint32_t bits, uint32_t seed, uint32_t k, uint32_t n)
{
	const struct arena_marlin_repack_args shape = { .k = k, .n = n, .bits = bits };
	size_t bytes = (size_t)k * n * bits / 8;
	int32_t perm[128];

	lcg_fill(seed, (1u << bits) - 1, codes, (size_t)k * n);
	sort(k, seed + 90, perm);
	gptq_pack(codes, k, n, bits, packed);
	EXPECT(packed, bytes, "gptq_w%u_%ux%u_in", bits, k, n);
	repack(shape, 0, NULL);
	EXPECT(out, bytes, "marlin_w%u_%ux%u", bits, k, n);
	repack(shape, 0, perm);
	EXPECT(out, bytes, "marlin_w%u_%ux%u_actorder", bits, k, n);
	if (k % 32 == 0) {
		repack(shape, MARLIN_A8, NULL);
		EXPECT(out, bytes, "marlin_w%u_%ux%u_a8", bits, k, n);
	}
	/* AWQ's order of the same codes gives the same. */
	column_pack(codes, k, (uint32_t[]){ n, bits }, awq_places(bits), packed);
	EXPECT(packed, bytes, "awq_w%u_%ux%u_in", bits, k, n);
	repack(shape, MARLIN_AWQ, NULL);
	EXPECT(out, bytes, "marlin_w%u_%ux%u", bits, k, n);
}

static void scales(uint32_t seed, uint32_t groups, bool channel, const char *name)
{
	uint16_t in[4 * 128], to[4 * 128];
	struct lcg g = { seed };

	for (uint32_t i = 0; i < groups * 128; i++)
		in[i] = (uint16_t)lcg_next(&g);
	CALL(arena_marlin_scales, .s = AT(in), .out = AT(to), .groups = groups, .n = 128,
	     .channel = channel);
	EXPECT(to, groups * 256, "%s", name);
}

static void zeros(uint32_t bits, uint32_t seed)
{
	const uint32_t shape[2] = { 128, bits };

	lcg_fill(seed, (1u << bits) - 1, codes, 4 * 128);
	for (uint32_t awq = 0; awq < 2; awq++) {
		column_pack(codes, 4, shape, awq ? awq_places(bits) : NULL, packed);
		CALL(arena_marlin_zeros, .z = AT(packed), .out = AT(out), .groups = 4, .n = 128,
		     .bits = bits, .awq = awq);
		EXPECT(out, 4 * 128 * bits / 8, "marlin_zp%u_4x128", bits);
	}
}

static void swizzle(uint32_t rows, uint32_t cols, uint32_t seed)
{
	uint8_t in[256 * 16], to[256 * 16];
	struct lcg g = { seed };

	for (uint32_t i = 0; i < rows * cols; i++)
		in[i] = lcg_next(&g) & 0x7e;
	memset(to, 0xee, sizeof(to));
	CALL(arena_nvfp4_swizzle, .sf = AT(in), .out = AT(to), .batch = 1, .rows = rows,
	     .cols = cols);
	EXPECT(to, DERIVE_UP(rows, 128) * DERIVE_UP(cols, 4), "nvfp4_swizzle_%ux%u", rows, cols);
}

static void align(const uint32_t *ids, uint32_t block)
{
	uint32_t capacity = 16 + 8 * (block - 1);
	int32_t sorted[136], blocks[10], total;

	CALL(arena_moe_align, .ids = AT(ids), .sorted = AT(sorted), .blocks = AT(blocks),
	     .total = AT(&total), .count = 16, .experts = 8, .block = block, .capacity = capacity,
	     .tail = -1);
	EXPECT(sorted, 4 * capacity, "moe_align_8x2_E8_b%u_ids_stable", block);
	EXPECT(blocks, 4 * DERIVE_CEIL(capacity, block), "moe_align_8x2_E8_b%u_experts", block);
	EXPECT(&total, 4, "moe_align_8x2_E8_b%u_npost", block);
}

static void permute(const uint32_t *ids)
{
	int32_t sorted[16], inverse[16];
	int64_t offsets[9];

	CALL(arena_moe_permute_index, .ids = AT(ids), .sorted = AT(sorted), .inverse = AT(inverse),
	     .offsets = AT(offsets), .count = 16, .experts = 8, .local = 8);
	EXPECT(sorted, sizeof(sorted), "moe_permute_8x2_E8_rows");
	EXPECT(inverse, sizeof(inverse), "moe_permute_8x2_E8_inverse");
	EXPECT(offsets, sizeof(offsets), "moe_permute_8x2_E8_offsets");
}

static void exllama(void)
{
	uint32_t in[32], to[32];

	lcg_fill(11, 0xffff, in, 32);
	for (int i = 0; i < 32; i++)
		in[i] *= 65537;
	CALL(arena_exllama_shuffle, .q = AT(in), .out = AT(to), .words = 32);
	EXPECT(to, sizeof(to), "exllama_shuffle4_2x16");
}

Test(derive_vectors, all)
{
	uint32_t ids[16];

	for (uint32_t bits = 4; bits <= 8; bits += 4) {
		marlin(bits, bits / 4, 16, 64);
		marlin(bits, bits / 4, 128, 128);
	}
	scales(3, 4, false, "marlin_scale_grouped_4x128_u16");
	scales(4, 1, true, "marlin_scale_channel_1x128_u16");
	zeros(4, 5);
	zeros(8, 6);
	swizzle(128, 4, 7);
	swizzle(200, 9, 8);
	swizzle(256, 16, 9);
	lcg_fill(10, 7, ids, 16);
	align(ids, 4);
	align(ids, 16);
	permute(ids);
	exllama();
	for (size_t i = 0; i < VECTORS; i++)
		cr_expect(vectors[i].seen, "%s was not computed", vectors[i].name);
}
