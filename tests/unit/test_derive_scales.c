/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derivations of scales and small tensors: NVFP4's chain can be repeated, the engines' in-place
 * form cannot; rounding at the ends and in the middle; padding; the rest by its formula.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "derive.h"
#include "kernels/number.h"
#include "seed.h"

#define E 5

struct chain {
	float w13[E][2], w2[E], in13[E][2], in2[E]; /* sources */
	float a13[E], a2[E], a1_gscale[E], a2_gscale[E], g1[E], g2[E];
};

static void chain_fill(struct chain *c, uint64_t *seed)
{
	float *source = &c->w13[0][0];

	for (int i = 0; i < 6 * E; i++)
		source[i] = 100.0f + (float)seed_below(seed, 100000);
	for (int e = 0; e < E; e++)
		c->w13[e][1] = c->w13[e][0];
}

static void chain_run(struct chain *c, uint32_t flags)
{
	CALL(arena_nvfp4_scales, .w13 = AT(c->w13), .w2 = AT(c->w2), .in13 = AT(c->in13),
	     .in2 = AT(c->in2), .a13 = AT(c->a13), .a2 = AT(c->a2), .a1_gscale = AT(c->a1_gscale),
	     .a2_gscale = AT(c->a2_gscale), .g1 = AT(c->g1), .g2 = AT(c->g2), .experts = E,
	     .flags = flags);
}

Test(derive_scales, nvfp4_chain)
{
	uint64_t seed = seed_start("nvfp4");
	struct chain c, again;

	chain_fill(&c, &seed);
	chain_run(&c, 0);
	for (int e = 0; e < E; e++) {
		float w1 = 1 / c.in13[e][0], w3 = 1 / c.in13[e][1];
		float a13 = w1 > w3 ? w1 : w3, a2 = 1 / c.in2[e];

		cr_assert(c.a13[e] == a13 && c.a2[e] == a2);
		cr_assert(c.a1_gscale[e] == 1 / a13 && c.a2_gscale[e] == 1 / a2);
		cr_assert(c.g1[e] == 1 / c.w13[e][0] * a13 && c.g2[e] == 1 / c.w2[e] * a2);
	}
	again = c;
	chain_run(&again, 0);
	cr_assert_arr_eq(&again, &c, sizeof(c));
	chain_run(&again, NVFP4_GLOBAL);
	for (int e = 0; e < E; e++) {
		cr_assert(again.a13[e] == again.a13[0] && again.a13[e] >= c.a13[e]);
		cr_assert(again.a2[e] == again.a2[0] && again.a2[e] >= c.a2[e]);
	}
	chain_run(&again, NVFP4_INVERSE);
	for (int e = 0; e < E; e++)
		cr_assert_eq(again.g2[e], c.w2[e] * c.in2[e]);
}

/* What engines do: g1 lives where ws13 was, and is multiplied there. */
Test(derive_scales, in_place_accumulates)
{
	uint64_t seed = seed_start("accumulated");
	struct chain c;
	float in_place[E];

	chain_fill(&c, &seed);
	chain_run(&c, 0);
	for (int e = 0; e < E; e++)
		in_place[e] = 1 / c.w13[e][0];
	for (int pass = 0; pass < 2; pass++) {
		for (int e = 0; e < E; e++)
			in_place[e] *= c.a13[e];
		chain_run(&c, 0);
		for (int e = 0; e < E; e++)
			cr_assert_eq(in_place[e] == c.g1[e], pass == 0);
	}
}

Test(derive_scales, swizzle_inverse)
{
	static uint8_t in[3 * 200 * 9], to[3 * 256 * 12];
	uint64_t seed = seed_start("swizzle");

	for (uint32_t rows = 1; rows <= 200; rows = rows * 3 / 2 + 20)
		for (uint32_t cols = 1; cols <= 9; cols++) {
			uint32_t tiles = (cols + 3) / 4, bytes = (rows + 127) / 128 * 512 * tiles;
			uint32_t filled = 0;

			for (uint32_t i = 0; i < 3 * rows * cols; i++)
				in[i] = (uint8_t)(1 + seed_below(&seed, 255));
			memset(to, 0xee, sizeof(to));
			CALL(arena_nvfp4_swizzle, .sf = AT(in), .out = AT(to), .batch = 3,
			     .rows = rows, .cols = cols);
			/* Walk the result: [M/128, C/4, 32, 4, 4] of each matrix. */
			for (uint32_t i = 0; i < 3 * bytes; i++) {
				uint32_t at = i % bytes, tile = at / 512;
				uint32_t m = tile / tiles * 128 + at / 4 % 4 * 32 + at / 16 % 32;
				uint32_t c = tile % tiles * 4 + at % 4;
				bool inside = m < rows && c < cols;

				cr_assert_eq(to[i],
					     inside ? in[(i / bytes * rows + m) * cols + c] : 0);
				filled += inside;
			}
			cr_assert_eq(filled, 3 * rows * cols);
		}
}

Test(derive_scales, numbers_round)
{
	static const float at[8] = { .25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, 9 };
	static const uint8_t code[8] = { 0, 2, 2, 4, 4, 6, 6, 7 };

	for (int i = 0; i < 8; i++) {
		cr_assert_eq(number_to_e2m1(at[i]), code[i]);
		cr_assert_eq(number_to_e2m1(-at[i]), code[i] | 8);
	}
	for (unsigned b = 0; b < 256; b++)
		if ((b & 0x7f) != 0x7f)
			cr_assert_eq(number_to_e4m3(number_from_e4m3((uint8_t)b)), b);
	cr_assert_eq(number_to_e4m3(1e9f), 0x7e);
	cr_assert_eq(number_to_e4m3(NAN), 0x7f);
	for (unsigned h = 0; h < 65536; h++)
		if ((h & 0x7c00) != 0x7c00)
			cr_assert_eq(number_to_half(number_from_half((uint16_t)h)), h);
	for (unsigned h = 0; h < 65536; h++)
		if ((h & 0x7f80) != 0x7f80)
			cr_assert_eq(number_to_bf16(number_from_bf16((uint16_t)h)), h);
	cr_assert_eq(number_to_half(65519), 0x7bff);
	cr_assert_eq(number_to_half(-65520), 0xfc00);
	cr_assert_eq(number_to_half(number_power(-25)), 0); /* half way: to even */
	cr_assert_eq(number_to_half(3 * number_power(-25)), 2);
	cr_assert_eq(number_to_half(2049), 0x6800);
	cr_assert_eq(number_to_half(2051), 0x6802);
	cr_assert_eq(number_to_bf16(NAN), 0x7fff);
	cr_assert_eq(number_to_bf16(1 + 1 / 256.f), 0x3f80);
	cr_assert_eq(number_to_bf16(1 + 3 / 256.f), 0x3f82);
}

Test(derive_scales, nvfp4_quant)
{
	enum { ROWS = 3, COLS = 64 };
	uint64_t seed = seed_start("quant");
	uint16_t x[ROWS * COLS];
	uint8_t codes[ROWS * COLS / 2], sf[ROWS * COLS / 16];
	float g = 448 * 6 / 4.0f, off = 0, all = 0;

	for (int i = 0; i < ROWS * COLS; i++)
		x[i] = number_to_bf16((float)seed_below(&seed, 8001) / 1000 - 4);
	memset(x, 0, 32); /* a block of zeros */
	CALL(arena_nvfp4_quant, .x = AT(x), .gscale = AT(&g), .codes = AT(codes), .sf = AT(sf),
	     .rows = ROWS, .cols = COLS, .type = DERIVE_BF16);
	cr_assert_eq(sf[0], 0);
	for (int b = 0; b < ROWS * COLS / 16; b++) {
		float amax = 0;

		for (int i = 16 * b; i < 16 * b + 16; i++)
			if (number_from_bf16(x[i] & 0x7fff) > amax)
				amax = number_from_bf16(x[i] & 0x7fff);
		cr_assert_eq(sf[b], number_to_e4m3(g * (amax / 6)));
	}
	for (int i = 0; i < ROWS * COLS; i++) {
		uint8_t code = codes[i / 2] >> i % 2 * 4 & 15;
		float back = number_from_e2m1(code) * number_from_e4m3(sf[i / 16]) / g;
		float value = number_from_bf16(x[i]);

		off += (back - value) * (back - value);
		all += value * value;
	}
	cr_assert_lt(off, 0.12f * 0.12f * all);
}

Test(derive_scales, trtllm)
{
	float w1[E], w2[E], a1[E], a2[E], g1[E], g2[E], g1_c[E];

	for (int e = 0; e < E; e++) {
		w1[e] = 0.1f * (float)(e + 1);
		w2[e] = 0.3f * (float)(e + 1);
		a1[e] = 0.7f + (float)e;
		a2[e] = 0.9f + (float)e;
	}
	for (uint32_t flags = 0; flags < 4; flags++) {
		CALL(arena_trtllm_fp8, .w1 = AT(w1), .a1 = AT(a1), .w2 = AT(w2), .a2 = AT(a2),
		     .g1 = AT(g1), .g2 = AT(g2), .g1_c = AT(g1_c), .experts = E, .flags = flags);
		for (int e = 0; e < E; e++) {
			int in = flags & TRTLLM_ONE ? 0 : e;

			cr_assert(g1[e] == w1[e] * a1[in] && g2[e] == w2[e] * a2[in]);
			cr_assert_eq(g1_c[e], (flags & TRTLLM_GATED ? g1[e] : 1) / a2[in]);
		}
	}
}

Test(derive_scales, sinks_and_b12x)
{
	uint16_t sinks[E] = { 0x3c00, 0xbc00, 0x0001, 0x7bff, 0x8000 };
	float f32[E], ws[2] = { 0.5f, 3.0f };
	uint8_t sf[2][E] = { { 0x38, 0x40, 0x01, 0x7e, 0 }, { 0x38, 0x40, 0x01, 0x7e, 0 } };
	uint8_t baked[2][E];

	CALL(arena_sinks_f32, .in = AT(sinks), .out = AT(f32), .count = E, .type = DERIVE_FP16);
	cr_assert(f32[0] == 1 && f32[1] == -1 && f32[2] == number_power(-24) && f32[3] == 65504);
	CALL(arena_sinks_f32, .in = AT(sinks), .out = AT(f32), .count = E, .type = DERIVE_BF16);
	cr_assert(f32[0] == 0.0078125f && f32[1] == -0.0078125f);
	CALL(arena_b12x_scales, .sf = AT(sf), .ws = AT(ws), .out = AT(baked), .experts = 2,
	     .per_expert = E);
	cr_assert(baked[0][0] == 0x30 && baked[0][1] == 0x38 && baked[0][2] == 0 &&
		  baked[0][3] == 0x76); /* 2^-10 is half way from 0 to the least number */
	cr_assert(baked[1][0] == 0x44 && baked[1][2] == 3 && baked[1][3] == 0x7e);
	CALL(arena_b12x_input_scale, .a2_gscale = AT(ws), .out = AT(f32), .experts = 2);
	cr_assert(f32[0] == 0.5f && f32[1] == 3);
	CALL(arena_b12x_input_scale, .out = AT(f32), .experts = 2);
	cr_assert(f32[0] == 1 && f32[1] == 1);
}
