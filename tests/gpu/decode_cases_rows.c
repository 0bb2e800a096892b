/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: shapes and contents for the kernels that work on rows: odd ones, padded ones, wide ones.
 * Threads: one.
 */
#include <math.h>
#include <string.h>

#include "decode_check.h"
#include "kernels/number.h"

/* ---- contents ---- */

void fill_bytes(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t word = seed_next(&d->seed);

		memcpy((char *)to + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

void fill_zero(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	memset(to, 0, bytes);
}

static float number(struct draw *d)
{
	return (float)below(d, 1u << 22) / (float)(1u << 20) - 2;
}

void fill_f32(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / 4; i++)
		((float *)to)[i] = number(d);
}

void fill_bf16(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / 2; i++)
		((uint16_t *)to)[i] = number_to_bf16(number(d));
}

void fill_scale(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / 4; i++)
		((float *)to)[i] = (float)(1 + below(d, 64)) / 64;
}

void fill_e4m3(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		((uint8_t *)to)[i] = (uint8_t)(below(d, 0x60) | below(d, 2) << 7);
}

/* Finite, of all magnitudes: what saturates, what is rounded to nothing. */
static void fill_wild(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / 2; i++)
		((uint16_t *)to)[i] =
			(uint16_t)(seed_next(&d->seed) & 0xbfff) ^ (uint16_t)(below(d, 2) << 9);
}

/* Few values, so that many are equal, and sometimes a NaN. */
static void fill_logits(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_argmax_args *a = args;
	bool nan = below(d, 3) == 0, f32 = a->flags & DECODE_F32;

	for (uint64_t i = 0; i < bytes / (f32 ? 4 : 2); i++) {
		float x = (float)below(d, 50) - 40;

		if (nan && below(d, a->n + 9) == 0)
			x = NAN;
		if (f32)
			((float *)to)[i] = x;
		else
			((uint16_t *)to)[i] = number_to_bf16(x);
	}
}

/* From a little below the first to a little behind the last. */
static void fill_ids(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_embedding_args *a = args;

	for (uint64_t i = 0; i < bytes / 8; i++)
		((int64_t *)to)[i] = (int64_t)below(d, a->vocab + 4) + a->first - 2;
}

static void fill_positions(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_rotary_args *a = args;

	for (uint64_t i = 0; i < bytes / 8; i++)
		((int64_t *)to)[i] = (int64_t)below(d, a->max_position + 2) - 1;
}

static void fill_table(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_rotary_args *a = args;

	if (a->flags & DECODE_F32)
		fill_f32(d, args, to, bytes);
	else
		fill_bf16(d, args, to, bytes);
}

/* ---- shapes ---- */

/* A dimension that the wide paths take, or any. */
static uint32_t width(struct draw *d, uint32_t limit)
{
	return below(d, 2) ? extent(d, 8, (limit + 7) / 8) : extent(d, 1, limit);
}

/* clang-format off */
#define DRAW(kernel, ...)                                                              \
	static void draw_##kernel(struct draw *d, void *args)                          \
	{                                                                              \
		struct decode_##kernel##_args *a = args;                               \
                                                                                       \
		*a = (struct decode_##kernel##_args){ __VA_ARGS__ };                   \
	}

DRAW(add, .x = 1, .y = 1, .out = 1, .count = extent(d, 1, 5000))
DRAW(argmax, .logits = 1, .out = 1, .tokens = extent(d, 1, 9), .n = extent(d, 1, 3000),
     .flags = below(d, 2) * DECODE_F32)
DRAW(embedding, .ids = 1, .table = 1, .out = 1, .tokens = extent(d, 1, 20),
     .hidden = width(d, 900), .first = below(d, 3) * 100, .vocab = extent(d, 1, 90))
DRAW(fp8_amax, .x = 1, .scale = 1, .count = extent(d, 1, 5000))
DRAW(fp8_quant, .x = 1, .scale = 1, .out = 1, .count = extent(d, 1, 5000))
DRAW(fp8_quant_token, .x = 1, .bound = below(d, 2), .out = 1, .scales = 1,
     .tokens = extent(d, 1, 20), .k = extent(d, 1, 900))
DRAW(fused_add_rms_norm, .x = 1, .residual = 1, .weight = 1, .tokens = extent(d, 1, 20),
     .hidden = width(d, 3000), .eps = 1e-5f)
DRAW(silu_and_mul, .x = 1, .out = 1, .tokens = extent(d, 1, 20), .d = width(d, 900))
DRAW(swigluoai_and_mul, .x = 1, .out = 1, .tokens = extent(d, 1, 20), .d = extent(d, 1, 900),
     .alpha = 1.702f, .limit = below(d, 2) ? 7 : 1)
/* clang-format on */

static void draw_copy_rows(struct draw *d, void *args)
{
	struct decode_copy_rows_args *a = args;
	uint32_t unit = below(d, 2) ? 16 : 1;

	*a = (struct decode_copy_rows_args){
		.in = 1,
		.out = 1,
		.rows = extent(d, 1, 20),
		.row_bytes = extent(d, unit, 900 / unit),
	};
	a->in_stride = a->row_bytes + unit * below(d, 9);
	a->out_stride = a->row_bytes + unit * below(d, 9);
}

static void draw_rms_norm(struct draw *d, void *args)
{
	struct decode_rms_norm_args *a = args;

	*a = (struct decode_rms_norm_args){
		.x = 1,
		.weight = 1,
		.out = 1,
		.tokens = extent(d, 1, 20),
		.hidden = width(d, 3000),
		.eps = 1e-6f,
	};
	a->x_stride = a->hidden + below(d, 3) * 8;
}

/* As slices of a row of all heads, and of heads with other elements in front of what rotates. */
static void draw_rotary(struct draw *d, void *args)
{
	struct decode_rotary_args *a = args;

	*a = (struct decode_rotary_args){
		.positions = 1,
		.query = 1,
		.key = below(d, 2),
		.cos_sin = 1,
		.tokens = extent(d, 1, 9),
		.heads = extent(d, 1, 6),
		.kv_heads = extent(d, 1, 3),
		.rot = extent(d, 2, 40),
		.max_position = extent(d, 1, 90),
		.flags = below(d, 2) * DECODE_F32 | below(d, 2) * DECODE_GPTJ,
	};
	a->q_head = a->rot + below(d, 20);
	a->k_head = a->rot + below(d, 20);
	a->q_stride = a->heads * a->q_head + below(d, 20);
	a->k_stride = a->kv_heads * a->k_head + below(d, 20);
}

static void draw_gemm(struct draw *d, void *args)
{
	struct decode_gemm_args *a = args;

	*a = (struct decode_gemm_args){
		.x = 1,
		.w = 1,
		.bias = below(d, 2),
		.out = 1,
		.tokens = extent(d, 1, 12),
		.n = extent(d, 1, 60),
		.k = width(d, 600),
		.flags = below(d, 2) * DECODE_F32,
	};
	a->x_stride = a->k + below(d, 3) * 8;
}

static void draw_bmm(struct draw *d, void *args)
{
	struct decode_bmm_args *a = args;

	*a = (struct decode_bmm_args){
		.x = 1,
		.w = 1,
		.out = 1,
		.tokens = extent(d, 1, 12),
		.heads = extent(d, 1, 3),
		.n = extent(d, 1, 60),
		.k = extent(d, 1, 60),
	};
	a->x_head = a->k + below(d, 9);
	a->x_stride = a->heads * a->x_head + below(d, 9);
}

/* clang-format off */
#define ROW(kernel, ...) \
	{ .name = "decode_" #kernel, .draw = draw_##kernel, .range = { __VA_ARGS__ } }

const struct decode_case cases_rows[] = {
	ROW(add, { .name = "x", .fill = fill_bf16 }, { .name = "y", .fill = fill_bf16 }),
	ROW(argmax, { .name = "logits", .fill = fill_logits }),
	ROW(bmm, { .name = "x", .fill = fill_bf16 }, { .name = "w", .fill = fill_bf16 }, { .name = "out", .fill = fill_bytes, .ulps = 1 }),
	ROW(copy_rows),
	ROW(embedding, { .name = "ids", .fill = fill_ids }),
	ROW(fp8_amax, { .name = "x", .fill = fill_wild }, { .name = "scale", .fill = fill_zero }),
	ROW(fp8_quant, { .name = "x", .fill = fill_wild }, { .name = "scale", .fill = fill_scale }),
	ROW(fp8_quant_token, { .name = "x", .fill = fill_bf16 }, { .name = "bound", .fill = fill_scale }),
	ROW(fused_add_rms_norm, { .name = "x", .fill = fill_bf16, .ulps = 2 }, { .name = "residual", .fill = fill_bf16 },
	    { .name = "weight", .fill = fill_bf16 }),
	ROW(gemm, { .name = "x", .fill = fill_bf16 }, { .name = "w", .fill = fill_bf16 }, { .name = "bias", .fill = fill_bf16 },
	    { .name = "out", .fill = fill_bytes, .ulps = 1, .by_flag = true }),
	ROW(rms_norm, { .name = "x", .fill = fill_bf16 }, { .name = "weight", .fill = fill_bf16 }, { .name = "out", .fill = fill_bytes, .ulps = 2 }),
	ROW(rotary, { .name = "positions", .fill = fill_positions }, { .name = "query", .fill = fill_bf16 }, { .name = "key", .fill = fill_bf16 },
	    { .name = "cos_sin", .fill = fill_table }),
	ROW(silu_and_mul, { .name = "x", .fill = fill_bf16 }, { .name = "out", .fill = fill_bytes, .ulps = 2 }),
	ROW(swigluoai_and_mul, { .name = "x", .fill = fill_bf16 }, { .name = "out", .fill = fill_bytes, .ulps = 1 }),
	{ .name = NULL },
};
/* clang-format on */
