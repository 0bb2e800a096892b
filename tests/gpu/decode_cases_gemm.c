/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: shapes and contents for the dense GEMMs on packed weights: rows that fill no tile, columns
 * that fill none, K of whole and of broken runs; dirty locks, indices that are none. All of them
 * are equal bit for bit. Threads: one.
 */
#include "decode_check.h"

/* ---- contents ---- */

/* Sorted; now and then the last ones are none. */
static void fill_g_idx(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_marlin_gemm_args *a = args;
	uint32_t good = below(d, 4) ? a->k : a->k - below(d, a->k);

	for (uint32_t i = 0; i < bytes / 4; i++)
		((int32_t *)to)[i] = i < good ? (int32_t)(i / (a->k / a->groups)) : 1 << 20;
}

static void fill_perm(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	int32_t *order = to;

	for (uint32_t i = 0; i < bytes / 4; i++) {
		uint32_t j = below(d, i + 1);

		order[i] = order[j];
		order[j] = (int32_t)i;
	}
	if (below(d, 4) == 0)
		order[0] = -1;
}

/* A dirty lock costs a wait. Small numbers are what a count of turns would go through. */
static void fill_locks(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	static const int32_t dirty[] = { 1, 2, 3, 4, 7, 1 << 20, -1 };

	fill_zero(d, args, to, bytes);
	if (below(d, 4) == 0)
		((int32_t *)to)[below(d, (uint32_t)(bytes / 4))] =
			dirty[below(d, sizeof(dirty) / sizeof(dirty[0]))];
}

static void fill_ids(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_exllama_gemm_args *a = args;

	for (uint64_t i = 0; i < bytes / 4; i++)
		((int32_t *)to)[i] = (int32_t)below(d, a->experts + 2) - 1;
}

/* ---- shapes ---- */

static void draw_marlin_gemm(struct draw *d, void *args)
{
	struct decode_marlin_gemm_args *a = args;
	uint32_t group = 16 * (1 + below(d, 9)), order = below(d, 2);

	*a = (struct decode_marlin_gemm_args){
		.x = 1,
		.q = 1,
		.scales = 1,
		.zeros = below(d, 2),
		.g_idx = order,
		.perm = order,
		.bias = below(d, 2),
		.workspace = 1,
		.status = 1,
		.tmp = below(d, 2),
		.out = 1,
		.tokens = below(d, 3) ? 1 + below(d, 5) : extent(d, 1, 40),
		.n = extent(d, 64, 3),
		.groups = extent(d, 1, 6),
		.bits = below(d, 2) ? 4 : 8,
	};
	a->k = a->groups * group;
	/* Groups of less than a tile, too. */
	if (below(d, 4) == 0)
		a->groups = a->k / 4;
	a->locks = a->n / 64 + below(d, 3);
}

static void draw_exllama_gemm(struct draw *d, void *args)
{
	struct decode_exllama_gemm_args *a = args;
	uint32_t group = 8 * (1 + below(d, 20)), by_expert = below(d, 2);

	*a = (struct decode_exllama_gemm_args){
		.x = 1,
		.q = 1,
		.scales = 1,
		.zeros = 1,
		.ids = by_expert,
		.weights = below(d, 2),
		.out = 1,
		.rows = extent(d, 1, 20),
		.n = extent(d, 8, 12),
		.groups = extent(d, 1, 4),
		.topk = extent(d, 1, 4),
		.experts = by_expert ? extent(d, 1, 4) : 1,
	};
	a->k = a->groups * group;
}

/* clang-format off */
#define DRAW(kernel, ...)                                                              \
	static void draw_##kernel(struct draw *d, void *args)                          \
	{                                                                              \
		struct decode_##kernel##_args *a = args;                               \
                                                                                       \
		*a = (struct decode_##kernel##_args){ __VA_ARGS__ };                   \
	}

DRAW(fp8_gemm, .x = 1, .w = 1, .x_scales = 1, .w_scales = 1, .bias = below(d, 2), .out = 1,
     .tokens = extent(d, 1, 20), .n = extent(d, 1, 90),
     .k = below(d, 2) ? extent(d, 8, 40) : extent(d, 1, 300),
     .flags = below(d, 2) * DECODE_PER_TOKEN | below(d, 2) * DECODE_PER_CHANNEL)
DRAW(nvfp4_gemm, .x = 1, .w = 1, .x_sf = 1, .w_sf = 1, .alpha = 1, .out = 1,
     .tokens = below(d, 2) ? extent(d, 1, 20) : 120 + below(d, 20), .n = extent(d, 1, 150),
     .k = extent(d, 16, 20))
DRAW(nvfp4_quant, .x = 1, .gscale = 1, .codes = 1, .sf = 1,
     .tokens = below(d, 2) ? extent(d, 1, 20) : 120 + below(d, 20), .k = extent(d, 16, 20))

#define ROW(kernel, ...) \
	{ .name = "decode_" #kernel, .draw = draw_##kernel, .range = { __VA_ARGS__ } }

const struct decode_case cases_gemm[] = {
	ROW(exllama_gemm, { .name = "x", .fill = fill_bf16 }, { .name = "scales", .fill = fill_bf16 }, { .name = "ids", .fill = fill_ids },
	    { .name = "weights", .fill = fill_f32 }),
	ROW(fp8_gemm, { .name = "x", .fill = fill_e4m3 }, { .name = "w", .fill = fill_e4m3 }, { .name = "x_scales", .fill = fill_scale },
	    { .name = "w_scales", .fill = fill_scale }, { .name = "bias", .fill = fill_bf16 }),
	ROW(marlin_gemm, { .name = "x", .fill = fill_bf16 }, { .name = "scales", .fill = fill_bf16 }, { .name = "g_idx", .fill = fill_g_idx },
	    { .name = "perm", .fill = fill_perm }, { .name = "bias", .fill = fill_bf16 }, { .name = "workspace", .fill = fill_locks },
	    { .name = "status", .fill = fill_zero }),
	ROW(nvfp4_gemm, { .name = "x_sf", .fill = fill_e4m3 }, { .name = "w_sf", .fill = fill_e4m3 }, { .name = "alpha", .fill = fill_scale }),
	ROW(nvfp4_quant, { .name = "x", .fill = fill_bf16 }, { .name = "gscale", .fill = fill_scale }),
	{ .name = NULL },
};
/* clang-format on */
