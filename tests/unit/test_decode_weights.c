/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GEMMs on 4- and 8-bit weights: from a checkpoint through post-load processing (the derivations)
 * and the twin, against the checkpoint's own numbers in double: so both have to agree on the
 * layout. The lock workspace: zero before and after, a dirty lock is reported.
 */
#include "decode_exact.h"
#include "kernels/marlin.h"

#define CODES_MAX (512 * 256)
#define ROWS_MAX  20

/* A weight as checkpoints have it: codes [k, n], scales and zeros [groups, n]. */
static struct weight {
	uint32_t k, n, groups, bits, order, zeros, awq;
	uint32_t code[CODES_MAX], zero[CODES_MAX / 8];
	uint16_t scale[CODES_MAX / 8], bias[512];
	int32_t g_idx[1024];
} w;

/* What post-load processing makes of it, and the call. */
static uint32_t packed[CODES_MAX], q[CODES_MAX], zeros[CODES_MAX / 8];
static uint16_t scales[CODES_MAX / 8], x[ROWS_MAX * 1024], out[ROWS_MAX * 512];
static int32_t sorted[1024], perm[1024], workspace[8], status;
static float tmp[ROWS_MAX * 512];

static void draw(struct weight form, uint64_t *seed)
{
	w.k = form.k;
	w.n = form.n;
	w.groups = form.groups;
	w.bits = form.bits;
	w.order = form.order;
	w.zeros = form.zeros;
	w.awq = form.awq;
	for (uint32_t i = 0; i < w.k * w.n; i++)
		w.code[i] = (uint32_t)seed_below(seed, 1u << w.bits);
	for (uint32_t i = 0; i < w.groups * w.n; i++)
		w.zero[i] = (uint32_t)seed_below(seed, 1u << w.bits);
	bf16_fill(seed, w.scale, w.groups * w.n);
	bf16_fill(seed, w.bias, w.n);
	bf16_fill(seed, x, ROWS_MAX * w.k);
	for (uint32_t i = 0; i < w.k; i++)
		w.g_idx[i] = (int32_t)(i / (w.k / w.groups));
	for (uint32_t i = w.k - 1; w.order && i > 0; i--) {
		uint32_t j = (uint32_t)seed_below(seed, i + 1);
		int32_t kept = w.g_idx[i];

		w.g_idx[i] = w.g_idx[j];
		w.g_idx[j] = kept;
	}
}

static double value(uint32_t k, uint32_t n)
{
	uint32_t at = (uint32_t)w.g_idx[k] * w.n + n;
	double zero = w.zeros ? w.zero[at] : 1u << (w.bits - 1);

	return bf16_nearest((w.code[k * w.n + n] - zero) * bf16_value(w.scale[at]));
}

static struct exact product(const uint16_t *row, uint32_t n, bool bias)
{
	struct exact e = { 0, 0 };

	for (uint32_t k = 0; k < w.k; k++)
		exact_add(&e, bf16_value(row[k]) * value(k, n));
	if (bias)
		exact_add(&e, bf16_value(w.bias[n]));
	return e;
}

/* gptq_marlin_repack and its kin. */
static void marlin_process(void)
{
	uint32_t shape[2] = { w.n, w.bits };

	if (w.awq)
		column_pack(w.code, w.k, shape, awq_places(w.bits), packed);
	else
		gptq_pack(w.code, w.k, w.n, w.bits, packed);
	CALL(arena_argsort, .keys = AT(w.g_idx), .sorted = AT(sorted), .order = AT(perm),
	     .count = w.k);
	CALL(arena_marlin_repack, .q = AT(packed), .perm = w.order ? AT(perm) : 0, .out = AT(q),
	     .k = w.k, .n = w.n, .bits = w.bits, .flags = w.awq ? MARLIN_AWQ : 0);
	CALL(arena_marlin_scales, .s = AT(w.scale), .out = AT(scales), .groups = w.groups, .n = w.n,
	     .channel = w.groups == 1);
	column_pack(w.zero, w.groups, shape, w.awq ? awq_places(w.bits) : NULL, packed);
	CALL(arena_marlin_zeros, .z = AT(packed), .out = AT(zeros), .groups = w.groups, .n = w.n,
	     .bits = w.bits, .awq = w.awq);
}

static void marlin_call(uint32_t tokens, bool bias, bool sliced)
{
	memset(out, 0xee, sizeof(out));
	DECODE_CALL(decode_marlin_gemm, .x = AT(x), .q = AT(q), .scales = AT(scales),
		    .zeros = w.zeros ? AT(zeros) : 0, .g_idx = w.order ? AT(sorted) : 0,
		    .perm = w.order ? AT(perm) : 0, .bias = bias ? AT(w.bias) : 0,
		    .workspace = AT(workspace), .status = AT(&status), .tmp = sliced ? AT(tmp) : 0,
		    .out = AT(out), .tokens = tokens, .n = w.n, .k = w.k, .groups = w.groups,
		    .bits = w.bits, .locks = w.n / 64);
}

static void check_marlin(uint32_t tokens, bool bias, bool sliced)
{
	marlin_call(tokens, bias, sliced);
	for (uint32_t t = 0; t < tokens; t++)
		for (uint32_t n = 0; n < w.n; n++) {
			struct exact e = product(x + t * w.k, n, bias);

			cr_assert(near_sum(out[t * w.n + n], e, w.k + 12),
				  "%ux%ux%u w%u g%u order %u zeros %u awq %u: [%u, %u] %g not %g",
				  tokens, w.n, w.k, w.bits, w.groups, w.order, w.zeros, w.awq, t, n,
				  bf16_value(out[t * w.n + n]), e.sum);
		}
	cr_assert_eq(out[tokens * w.n], 0xeeee);
	cr_assert_eq(status, 0);
	for (uint32_t i = 0; i < w.n / 64; i++)
		cr_assert_eq(workspace[i], 0);
}

Test(decode_weights, marlin_gemm)
{
	static const struct {
		uint32_t k, n, groups;
	} shapes[] = { { 128, 64, 1 }, { 64, 128, 2 }, { 448, 64, 14 }, { 256, 192, 2 } };
	static const uint32_t tokens[] = { 1, 3, 17, 20 };
	uint64_t seed = seed_start("decode marlin");

	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
		for (uint32_t form = 0; form < 16; form++) {
			struct weight as = {
				.k = shapes[s].k,
				.n = shapes[s].n,
				.groups = shapes[s].groups,
				.bits = form & 1 ? 4 : 8,
				.order = form >> 1 & (shapes[s].groups > 1),
				.zeros = form >> 2 & 1,
				.awq = form >> 3 & 1,
			};

			draw(as, &seed);
			marlin_process();
			check_marlin(tokens[(s + form) % 4], form & 2, false);
			check_marlin(tokens[(s + form + 1) % 4], form & 4, true);
		}
}

/* What a padded weight gives for the columns that are there is what the weight gives. */
Test(decode_weights, marlin_gemm_padded)
{
	static uint32_t plain[104 * 72];
	static uint16_t plain_scale[72], narrow[104];
	uint64_t seed = seed_start("decode marlin padded");
	uint32_t k = 104, n = 72;

	for (uint32_t i = 0; i < k * n; i++)
		plain[i] = (uint32_t)seed_below(&seed, 16);
	bf16_fill(&seed, plain_scale, n);
	bf16_fill(&seed, narrow, k);
	marlin_pad(&k, &n, -1);
	cr_assert(k == 128 && n == 128, "%ux%u", k, n);
	w = (struct weight){ .k = k, .n = n, .groups = 1, .bits = 4 };
	gptq_pack(plain, 104, 72, 4, packed);
	CALL(arena_pad, .in = AT(packed), .out = AT(q), .batch = 1, .rows = 104 / 8,
	     .width = 72 * 4, .out_rows = k / 8, .out_width = n * 4);
	CALL(arena_pad, .in = AT(plain_scale), .out = AT(w.scale), .batch = 1, .rows = 1,
	     .width = 72 * 2, .out_rows = 1, .out_width = n * 2);
	memcpy(packed, q, k / 8 * n * 4);
	CALL(arena_marlin_repack, .q = AT(packed), .out = AT(q), .k = k, .n = n, .bits = 4);
	CALL(arena_marlin_scales, .s = AT(w.scale), .out = AT(scales), .groups = 1, .n = n,
	     .channel = 1);
	memset(x, 0, sizeof(x));
	memcpy(x, narrow, sizeof(narrow));
	marlin_call(1, false, true);
	for (uint32_t c = 0; c < n; c++) {
		struct exact e = { 0, 0 };

		for (uint32_t i = 0; c < 72 && i < 104; i++)
			exact_add(&e, bf16_value(narrow[i]) *
					      bf16_nearest(((double)plain[i * 72 + c] - 8) *
							   bf16_value(plain_scale[c])));
		cr_assert(near_sum(out[c], e, 128), "%u: %g not %g", c, bf16_value(out[c]), e.sum);
	}
}

Test(decode_weights, marlin_dirty_lock)
{
	const struct weight as = { .k = 128, .n = 192, .groups = 2, .bits = 4 };
	uint64_t seed = seed_start("decode marlin lock");

	draw(as, &seed);
	marlin_process();
	workspace[1] = 77;
	marlin_call(2, false, true);
	cr_assert_eq(status, DECODE_STATUS_DIRTY);
	cr_assert(workspace[0] == 0 && workspace[1] == 77 && workspace[2] == 0);
	for (uint32_t t = 0; t < 2; t++)
		for (uint32_t n = 0; n < w.n; n++) {
			struct exact e = product(x + t * w.k, n, false);
			uint16_t got = out[t * w.n + n];

			cr_assert(n / 64 == 1 ? got == 0xeeee : near_sum(got, e, w.k + 12));
		}
	workspace[1] = status = 0;
	check_marlin(2, false, true);
}

/* Of memory that was freed and used again: what is no index counts as nothing. */
Test(decode_weights, marlin_stale_order)
{
	const struct weight as = { .k = 128, .n = 64, .groups = 2, .bits = 4, .order = 1 };
	uint64_t seed = seed_start("decode marlin order");
	struct exact e;

	draw(as, &seed);
	marlin_process();
	memset(perm + 3, 0xcc, 4 * 50);
	memset(sorted + 100, 0x77, 4 * 28);
	marlin_call(1, false, false);
	for (uint32_t n = 0; n < w.n; n++) {
		e = (struct exact){ 0, 0 };
		for (uint32_t k = 0; k < 100; k++)
			if (k < 3 || k >= 53)
				exact_add(&e, bf16_value(x[perm[k]]) * value((uint32_t)perm[k], n));
		cr_assert(near_sum(out[n], e, w.k), "%u", n);
	}
}

/* Shapes that it does not take. */
Test(decode_weights, marlin_refused)
{
	const struct weight as = { .k = 128, .n = 128, .groups = 2, .bits = 4 };
	uint64_t seed = seed_start("decode marlin refused");

	draw(as, &seed);
	marlin_process();
	for (int i = 0; i < 5; i++) {
		w.k = i == 0 ? 120 : 128;
		w.n = i == 1 ? 96 : 128;
		w.groups = i == 2 ? 0 : i == 3 ? 3 : 2;
		w.bits = i == 4 ? 3 : 4;
		marlin_call(1, false, false);
		cr_assert(out[0] == 0xeeee && status == 0, "%d", i);
	}
}

/* ---- exllama ---- */

#define EXPERTS 3

static uint32_t expert_q[EXPERTS * CODES_MAX / 8], expert_zeros[EXPERTS * 512];
static uint16_t expert_scales[EXPERTS * 512];
static float weights[ROWS_MAX];
static int32_t ids[ROWS_MAX];

/* Draw expert @e, put it where the kernel wants it. */
static void exllama_process(struct weight form, uint32_t e, uint64_t *seed)
{
	uint32_t words = form.k / 8 * form.n, shape[2] = { form.n, 4 };

	draw(form, seed);
	gptq_pack(w.code, w.k, w.n, 4, packed);
	CALL(arena_exllama_shuffle, .q = AT(packed), .out = AT(expert_q + e * words),
	     .words = words);
	column_pack(w.zero, w.groups, shape, NULL, expert_zeros + e * w.groups * w.n / 8);
	memcpy(expert_scales + e * w.groups * w.n, w.scale, w.groups * w.n * 2);
	/* GPTQ stores zero points less one. */
	for (uint32_t i = 0; i < w.groups * w.n; i++)
		w.zero[i]++;
}

static void exllama_call(struct weight form, uint32_t rows, uint32_t topk, bool by_expert)
{
	memset(out, 0xee, sizeof(out));
	DECODE_CALL(decode_exllama_gemm, .x = AT(x), .q = AT(expert_q), .scales = AT(expert_scales),
		    .zeros = AT(expert_zeros), .ids = by_expert ? AT(ids) : 0,
		    .weights = by_expert ? AT(weights) : 0, .out = AT(out), .rows = rows,
		    .n = form.n, .k = form.k, .groups = form.groups, .topk = topk,
		    .experts = by_expert ? EXPERTS : 1);
}

Test(decode_weights, exllama_gemm)
{
	static const struct weight forms[] = {
		{ .k = 64, .n = 40, .groups = 2, .bits = 4, .zeros = 1 },
		{ .k = 264, .n = 8, .groups = 11, .bits = 4, .zeros = 1 },
		{ .k = 128, .n = 96, .groups = 1, .bits = 4, .zeros = 1 },
	};
	uint64_t seed = seed_start("decode exllama");

	for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
		exllama_process(forms[f], 0, &seed);
		exllama_call(forms[f], 19, 1, false);
		for (uint32_t t = 0; t < 19; t++)
			for (uint32_t n = 0; n < w.n; n++) {
				struct exact e = product(x + t * w.k, n, false);

				cr_assert(near_sum(out[t * w.n + n], e, w.k), "%zu: [%u, %u]", f, t,
					  n);
			}
		cr_assert_eq(out[19 * w.n], 0xeeee);
	}
}

Test(decode_weights, exllama_experts)
{
	static const struct weight form = { .k = 64, .n = 40, .groups = 2, .bits = 4, .zeros = 1 };
	static double want[8 * 40], size[8 * 40];
	uint64_t seed = seed_start("decode exllama experts");
	uint16_t kept[4 * 64];

	for (int i = 0; i < 8; i++)
		ids[i] = (int32_t)seed_below(&seed, EXPERTS + 2) - 1; /* -1 and 3 are none */
	ids[0] = -1;
	ids[1] = EXPERTS;
	f32_fill(&seed, weights, 8);
	bf16_fill(&seed, kept, 4 * 64);
	for (uint32_t e = 0; e < EXPERTS; e++) {
		exllama_process(form, e, &seed);
		for (uint32_t i = 0; i < 8 * w.n; i++) {
			uint32_t row = i / w.n;
			struct exact sum = product(kept + row / 2 * w.k, i % w.n, false);

			if (ids[row] != (int32_t)e)
				continue;
			want[i] = sum.sum * weights[row];
			size[i] = sum.size * weights[row];
		}
	}
	memcpy(x, kept, sizeof(kept));
	exllama_call(form, 8, 2, true);
	for (uint32_t i = 0; i < 8 * form.n; i++)
		cr_assert(near_sum(out[i], (struct exact){ want[i], size[i] }, form.k + 1), "%u",
			  i);
}
