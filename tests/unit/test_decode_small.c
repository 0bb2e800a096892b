/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GEMMs of FP8 and NVFP4, dense and grouped by expert: the twins against the tensors' own numbers
 * in double. Block scales go through the swizzle, strides and sizes through their derivations, so
 * both have to agree on the layout.
 */
#include "decode_exact.h"

#define N_MAX	 200
#define K_MAX	 304
#define ROWS_MAX 150
#define EXPERTS	 4

static uint8_t x[ROWS_MAX * K_MAX], w[EXPERTS * N_MAX * K_MAX];
static uint16_t out[ROWS_MAX * N_MAX], bias[N_MAX];
static float x_scales[ROWS_MAX], w_scales[EXPERTS * N_MAX];

/* ---- FP8 ---- */

static struct exact fp8_product(const uint8_t *a, const uint8_t *b, uint32_t k, double scale)
{
	struct exact e = { 0, 0 };

	for (uint32_t i = 0; i < k; i++)
		exact_add(&e, e4m3_value(a[i]) * e4m3_value(b[i]) * scale);
	return e;
}

static void fp8_draw(uint64_t *seed)
{
	e4m3_fill(seed, x, sizeof(x));
	e4m3_fill(seed, w, sizeof(w));
	bf16_fill(seed, bias, N_MAX);
	f32_fill(seed, x_scales, ROWS_MAX);
	f32_fill(seed, w_scales, EXPERTS * N_MAX);
	memset(out, 0xee, sizeof(out));
}

static void check_fp8(uint32_t tokens, uint32_t n, uint32_t k, uint32_t form)
{
	uint32_t flags = (form & 1 ? DECODE_PER_TOKEN : 0) | (form & 2 ? DECODE_PER_CHANNEL : 0);

	DECODE_CALL(decode_fp8_gemm, .x = AT(x), .w = AT(w), .x_scales = AT(x_scales),
		    .w_scales = AT(w_scales), .bias = form & 4 ? AT(bias) : 0, .out = AT(out),
		    .tokens = tokens, .n = n, .k = k, .flags = flags);
	for (uint32_t t = 0; t < tokens; t++)
		for (uint32_t c = 0; c < n; c++) {
			double scale = (double)x_scales[form & 1 ? t : 0] *
				       (double)w_scales[form & 2 ? c : 0];
			struct exact e = fp8_product(x + t * k, w + c * k, k, scale);

			if (form & 4)
				exact_add(&e, bf16_value(bias[c]));
			cr_assert(near_sum(out[t * n + c], e, k + 12), "%ux%ux%u form %u: [%u, %u]",
				  tokens, n, k, form, t, c);
		}
	cr_assert_eq(out[tokens * n], 0xeeee);
}

Test(decode_small, fp8_gemm)
{
	uint64_t seed = seed_start("decode fp8");

	for (uint32_t form = 0; form < 8; form++) {
		fp8_draw(&seed);
		check_fp8(1, 33, 40, form);
		fp8_draw(&seed);
		check_fp8(18, 7, 301, form);
	}
}

/* ---- FP8 by expert ---- */

/* Expert 1 has no rows, and one row belongs to nobody. */
static const int64_t offsets[EXPERTS + 1] = { 0, 3, 3, 22, 25 };
static int64_t ab_strides[EXPERTS], c_strides[EXPERTS], other_strides[EXPERTS];
static int32_t sizes[3 * EXPERTS], other_sizes[3 * EXPERTS];

static void grouped_call(uint32_t n, uint32_t k, uint32_t flags)
{
	memset(out, 0xee, sizeof(out));
	DECODE_CALL(decode_moe_gemm_fp8, .x = AT(x), .w = AT(w), .x_scales = AT(x_scales),
		    .w_scales = AT(w_scales), .offsets = AT(offsets), .sizes = AT(sizes),
		    .ab_strides = AT(ab_strides), .c_strides = AT(c_strides), .out = AT(out),
		    .rows = 26, .experts = EXPERTS, .n = n, .k = k, .flags = flags);
}

/* @p skipped: an expert whose rows stay as they were. */
static void check_grouped(uint32_t n, uint32_t k, uint32_t form, int skipped)
{
	grouped_call(n, k, (form & 1 ? DECODE_PER_TOKEN : 0) | (form & 2 ? DECODE_PER_CHANNEL : 0));
	for (int e = 0; e < EXPERTS; e++)
		for (int64_t r = offsets[e]; r < offsets[e + 1]; r++)
			for (uint32_t c = 0; c < n; c++) {
				uint64_t channel = (uint64_t)e * n + c;
				double scale = (double)x_scales[form & 1 ? r : 0] *
					       (double)w_scales[form & 2 ? channel : (uint64_t)e];
				struct exact sum =
					fp8_product(x + r * k, w + channel * k, k, scale);
				uint16_t got = out[(uint64_t)r * n + c];

				cr_assert(e == skipped ? got == 0xeeee : near_sum(got, sum, k + 12),
					  "form %u: expert %d row %ld column %u", form, e, (long)r,
					  c);
			}
	cr_assert_eq(out[25 * n], 0xeeee);
}

static void grouped_process(uint32_t hidden, uint32_t inter, uint32_t swap)
{
	CALL(arena_cutlass_strides, .ab1 = AT(ab_strides), .ab2 = AT(other_strides),
	     .c1 = AT(c_strides), .experts = EXPERTS, .hidden = hidden, .inter = inter);
	CALL(arena_cutlass_problems, .offsets = AT(offsets), .sizes1 = AT(sizes),
	     .sizes2 = AT(other_sizes), .experts = EXPERTS, .hidden = hidden, .inter = inter,
	     .swap = swap);
}

Test(decode_small, moe_gemm_fp8)
{
	uint64_t seed = seed_start("decode moe fp8");

	for (uint32_t form = 0; form < 8; form++) {
		fp8_draw(&seed);
		grouped_process(72, 17, form >> 2);
		check_grouped(2 * 17, 72, form, -1);
	}
}

/* Of memory that was freed and used again: an expert that would reach outside is skipped. */
Test(decode_small, moe_gemm_fp8_stale)
{
	uint64_t seed = seed_start("decode moe fp8 stale");
	static const int64_t bad[] = { 0, -72, 71, 1 << 20, INT64_MAX, INT64_MIN };

	fp8_draw(&seed);
	grouped_process(72, 17, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ab_strides[2] = bad[i];
		check_grouped(34, 72, 0, 2);
		ab_strides[2] = 72;
		c_strides[2] = bad[i] == 71 ? 33 : bad[i];
		check_grouped(34, 72, 0, 2);
		c_strides[2] = 34;
		sizes[3 * 3 + i % 3] = bad[i] == 1 << 20 ? 1 << 20 : -5;
		check_grouped(34, 72, 0, 3);
		grouped_process(72, 17, 0);
	}
}

/* ---- NVFP4 ---- */

static uint16_t act[ROWS_MAX * K_MAX];
static uint8_t codes[ROWS_MAX * K_MAX / 2], sf[256 * 24], plain_codes[ROWS_MAX * K_MAX / 2],
	plain_sf[ROWS_MAX * K_MAX / 16];
static uint8_t w_codes[EXPERTS * N_MAX * K_MAX / 2], w_sf[EXPERTS * N_MAX * K_MAX / 16],
	w_tiles[EXPERTS * 256 * 24];
static float gscale[EXPERTS], alphas[EXPERTS];

static void fp4_draw(uint64_t *seed, uint32_t n, uint32_t k)
{
	bf16_fill(seed, act, ROWS_MAX * K_MAX);
	for (size_t i = 0; i < sizeof(w_codes); i++)
		w_codes[i] = (uint8_t)seed_next(seed);
	e4m3_fill(seed, w_sf, sizeof(w_sf));
	for (int e = 0; e < EXPERTS; e++) {
		gscale[e] = 40 + (float)seed_below(seed, 100);
		alphas[e] = (float)(1 + seed_below(seed, 100)) / 4096;
	}
	memset(out, 0xee, sizeof(out));
	CALL(arena_nvfp4_swizzle, .sf = AT(w_sf), .out = AT(w_tiles), .batch = EXPERTS, .rows = n,
	     .cols = k / 16);
}

/* Element @i of a tensor that is not swizzled. */
static double fp4_value(const uint8_t *code, const uint8_t *scale, uint64_t i)
{
	return e2m1_value(code[i / 2] >> i % 2 * 4 & 15) * e4m3_value(scale[i / 16]);
}

static struct exact fp4_product(uint64_t row, uint64_t channel, uint32_t k, double alpha)
{
	struct exact e = { 0, 0 };

	for (uint32_t i = 0; i < k; i++)
		exact_add(&e, fp4_value(plain_codes, plain_sf, row * k + i) *
				      fp4_value(w_codes, w_sf, channel * k + i) * alpha);
	return e;
}

static void quant_plain(uint32_t first, uint32_t rows, uint32_t k, const float *scale)
{
	CALL(arena_nvfp4_quant, .x = AT(act + first * k), .gscale = AT(scale),
	     .codes = AT(plain_codes + first * k / 2), .sf = AT(plain_sf + first * k / 16),
	     .rows = rows, .cols = k, .type = DERIVE_BF16);
}

static void check_fp4(uint32_t tokens, uint32_t n, uint32_t k)
{
	static uint8_t tiles[sizeof(sf)];

	memset(sf, 0xee, sizeof(sf));
	DECODE_CALL(decode_nvfp4_quant, .x = AT(act), .gscale = AT(gscale), .codes = AT(codes),
		    .sf = AT(sf), .tokens = tokens, .k = k);
	quant_plain(0, tokens, k, gscale);
	CALL(arena_nvfp4_swizzle, .sf = AT(plain_sf), .out = AT(tiles), .batch = 1, .rows = tokens,
	     .cols = k / 16);
	cr_assert_arr_eq(codes, plain_codes, tokens * k / 2);
	cr_assert_arr_eq(sf, tiles, DERIVE_UP(tokens, 128) * DERIVE_UP(k / 16, 4));
	DECODE_CALL(decode_nvfp4_gemm, .x = AT(codes), .w = AT(w_codes), .x_sf = AT(sf),
		    .w_sf = AT(w_tiles), .alpha = AT(alphas), .out = AT(out), .tokens = tokens,
		    .n = n, .k = k);
	for (uint32_t t = 0; t < tokens; t++)
		for (uint32_t c = 0; c < n; c++)
			cr_assert(near_sum(out[t * n + c], fp4_product(t, c, k, (double)alphas[0]),
					   k + 11),
				  "%ux%ux%u: [%u, %u]", tokens, n, k, t, c);
	cr_assert_eq(out[tokens * n], 0xeeee);
}

Test(decode_small, nvfp4_gemm)
{
	static const uint32_t shapes[][3] = { { 1, 40, 80 }, { 19, 130, 64 }, { 140, 9, 304 } };
	uint64_t seed = seed_start("decode nvfp4");

	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
		fp4_draw(&seed, shapes[s][1], shapes[s][2]);
		check_fp4(shapes[s][0], shapes[s][1], shapes[s][2]);
	}
}

/* ---- NVFP4 by expert ---- */

static int32_t sf_offsets[EXPERTS + 1];

static void grouped_fp4(const int64_t *of, uint32_t n, uint32_t k, uint32_t sf_rows)
{
	memset(sf, 0xee, sizeof(sf));
	memset(out, 0xee, sizeof(out));
	DECODE_CALL(decode_moe_nvfp4_quant, .x = AT(act), .gscale = AT(gscale), .offsets = AT(of),
		    .sf_offsets = AT(sf_offsets), .codes = AT(codes), .sf = AT(sf),
		    .rows = ROWS_MAX, .experts = EXPERTS, .k = k, .sf_rows = sf_rows);
	DECODE_CALL(decode_moe_gemm_nvfp4, .x = AT(codes), .w = AT(w_codes), .x_sf = AT(sf),
		    .w_sf = AT(w_tiles), .alphas = AT(alphas), .offsets = AT(of),
		    .sf_offsets = AT(sf_offsets), .out = AT(out), .rows = ROWS_MAX,
		    .experts = EXPERTS, .n = n, .k = k, .sf_rows = sf_rows);
}

Test(decode_small, moe_gemm_nvfp4)
{
	/* Two experts have one tile row, one has two. */
	static const int64_t of[EXPERTS + 1] = { 0, 5, 5, 135, 149 };
	static const int32_t starts[EXPERTS + 1] = { 0, 128, 128, 384, 512 };
	uint64_t seed = seed_start("decode moe nvfp4");
	uint32_t n = 131, k = 80;

	fp4_draw(&seed, n, k);
	grouped_fp4(of, n, k, 512);
	cr_assert_arr_eq(sf_offsets, starts, sizeof(starts));
	for (uint32_t e = 0; e < EXPERTS; e++) {
		quant_plain((uint32_t)of[e], (uint32_t)(of[e + 1] - of[e]), k, gscale + e);
		for (int64_t r = of[e]; r < of[e + 1]; r++)
			for (uint32_t c = 0; c < n; c++) {
				struct exact sum =
					fp4_product((uint64_t)r, e * n + c, k, (double)alphas[e]);

				cr_assert(near_sum(out[(uint64_t)r * n + c], sum, k + 11),
					  "expert %u row %ld column %u", e, (long)r, c);
			}
	}
	cr_assert_eq(out[149 * n], 0xeeee);
}

/* Offsets that are none, tiles for fewer rows than there are: those experts are left out. */
Test(decode_small, moe_gemm_nvfp4_stale)
{
	static const int64_t of[EXPERTS + 1] = { 0, 5, 1ll << 40, 7, 9 };
	uint64_t seed = seed_start("decode moe nvfp4 stale");

	fp4_draw(&seed, 21, 48);
	grouped_fp4(of, 21, 48, 128);
	cr_assert_neq(out[0], 0xeeee);
	for (uint32_t i = 5 * 21; i < ROWS_MAX * 21; i++)
		cr_assert_eq(out[i], 0xeeee, "%u", i);
}
