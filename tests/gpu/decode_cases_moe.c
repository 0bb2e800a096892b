/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: shapes and contents for the kernels of a mixture of experts: experts with no rows and with
 * many, ids, offsets, strides and sizes that are none. Threads: one.
 */
#include <math.h>

#include "decode_check.h"
#include "kernels/number.h"

/* ---- contents ---- */

/* Few values, so that many are equal, and sometimes a NaN. */
static void fill_gating(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_topk_softmax_args *a = args;
	bool nan = below(d, 3) == 0, f32 = a->flags & DECODE_F32;

	for (uint64_t i = 0; i < bytes / (f32 ? 4 : 2); i++) {
		float x = (float)below(d, 90) / 8 - 4;

		/* The first is a number, so that the weights are some. */
		if (nan && i % a->experts && below(d, 9) == 0)
			x = NAN;
		if (f32)
			((float *)to)[i] = x;
		else
			((uint16_t *)to)[i] = number_to_bf16(x);
	}
}

/* Ids of @experts, and some that are none. */
static void fill_ints(struct draw *d, void *to, uint64_t bytes, uint32_t experts)
{
	for (uint64_t i = 0; i < bytes / 4; i++)
		((int32_t *)to)[i] = (int32_t)below(d, experts + 2) - 1;
}

static void fill_align_ids(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	fill_ints(d, to, bytes, ((const struct decode_moe_align_args *)args)->experts);
}

static void fill_index_ids(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	fill_ints(d, to, bytes, ((const struct decode_moe_permute_index_args *)args)->experts);
}

static void fill_gemm_experts(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	fill_ints(d, to, bytes, ((const struct decode_moe_gemm_args *)args)->experts);
}

/* Every other expert is here. */
static void fill_map(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / 4; i++)
		((int32_t *)to)[i] = i % 2 ? -1 : (int32_t)i / 2;
}

/* Each of the numbers below the count of places once. */
static void fill_order(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	int32_t *order = to;

	for (uint32_t i = 0; i < bytes / 4; i++) {
		uint32_t j = below(d, i + 1);

		order[i] = order[j];
		order[j] = (int32_t)i;
	}
}

static void fill_total(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_moe_gemm_args *a = args;

	*(int32_t *)to = (int32_t)(below(d, 3) ? a->capacity : below(d, a->capacity + 1));
	if (below(d, 8) == 0)
		*(int32_t *)to = below(d, 2) ? INT32_MAX : -1;
}

/* First rows of @experts, of which some have none: a function of the shape only. */
static int64_t first_row(uint64_t rows, uint64_t experts, uint64_t e)
{
	return (int64_t)(rows * (e < experts ? e / 2 * 2 : experts) / experts);
}

static void fill_starts(void *to, uint64_t bytes, uint64_t rows)
{
	uint64_t experts = bytes / 8 - 1;

	for (uint64_t e = 0; e <= experts; e++)
		((int64_t *)to)[e] = first_row(rows, experts, e);
}

static void fill_row_starts(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	fill_starts(to, bytes, ((const struct decode_moe_permute_rows_args *)args)->count);
}

static void fill_back_starts(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_moe_unpermute_args *a = args;

	fill_starts(to, bytes, (uint64_t)a->tokens * a->topk * 3 / 4);
}

static void fill_fp8_starts(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	fill_starts(to, bytes, ((const struct decode_moe_gemm_fp8_args *)args)->rows);
}

/* Now and then an offset that is none. */
static void fill_fp4_starts(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	fill_starts(to, bytes, ((const struct decode_moe_gemm_nvfp4_args *)args)->rows);
	if (below(d, 4) == 0)
		((int64_t *)to)[below(d, (uint32_t)(bytes / 8))] = (int64_t)seed_next(&d->seed);
}

static void fill_quant_starts(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	fill_starts(to, bytes, ((const struct decode_moe_nvfp4_quant_args *)args)->rows);
}

static void fill_sizes(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_moe_gemm_fp8_args *a = args;
	uint32_t swap = below(d, 2);

	for (uint32_t e = 0; e < a->experts; e++) {
		int32_t *size = (int32_t *)to + 3 * e;

		size[swap] = (int32_t)(first_row(a->rows, a->experts, e + 1) -
				       first_row(a->rows, a->experts, e));
		size[1 - swap] = (int32_t)a->n;
		size[2] = (int32_t)a->k;
		if (below(d, 6) == 0)
			size[below(d, 3)] = (int32_t)seed_next(&d->seed);
	}
}

static void fill_strides(struct draw *d, void *to, uint64_t bytes, uint32_t stride)
{
	for (uint64_t e = 0; e < bytes / 8; e++)
		((int64_t *)to)[e] = below(d, 6) ? stride : (int64_t)seed_next(&d->seed);
}

static void fill_ab(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	fill_strides(d, to, bytes, ((const struct decode_moe_gemm_fp8_args *)args)->k);
}

static void fill_c(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	fill_strides(d, to, bytes, ((const struct decode_moe_gemm_fp8_args *)args)->n);
}

static void fill_sf_starts(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_moe_gemm_nvfp4_args *a = args;
	uint64_t at = 0;

	for (uint32_t e = 0; e <= a->experts; e++) {
		((int32_t *)to)[e] = (int32_t)at;
		at += DERIVE_UP(first_row(a->rows, a->experts, e + 1) -
					first_row(a->rows, a->experts, e),
				128);
	}
	if (below(d, 4) == 0)
		((int32_t *)to)[below(d, a->experts + 1)] = (int32_t)seed_next(&d->seed);
}

/* ---- shapes ---- */

static void draw_moe_align(struct draw *d, void *args)
{
	struct decode_moe_align_args *a = args;

	*a = (struct decode_moe_align_args){
		.ids = 1,
		.map = below(d, 2),
		.sorted = 1,
		.experts_of = 1,
		.total = 1,
		.count = extent(d, 1, 200),
		.experts = extent(d, 1, 60),
		.block = 1 + below(d, 40),
		.tail = below(d, 2) ? -1 : 0,
	};
	a->capacity = a->count + a->experts * (a->block - 1) + below(d, 3) * a->block;
}

static void draw_moe_gemm(struct draw *d, void *args)
{
	struct decode_moe_gemm_args *a = args;

	*a = (struct decode_moe_gemm_args){
		.x = 1,
		.w = 1,
		.bias = below(d, 2),
		.sorted = 1,
		.experts_of = 1,
		.total = 1,
		.weights = below(d, 2),
		.out = 1,
		.count = extent(d, 1, 60),
		.n = extent(d, 1, 60),
		.k = below(d, 2) ? extent(d, 8, 30) : extent(d, 1, 200),
		.topk = extent(d, 1, 4),
		.experts = extent(d, 1, 6),
		.block = 1 + below(d, 40),
	};
	/* Indices of sorted that are none: those from count on. */
	a->capacity = a->count + below(d, 40);
}

static void draw_moe_permute_index(struct draw *d, void *args)
{
	struct decode_moe_permute_index_args *a = args;

	*a = (struct decode_moe_permute_index_args){
		.ids = 1,
		.map = below(d, 2),
		.sorted = 1,
		.inverse = 1,
		.offsets = 1,
		.count = extent(d, 1, 200),
		.experts = extent(d, 1, 60),
	};
	a->local = a->map ? (a->experts + 1) / 2 : a->experts;
}

static void draw_moe_permute_rows(struct draw *d, void *args)
{
	struct decode_moe_permute_rows_args *a = args;
	uint32_t unit = below(d, 2) ? 16 : 2;

	*a = (struct decode_moe_permute_rows_args){
		.x = 1,
		.sorted = 1,
		.offsets = 1,
		.out = 1,
		.count = extent(d, 1, 90),
		.topk = extent(d, 1, 4),
		.row_bytes = extent(d, unit, 300 / unit),
		.local = extent(d, 1, 20),
	};
}

/* clang-format off */
#define DRAW(kernel, ...)                                                              \
	static void draw_##kernel(struct draw *d, void *args)                          \
	{                                                                              \
		struct decode_##kernel##_args *a = args;                               \
                                                                                       \
		*a = (struct decode_##kernel##_args){ __VA_ARGS__ };                   \
	}

DRAW(moe_gemm_fp8, .x = 1, .w = 1, .x_scales = 1, .w_scales = 1, .offsets = 1, .sizes = 1,
     .ab_strides = 1, .c_strides = 1, .out = 1, .rows = extent(d, 1, 60),
     .experts = extent(d, 1, 6), .n = extent(d, 1, 60),
     .k = below(d, 2) ? extent(d, 8, 30) : extent(d, 1, 200),
     .flags = below(d, 2) * DECODE_PER_TOKEN | below(d, 2) * DECODE_PER_CHANNEL)
DRAW(moe_gemm_nvfp4, .x = 1, .w = 1, .x_sf = 1, .w_sf = 1, .alphas = 1, .offsets = 1,
     .sf_offsets = 1, .out = 1, .rows = extent(d, 1, 300), .experts = extent(d, 1, 5),
     .n = extent(d, 1, 60), .k = extent(d, 16, 12), .sf_rows = 128 * extent(d, 1, 6))
DRAW(moe_nvfp4_quant, .x = 1, .gscale = 1, .offsets = 1, .sf_offsets = 1, .codes = 1, .sf = 1,
     .rows = extent(d, 1, 300), .experts = extent(d, 1, 5), .k = extent(d, 16, 12),
     .sf_rows = 128 * extent(d, 1, 6))
DRAW(moe_sum, .x = 1, .out = 1, .tokens = extent(d, 1, 20), .topk = extent(d, 1, 8),
     .hidden = extent(d, 1, 600))
DRAW(moe_unpermute, .rows = 1, .inverse = 1, .weights = 1, .offsets = 1, .out = 1,
     .tokens = extent(d, 1, 20), .topk = extent(d, 1, 8), .hidden = extent(d, 1, 600),
     .local = extent(d, 1, 20))
DRAW(topk_softmax, .gating = 1, .weights = 1, .ids = 1, .source = below(d, 2),
     .tokens = extent(d, 1, 30), .experts = DECODE_TOPK_MAX + below(d, 250) * (1 + 3 * d->large),
     .topk = 1 + below(d, DECODE_TOPK_MAX),
     .flags = below(d, 2) * DECODE_F32 | below(d, 2) * DECODE_RENORMALIZE)

#define ROW(kernel, ...) \
	{ .name = "decode_" #kernel, .draw = draw_##kernel, .range = { __VA_ARGS__ } }

const struct decode_case cases_moe[] = {
	ROW(moe_align, { .name = "ids", .fill = fill_align_ids }),
	ROW(moe_gemm, { .name = "x", .fill = fill_bf16 }, { .name = "w", .fill = fill_bf16 }, { .name = "bias", .fill = fill_bf16 },
	    { .name = "sorted", .fill = fill_order }, { .name = "experts_of", .fill = fill_gemm_experts }, { .name = "total", .fill = fill_total },
	    { .name = "weights", .fill = fill_f32 }),
	ROW(moe_gemm_fp8, { .name = "x", .fill = fill_e4m3 }, { .name = "w", .fill = fill_e4m3 }, { .name = "x_scales", .fill = fill_scale },
	    { .name = "w_scales", .fill = fill_scale }, { .name = "offsets", .fill = fill_fp8_starts }, { .name = "sizes", .fill = fill_sizes },
	    { .name = "ab_strides", .fill = fill_ab }, { .name = "c_strides", .fill = fill_c }),
	ROW(moe_gemm_nvfp4, { .name = "x_sf", .fill = fill_e4m3 }, { .name = "w_sf", .fill = fill_e4m3 }, { .name = "alphas", .fill = fill_scale },
	    { .name = "offsets", .fill = fill_fp4_starts }, { .name = "sf_offsets", .fill = fill_sf_starts }),
	ROW(moe_nvfp4_quant, { .name = "x", .fill = fill_bf16 }, { .name = "gscale", .fill = fill_scale },
	    { .name = "offsets", .fill = fill_quant_starts }),
	ROW(moe_permute_index, { .name = "ids", .fill = fill_index_ids }, { .name = "map", .fill = fill_map }),
	ROW(moe_permute_rows, { .name = "sorted", .fill = fill_order }, { .name = "offsets", .fill = fill_row_starts }),
	ROW(moe_sum, { .name = "x", .fill = fill_bf16 }),
	ROW(moe_unpermute, { .name = "rows", .fill = fill_bf16 }, { .name = "inverse", .fill = fill_order },
	    { .name = "weights", .fill = fill_f32 }, { .name = "offsets", .fill = fill_back_starts }),
	ROW(topk_softmax, { .name = "gating", .fill = fill_gating },
	    { .name = "weights", .fill = fill_bytes, .ulps = 4, .f32 = true }),
	{ .name = NULL },
};
/* clang-format on */
