/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derivations of weights: every element finds its way back from the derived layout, by formulas
 * that are the inverse of the twins'; shapes that are no multiple of anything; padding.
 */
#include <criterion/criterion.h>

#include "derive.h"
#include "kernels/marlin.h"
#include "kernels/number.h"
#include "seed.h"

#define CODES_MAX (128 * 192)

static uint32_t codes[CODES_MAX], packed[CODES_MAX], out[CODES_MAX];
static int32_t perm[256];

static uint32_t place_of(const uint8_t *order, uint32_t value)
{
	uint32_t i = 0;

	while (order[i] != value)
		i++;
	return i;
}

/* Element (@k, @n) of a repacked weight with @across columns, for 16-bit activations. */
static uint32_t marlin_at(uint32_t k, uint32_t n, uint32_t across, uint32_t bits)
{
	static const uint8_t four[8] = { 0, 2, 4, 6, 1, 3, 5, 7 }, eight[4] = { 0, 2, 1, 3 };
	uint32_t kr = k % 16, nr = n % 64, w = nr / 16, h = nr % 16 / 8;
	uint32_t t = nr % 8 * 4 + kr % 8 / 2, i = kr % 2 + 2 * (kr / 8);
	uint32_t base = (k / 16 * (across / 64) + n / 64) * 32 * bits;

	if (bits == 4)
		return out[base + 4 * t + w] >> 4 * place_of(four, 4 * h + i) & 15;
	return out[base + 8 * t + 2 * w + h] >> 8 * place_of(eight, i) & 255;
}

/* The same for 8-bit activations. */
static uint32_t marlin_a8_at(uint32_t k, uint32_t n, uint32_t across, uint32_t bits)
{
	static const uint8_t four[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };
	uint32_t kr = k % 32, nr = n % 32, w = nr / 8, t = nr % 8 * 4 + kr % 16 / 4;
	uint32_t i = kr % 4, h = kr / 16, base = (k / 32 * (across / 32) + n / 32) * 32 * bits;

	if (bits == 4)
		return out[base + 4 * t + w] >> 4 * place_of(four, 4 * h + i) & 15;
	return out[base + 8 * t + 2 * w + h] >> 8 * i & 255;
}

static void shuffle(uint32_t k, uint64_t *seed)
{
	for (uint32_t i = 0; i < k; i++) {
		uint32_t j = (uint32_t)seed_below(seed, i + 1);

		perm[i] = perm[j];
		perm[j] = (int32_t)i;
	}
}

static void check_repack(uint32_t k, uint32_t n, uint32_t bits, uint32_t flags)
{
	for (uint32_t order = 0; order < 2; order++) {
		memset(out, 0xee, sizeof(out));
		CALL(arena_marlin_repack, .q = AT(packed), .perm = order ? AT(perm) : 0,
		     .out = AT(out), .k = k, .n = n, .bits = bits, .flags = flags);
		for (uint32_t i = 0; i < k; i++)
			for (uint32_t c = 0; c < n; c++) {
				uint32_t row = order ? (uint32_t)perm[i] : i;
				uint32_t got = flags & MARLIN_A8 ? marlin_a8_at(i, c, n, bits)
								 : marlin_at(i, c, n, bits);

				cr_assert_eq(got, codes[row * n + c], "%ux%u w%u flags %u: %u,%u",
					     k, n, bits, flags, i, c);
			}
	}
}

Test(derive_weights, marlin_repack_inverse)
{
	static const uint32_t shapes[][2] = { { 16, 64 }, { 32, 64 }, { 64, 192 }, { 96, 128 } };
	uint64_t seed = seed_start("marlin");

	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
		for (uint32_t bits = 4; bits <= 8; bits += 4) {
			uint32_t k = shapes[s][0], n = shapes[s][1];

			for (uint32_t i = 0; i < k * n; i++)
				codes[i] = (uint32_t)seed_below(&seed, 1u << bits);
			shuffle(k, &seed);
			for (uint32_t flags = 0; flags < 4; flags++) {
				if (flags & MARLIN_AWQ)
					column_pack(codes, k, (uint32_t[]){ n, bits },
						    awq_places(bits), packed);
				else
					gptq_pack(codes, k, n, bits, packed);
				if (k % 32 == 0 || !(flags & MARLIN_A8))
					check_repack(k, n, bits, flags);
			}
		}
}

static bool taken(uint32_t k, uint32_t n)
{
	return (n % 64 == 0 && k % 128 == 0) || (n % 128 == 0 && k % 64 == 0);
}

Test(derive_weights, marlin_padding)
{
	uint32_t k = 64, n = 128;

	marlin_pad(&k, &n, 128); /* taken as it is, whatever the groups */
	cr_assert(k == 64 && n == 128);
	k = 192;
	n = 64;
	marlin_pad(&k, &n, -1); /* 256 x 64 < 192 x 128 */
	cr_assert(k == 256 && n == 64, "%u %u", k, n);
	k = 64;
	n = 100;
	marlin_pad(&k, &n, 64); /* 128 x 128 > 64 x 128 */
	cr_assert(k == 64 && n == 128, "%u %u", k, n);
	k = 64;
	n = 64;
	marlin_pad(&k, &n, -1); /* 128 x 64 and 64 x 128: the first of equals */
	cr_assert(k == 128 && n == 64, "%u %u", k, n);
	k = 130;
	n = 64;
	marlin_pad(&k, &n, 48); /* 384 x 64 = 192 x 128: the one of the smaller sum */
	cr_assert(k == 192 && n == 128, "%u %u", k, n);
	for (uint32_t i = 1; i < 700; i += 13)
		for (uint32_t group = 32; group <= 128; group *= 2) {
			k = i;
			n = 701 - i;
			marlin_pad(&k, &n, (int32_t)group);
			cr_assert(taken(k, n) && k >= i && n >= 701 - i && k % group == 0);
		}
}

Test(derive_weights, argsort_is_stable)
{
	uint64_t seed = seed_start("argsort");
	int32_t key[200], order[200], sorted[200];

	for (uint32_t n = 1; n <= 200; n = n * 3 / 2 + 1) {
		for (uint32_t i = 0; i < n; i++)
			key[i] = (int32_t)seed_below(&seed, 7) - 3;
		CALL(arena_argsort, .keys = AT(key), .sorted = AT(sorted), .order = AT(order),
		     .count = n);
		for (uint32_t i = 0; i < n; i++)
			cr_assert_eq(sorted[i], key[order[i]]);
		for (uint32_t i = 1; i < n; i++)
			cr_assert(sorted[i - 1] < sorted[i] ||
				  (sorted[i - 1] == sorted[i] && order[i - 1] < order[i]));
	}
}

Test(derive_weights, machete_rows_and_zeros)
{
	uint64_t seed = seed_start("machete");
	uint16_t scale[3 * 24], zero[3 * 24];

	for (uint32_t bits = 4; bits <= 8; bits += 4) {
		for (uint32_t i = 0; i < 40 * 24; i++)
			codes[i] = (uint32_t)seed_below(&seed, 1u << bits);
		shuffle(40, &seed);
		gptq_pack(codes, 40, 24, bits, packed);
		CALL(arena_machete_permute, .q = AT(packed), .perm = AT(perm), .out = AT(out),
		     .k = 40, .n = 24, .bits = bits);
		for (uint32_t i = 0; i < 40 * 24; i++)
			cr_assert_eq(out[i / 24 / (32 / bits) * 24 + i % 24] >>
						     i / 24 % (32 / bits) * bits &
					     ((1u << bits) - 1),
				     codes[(uint32_t)perm[i / 24] * 24 + i % 24]);
		column_pack(codes, 3, (uint32_t[]){ 24, bits }, NULL, packed);
		for (uint32_t i = 0; i < 3 * 24; i++)
			scale[i] = number_to_bf16(0.25f + (float)i / 64);
		CALL(arena_machete_zeros, .scales = AT(scale), .z = AT(packed), .out = AT(zero),
		     .groups = 3, .n = 24, .bits = bits, .type = DERIVE_BF16);
		for (uint32_t i = 0; i < 3 * 24; i++)
			cr_assert_eq(zero[i],
				     number_to_bf16(-number_from_bf16(scale[i]) * (float)codes[i]));
	}
}

Test(derive_weights, exllama_inverse)
{
	uint32_t in[7], twice[7];

	lcg_fill(5, 0xffff, in, 7);
	in[0] = 0x76543210;
	CALL(arena_exllama_shuffle, .q = AT(in), .out = AT(out), .words = 7);
	cr_assert_eq(out[0], 0x75316420);
	for (int w = 0; w < 7; w++)
		for (int i = 0; i < 8; i++)
			cr_assert_eq(out[w] >> (i / 2 * 4 + i % 2 * 16) & 15, in[w] >> 4 * i & 15);
	/* In place gives the same once; a second pass does not: the trap of exllama.c. */
	memcpy(twice, in, sizeof(in));
	CALL(arena_exllama_shuffle, .q = AT(twice), .out = AT(twice), .words = 7);
	cr_assert_arr_eq(twice, out, sizeof(in));
	CALL(arena_exllama_shuffle, .q = AT(twice), .out = AT(twice), .words = 7);
	cr_assert_arr_neq(twice, out, sizeof(in));
}

/* Odd extents; the elements tell where they come from. */
static void check_mla(uint32_t word)
{
	enum { HEADS = 3, NOPE = 5, V = 7, LATENT = 11, ROWS = HEADS * (NOPE + V) };
	uint32_t uk[HEADS * NOPE * LATENT], uv[HEADS * V * LATENT], w[ROWS * LATENT];

	for (uint32_t i = 0; i < ROWS * LATENT; i++) {
		uint32_t value = 0x10001 * (i + 1);

		memcpy((char *)w + i * word, &value, word);
	}
	CALL(arena_mla_split, .w = AT(w), .uk = AT(uk), .uv = AT(uv), .heads = HEADS, .nope = NOPE,
	     .v = V, .latent = LATENT, .word = word);
	for (uint32_t h = 0; h < HEADS; h++)
		for (uint32_t r = 0; r < NOPE + V; r++)
			for (uint32_t l = 0; l < LATENT; l++) {
				const char *from =
					(char *)w + ((h * (NOPE + V) + r) * LATENT + l) * word;
				const char *k = (char *)uk + ((h * NOPE + r) * LATENT + l) * word;
				const char *v =
					(char *)uv + ((h * LATENT + l) * V + r - NOPE) * word;

				cr_assert_eq(memcmp(r < NOPE ? k : v, from, word), 0);
			}
}

Test(derive_weights, mla_split)
{
	check_mla(2);
	check_mla(4);
}

Test(derive_weights, mla_from_fp8)
{
	uint8_t w[5 * 7];
	float scale[2 * 3];
	uint16_t bf16[5 * 7];

	for (uint32_t i = 0; i < 35; i++)
		w[i] = (uint8_t)(i * 37 % 0x7f);
	for (uint32_t i = 0; i < 6; i++)
		scale[i] = 1.0f + (float)i / 8;
	CALL(arena_mla_dequant, .w = AT(w), .scales = AT(scale), .out = AT(bf16), .rows = 5,
	     .cols = 7, .block_rows = 3, .block_cols = 3);
	for (uint32_t i = 0; i < 35; i++)
		cr_assert_eq(bf16[i], number_to_bf16(number_from_e4m3(w[i]) *
						     scale[i / 7 / 3 * 3 + i % 7 / 3]));
}

Test(derive_weights, padding_is_zero_each_time)
{
	uint8_t in[2 * 3 * 5], to[2 * 4 * 8];

	for (uint32_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i + 1);
	for (int pass = 0; pass < 2; pass++) {
		memset(to, 0xee, sizeof(to));
		CALL(arena_pad, .in = AT(in), .out = AT(to), .batch = 2, .rows = 3, .width = 5,
		     .out_rows = 4, .out_width = 8);
		for (uint32_t i = 0; i < sizeof(to); i++) {
			uint32_t b = i / 32, r = i / 8 % 4, c = i % 8;

			cr_assert_eq(to[i], r < 3 && c < 5 ? in[(b * 3 + r) * 5 + c] : 0);
		}
	}
}

/* Rows of the order that are none: as rows of zeros. */
Test(derive_weights, indices_that_are_none)
{
	enum { K = 32, N = 64, BITS = 4, WORDS = K * N * BITS / 32, GONE = 9 };
	static const int32_t none[] = { -1, K, INT32_MIN, INT32_MAX, 0x7f7f7f7f };
	uint32_t of_rows[K * N], q[WORDS], want[WORDS], got[WORDS];
	int32_t rows[K];

	lcg_fill(7, 15, of_rows, K * N);
	memset(of_rows + GONE * N, 0, N * sizeof(*of_rows));
	gptq_pack(of_rows, K, N, BITS, q);
	for (int kernel = 0; kernel < 2; kernel++)
		for (int i = -1; i < (int)(sizeof(none) / sizeof(none[0])); i++) {
			for (int r = 0; r < K; r++)
				rows[r] = K - 1 - r;
			rows[K - 1 - GONE] = i < 0 ? GONE : none[i];
			if (kernel == 0)
				CALL(arena_machete_permute, .q = AT(q), .perm = AT(rows),
				     .out = AT(got), .k = K, .n = N, .bits = BITS);
			else
				CALL(arena_marlin_repack, .q = AT(q), .perm = AT(rows),
				     .out = AT(got), .k = K, .n = N, .bits = BITS);
			if (i < 0)
				memcpy(want, got, sizeof(want));
			cr_assert_arr_eq(got, want, sizeof(want), "%d %d", kernel, i);
		}
}

static void not_taken(const char *name, const void *args, const char *param)
{
	struct derive_limit limit = { 0 };

	cr_assert_not(derive_find(name)->takes(args, &limit), "%s: %s", name, param);
	cr_assert_str_eq(limit.param, param);
	cr_assert_not_null(limit.takes);
}

#define NOT(kernel, param, ...) not_taken(#kernel, &(struct kernel##_args){ __VA_ARGS__ }, #param)

Test(derive_weights, numbers_that_are_not_taken)
{
	const struct arena_marlin_repack_args good = { .k = 32, .n = 64, .bits = 8 };
	struct derive_limit limit;

	cr_assert(derive_find("arena_marlin_repack")->takes(&good, &limit));
	NOT(arena_marlin_repack, bits, .k = 32, .n = 64, .bits = 3);
	NOT(arena_marlin_repack, bits, .k = 32, .n = 64);
	NOT(arena_marlin_repack, k, .k = 8, .n = 64, .bits = 4);
	NOT(arena_marlin_repack, k, .k = 16, .n = 32, .bits = 4, .flags = MARLIN_A8);
	NOT(arena_marlin_repack, n, .k = 16, .n = 32, .bits = 4);
	NOT(arena_marlin_repack, flags, .k = 16, .n = 64, .bits = 4, .flags = 4);
	NOT(arena_marlin_scales, n, .n = 32);
	NOT(arena_marlin_zeros, bits, .n = 64);
	NOT(arena_machete_permute, bits, .k = 32);
	NOT(arena_machete_permute, k, .k = 4, .bits = 4);
	NOT(arena_machete_zeros, type, .n = 8, .bits = 4, .type = 2);
	NOT(arena_mla_dequant, block_rows, .block_cols = 1);
	NOT(arena_mla_dequant, block_cols, .block_rows = 1);
	NOT(arena_mla_split, word, .word = 1);
	NOT(arena_moe_align, block, .experts = 1);
	NOT(arena_moe_align, experts, .experts = 1025, .block = 1);
	NOT(arena_moe_permute_index, experts, .local = 0);
	NOT(arena_moe_permute_index, local, .experts = 4, .local = 5);
	NOT(arena_moe_permute_rows, topk, .count = 4);
	NOT(arena_moe_permute_rows, count, .count = 5, .topk = 2);
	NOT(arena_nvfp4_quant, cols, .cols = 8);
	NOT(arena_pad, rows, .rows = 2, .out_rows = 1);
	NOT(arena_pad, width, .width = 2, .out_width = 1);
}

Test(derive_weights, rows_are_described)
{
	const struct derive *d = derive_find("arena_marlin_repack");
	struct arena_marlin_repack_args args = { 16, 0, 48, .k = 32, .n = 64, .bits = 4 };
	struct derive_range range[DERIVE_PARAMS_MAX];

	cr_assert(d != NULL && d->params_count == 7 && d->args_bytes == sizeof(args));
	cr_assert_str_eq(d->params[6].name, "flags");
	cr_assert_eq(d->params[6].offset, offsetof(struct arena_marlin_repack_args, flags));
	cr_assert_eq(d->ranges(&args, range), 3);
	cr_assert(range[0].address == 16 && range[0].bytes == 1024 && !range[0].result);
	cr_assert(range[1].bytes == 0 && range[2].address == 48 && range[2].result);
	cr_assert_null(derive_find("arena_publish"));
	for (size_t i = 0; (d = derive_at(i)) != NULL; i++) {
		cr_assert_not_null(derive_twin(d->name), "%s", d->name);
		cr_assert_leq(d->args_bytes, DERIVE_ARGS_MAX);
	}
}
