/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing to experts and the grouped GEMM of bf16: the twins against softmax, sorting and products
 * in double, straight from logits and ids.
 */
#include "decode_exact.h"

#define TOKENS	29
#define EXPERTS 37
#define TOPK	5
#define COUNT	(TOKENS * TOPK)

static float logits[TOKENS * EXPERTS], weights[COUNT];
static uint16_t words[TOKENS * EXPERTS];
static int32_t ids[COUNT], source[COUNT];

static void topk_call(uint32_t flags)
{
	DECODE_CALL(decode_topk_softmax, .gating = flags & DECODE_F32 ? AT(logits) : AT(words),
		    .weights = AT(weights), .ids = AT(ids), .source = AT(source), .tokens = TOKENS,
		    .experts = EXPERTS, .topk = TOPK, .flags = flags);
}

static double logit(uint32_t t, uint32_t e, uint32_t flags)
{
	return flags & DECODE_F32 ? (double)logits[t * EXPERTS + e]
				  : bf16_value(words[t * EXPERTS + e]);
}

/* How many experts of a token come before @e. */
static uint32_t place(uint32_t t, uint32_t e, uint32_t flags)
{
	uint32_t before = 0;

	for (uint32_t i = 0; i < EXPERTS; i++)
		before += logit(t, i, flags) > logit(t, e, flags) ||
			  (logit(t, i, flags) == logit(t, e, flags) && i < e);
	return before;
}

static void check_token(uint32_t t, uint32_t flags)
{
	double all = 0, chosen = 0;

	for (uint32_t e = 0; e < EXPERTS; e++)
		all += exp(logit(t, e, flags));
	for (uint32_t j = 0; j < TOPK; j++)
		chosen += exp(logit(t, (uint32_t)ids[t * TOPK + j], flags));
	for (uint32_t j = 0; j < TOPK; j++) {
		uint32_t i = t * TOPK + j, e = (uint32_t)ids[i];
		double want = exp(logit(t, e, flags)) / (flags & DECODE_RENORMALIZE ? chosen : all);

		cr_assert_eq(place(t, e, flags), j, "token %u slot %u: expert %u", t, j, e);
		cr_assert_eq(source[i], (int32_t)(j * TOKENS + t));
		cr_assert(fabs((double)weights[i] - want) <= ldexp(want, -18), "%u: %g not %g", i,
			  (double)weights[i], want);
	}
}

Test(decode_moe, topk_softmax)
{
	uint64_t seed = seed_start("decode topk");

	for (uint32_t form = 0; form < 4; form++) {
		uint32_t flags = (form & 1 ? DECODE_F32 : 0) | (form & 2 ? DECODE_RENORMALIZE : 0);

		/* Few different logits: many ties. */
		for (uint32_t i = 0; i < TOKENS * EXPERTS; i++)
			logits[i] = (float)seed_below(&seed, 40) / 8;
		bf16_fill(&seed, words, TOKENS * EXPERTS);
		words[7] = words[8] = words[20];
		topk_call(flags);
		for (uint32_t t = 0; t < TOKENS; t++)
			check_token(t, flags);
	}
}

Test(decode_moe, topk_softmax_nan)
{
	for (uint32_t e = 0; e < EXPERTS; e++)
		logits[e] = e < 34 ? (float)NAN : (float)e;
	topk_call(DECODE_F32);
	cr_assert(ids[0] == 36 && ids[1] == 35 && ids[2] == 34 && ids[3] == 0 && ids[4] == 1);
	cr_assert(weights[0] > 0.6f && weights[3] == 0);
}

/* The example in vLLM's documentation. */
Test(decode_moe, align_example)
{
	static const int32_t in[12] = { 2, 3, 4, 1, 2, 4, 1, 3, 4, 1, 2, 3 };
	static const int32_t want[18] = { 3, 6,	 9,  12, 0, 4, 10, 12, 1,
					  7, 11, 12, 2,	 5, 8, 12, 12, 12 };
	static const int32_t experts[5] = { 1, 2, 3, 4, -1 };
	int32_t sorted[18], experts_of[5], total;

	DECODE_CALL(decode_moe_align, .ids = AT(in), .sorted = AT(sorted),
		    .experts_of = AT(experts_of), .total = AT(&total), .count = 12, .experts = 5,
		    .block = 4, .capacity = 18, .tail = -1);
	cr_assert_eq(total, 16);
	cr_assert_arr_eq(sorted, want, sizeof(want));
	cr_assert_arr_eq(experts_of, experts, sizeof(experts));
}

/* ---- grouped GEMM ---- */

#define N     35
#define K     140
#define BLOCK 20 /* more than the kernel has rows at a time, and no multiple of it */
#define SPACE (COUNT + EXPERTS * (BLOCK - 1))

static uint16_t x[TOKENS * K], w[EXPERTS * N * K], bias[EXPERTS * N], out[COUNT * N];
static int32_t sorted[SPACE], experts_of[SPACE / BLOCK + 1], total;

static void gemm_call(bool with_bias, bool weighted)
{
	memset(out, 0xee, sizeof(out));
	DECODE_CALL(decode_moe_align, .ids = AT(ids), .sorted = AT(sorted),
		    .experts_of = AT(experts_of), .total = AT(&total), .count = COUNT,
		    .experts = EXPERTS, .block = BLOCK, .capacity = SPACE, .tail = -1);
	DECODE_CALL(decode_moe_gemm, .x = AT(x), .w = AT(w), .bias = with_bias ? AT(bias) : 0,
		    .sorted = AT(sorted), .experts_of = AT(experts_of), .total = AT(&total),
		    .weights = weighted ? AT(weights) : 0, .out = AT(out), .count = COUNT, .n = N,
		    .k = K, .topk = TOPK, .experts = EXPERTS, .block = BLOCK, .capacity = SPACE);
}

static struct exact gemm_want(uint32_t i, uint32_t c, bool with_bias, bool weighted)
{
	double weight = weighted ? (double)weights[i] : 1;
	uint32_t channel = (uint32_t)ids[i] * N + c;
	struct exact e = { 0, 0 };

	for (uint32_t k = 0; k < K; k++)
		exact_add(&e, bf16_value(x[i / TOPK * K + k]) * bf16_value(w[channel * K + k]) *
				      weight);
	if (with_bias)
		exact_add(&e, bf16_value(bias[channel]) * weight);
	return e;
}

Test(decode_moe, gemm)
{
	uint64_t seed = seed_start("decode moe gemm");

	bf16_fill(&seed, x, TOKENS * K);
	bf16_fill(&seed, w, EXPERTS * N * K);
	bf16_fill(&seed, bias, EXPERTS * N);
	f32_fill(&seed, weights, COUNT);
	/* One expert has most rows, some have none. */
	for (uint32_t i = 0; i < COUNT; i++)
		ids[i] = i % 3 ? 4 : (int32_t)seed_below(&seed, EXPERTS);
	for (int form = 0; form < 4; form++) {
		gemm_call(form & 1, form & 2);
		for (uint32_t i = 0; i < COUNT * N; i++)
			cr_assert(near_sum(out[i], gemm_want(i / N, i % N, form & 1, form & 2),
					   K + 10),
				  "form %d: [%u, %u]", form, i / N, i % N);
	}
}

/* Indices and experts that are none: rows stay as they were. */
Test(decode_moe, gemm_stale)
{
	uint64_t seed = seed_start("decode moe stale");

	bf16_fill(&seed, x, TOKENS * K);
	bf16_fill(&seed, w, EXPERTS * N * K);
	for (uint32_t i = 0; i < COUNT; i++)
		ids[i] = i == 3 ? -7 : i == 4 ? EXPERTS : 2;
	gemm_call(false, false);
	cr_assert(out[3 * N] == 0xeeee && out[4 * N] == 0xeeee && out[5 * N] != 0xeeee);
	total = INT32_MAX;
	memset(sorted, 0x77, sizeof(sorted));
	memset(experts_of, 0x01, 8);
	memset(out, 0xee, sizeof(out));
	DECODE_CALL(decode_moe_gemm, .x = AT(x), .w = AT(w), .sorted = AT(sorted),
		    .experts_of = AT(experts_of), .total = AT(&total), .out = AT(out),
		    .count = COUNT, .n = N, .k = K, .topk = TOPK, .experts = EXPERTS,
		    .block = BLOCK, .capacity = SPACE);
	for (uint32_t i = 0; i < COUNT * N; i++)
		cr_assert_eq(out[i], 0xeeee);
}

/* ---- there and back ---- */

/* Half of the experts are here; the rows of the others, and of ids that are none, do not count. */
Test(decode_moe, permute_and_back)
{
	static int32_t map[EXPERTS], order[COUNT], inverse[COUNT];
	static int64_t offsets[EXPERTS + 1];
	static uint16_t rows[COUNT * K], back[TOKENS * K];
	uint64_t seed = seed_start("decode permute");
	uint32_t local = 0;

	for (uint32_t e = 0; e < EXPERTS; e++)
		map[e] = e % 2 ? -1 : (int32_t)local++;
	for (uint32_t i = 0; i < COUNT; i++)
		ids[i] = (int32_t)seed_below(&seed, EXPERTS + 2) - 1;
	bf16_fill(&seed, x, TOKENS * K);
	f32_fill(&seed, weights, COUNT);
	DECODE_CALL(decode_moe_permute_index, .ids = AT(ids), .map = AT(map), .sorted = AT(order),
		    .inverse = AT(inverse), .offsets = AT(offsets), .count = COUNT,
		    .experts = EXPERTS, .local = local);
	DECODE_CALL(decode_moe_permute_rows, .x = AT(x), .sorted = AT(order),
		    .offsets = AT(offsets), .out = AT(rows), .count = COUNT, .topk = TOPK,
		    .row_bytes = 2 * K, .local = local);
	for (uint32_t e = 0; e < local; e++)
		for (int64_t r = offsets[e]; r < offsets[e + 1]; r++)
			cr_assert_eq(map[ids[order[r]]], (int32_t)e);
	DECODE_CALL(decode_moe_unpermute, .rows = AT(rows), .inverse = AT(inverse),
		    .weights = AT(weights), .offsets = AT(offsets), .out = AT(back),
		    .tokens = TOKENS, .topk = TOPK, .hidden = K, .local = local);
	for (uint32_t i = 0; i < TOKENS * K; i++) {
		struct exact e = { 0, 0 };

		for (uint32_t j = i / K * TOPK; j < (i / K + 1) * TOPK; j++)
			if (ids[j] >= 0 && ids[j] < EXPERTS && ids[j] % 2 == 0)
				exact_add(&e, bf16_value(x[i]) * (double)weights[j]);
		cr_assert(near_sum(back[i], e, 2 * TOPK), "%u", i);
	}
}

Test(decode_moe, sum)
{
	static uint16_t parts[TOKENS * TOPK * 33], sums[TOKENS * 33];
	uint64_t seed = seed_start("decode moe sum");

	bf16_fill(&seed, parts, TOKENS * TOPK * 33);
	DECODE_CALL(decode_moe_sum, .x = AT(parts), .out = AT(sums), .tokens = TOKENS, .topk = TOPK,
		    .hidden = 33);
	for (uint32_t i = 0; i < TOKENS * 33; i++) {
		struct exact e = { 0, 0 };

		for (uint32_t j = 0; j < TOPK; j++)
			exact_add(&e, bf16_value(parts[(i / 33 * TOPK + j) * 33 + i % 33]));
		cr_assert(near_sum(sums[i], e, TOPK), "%u", i);
	}
}
