/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: shapes and contents for each derivation: odd ones, padded ones, ones that fill no block.
 * Threads: one.
 */
#include "kernels_check.h"

#include <string.h>

#include "kernels/number.h"
#include "tests/unit/seed.h"

static uint32_t below(struct draw *d, uint32_t limit)
{
	return (uint32_t)seed_below(&d->seed, limit);
}

/* A multiple of @unit, up to @small of them, or ten times as many. */
static uint32_t extent(struct draw *d, uint32_t unit, uint32_t small)
{
	return unit * (1 + below(d, d->large ? 10 * small : small));
}

static uint32_t bits(struct draw *d)
{
	return below(d, 2) ? 4 : 8;
}

/* ---- shapes ---- */

/* clang-format off */
#define DRAW(kernel, ...)                                                              \
	static void draw_##kernel(struct draw *d, void *args)                          \
	{                                                                              \
		struct arena_##kernel##_args *a = args;                                \
                                                                                       \
		*a = (struct arena_##kernel##_args){ __VA_ARGS__ };                    \
	}

DRAW(argsort, .keys = 1, .order = 1, .sorted = below(d, 2), .count = extent(d, 1, 300))
DRAW(b12x_input_scale, .a2_gscale = below(d, 2), .out = 1, .experts = extent(d, 1, 100))
DRAW(b12x_scales, .sf = 1, .ws = 1, .out = 1, .experts = extent(d, 1, 9),
     .per_expert = extent(d, 1, 500))
DRAW(cutlass_problems, .offsets = 1, .sizes1 = 1, .sizes2 = 1, .experts = extent(d, 1, 60),
     .hidden = extent(d, 8, 100), .inter = extent(d, 8, 100), .swap = below(d, 2))
DRAW(cutlass_s_strides, .s1 = 1, .s2 = 1, .experts = extent(d, 1, 60),
     .hidden = extent(d, 8, 100), .inter = extent(d, 8, 100))
DRAW(cutlass_starts, .offsets = 1, .table = 1, .a = seed_next(&d->seed), .b = seed_next(&d->seed),
     .out = seed_next(&d->seed), .sa = seed_next(&d->seed), .sb = seed_next(&d->seed),
     .experts = extent(d, 1, 60), .n = extent(d, 8, 100), .k = extent(d, 8, 100),
     .flags = below(d, 4))
DRAW(cutlass_strides, .ab1 = 1, .ab2 = 1, .c1 = 1, .experts = extent(d, 1, 60),
     .hidden = extent(d, 8, 100), .inter = extent(d, 8, 100))
DRAW(exllama_shuffle, .q = 1, .out = 1, .words = extent(d, 1, 3000))
DRAW(machete_zeros, .scales = 1, .z = 1, .out = 1, .groups = extent(d, 1, 5),
     .n = extent(d, 8, 30), .bits = bits(d), .type = below(d, 2), .awq = below(d, 2))
DRAW(marlin_scales, .s = 1, .out = 1, .groups = extent(d, 1, 5), .n = extent(d, 64, 5),
     .channel = below(d, 2))
DRAW(marlin_zeros, .z = 1, .out = 1, .groups = extent(d, 1, 5), .n = extent(d, 64, 5),
     .bits = bits(d), .awq = below(d, 2))
DRAW(mla_dequant, .w = 1, .scales = 1, .out = 1, .rows = extent(d, 1, 90),
     .cols = extent(d, 1, 90), .block_rows = extent(d, 1, 50), .block_cols = extent(d, 1, 50))
DRAW(pad, .in = 1, .out = 1, .batch = extent(d, 1, 2), .rows = extent(d, 1, 20),
     .width = extent(d, below(d, 2) ? 16 : 1, 40))
DRAW(sinks_f32, .in = 1, .out = 1, .count = extent(d, 1, 200), .type = below(d, 2))
DRAW(trtllm_fp8, .w1 = 1, .a1 = 1, .w2 = 1, .a2 = 1, .g1 = 1, .g2 = 1, .g1_c = 1,
     .experts = extent(d, 1, 60), .flags = below(d, 4))
DRAW(nvfp4_scales, .w13 = 1, .w2 = 1, .in13 = 1, .in2 = 1, .a13 = 1, .a2 = 1, .a1_gscale = 1,
     .a2_gscale = 1, .g1 = 1, .g2 = 1, .experts = extent(d, 1, 60), .flags = below(d, 4))
DRAW(nvfp4_swizzle, .sf = 1, .out = 1, .batch = extent(d, 1, 2), .rows = extent(d, 1, 200),
     .cols = extent(d, below(d, 2) ? 1 : 4 + 12 * below(d, 2), 20))
DRAW(mla_split, .w = 1, .uk = 1, .uv = 1, .heads = extent(d, 1, 2), .nope = extent(d, 1, 20),
     .v = extent(d, below(d, 2) ? 8 : 1 + below(d, 2), 20), .latent = extent(d, 1 + 7 * below(d, 2), 12),
     .word = below(d, 2) ? 2 : 4)
/* clang-format on */

/* Larger by some: the second draw of a shape that has to hold the first. */
static void draw_padded(struct draw *d, void *args)
{
	struct arena_pad_args *a = args;

	draw_pad(d, args);
	a->out_rows = a->rows + below(d, 5);
	a->out_width = a->width + (a->width % 16 ? 1 : 16) * below(d, 3);
}

static void draw_nvfp4_quant(struct draw *d, void *args)
{
	d->steps = below(d, 2);
	d->type = below(d, 2);
	*(struct arena_nvfp4_quant_args *)args = (struct arena_nvfp4_quant_args){
		.x = 1,
		.gscale = 1,
		.codes = 1,
		.sf = 1,
		.rows = extent(d, 1, 20),
		.cols = extent(d, 16, 10),
		.type = d->type,
	};
}

static void draw_machete_permute(struct draw *d, void *args)
{
	*(struct arena_machete_permute_args *)args = (struct arena_machete_permute_args){
		.q = 1,
		.perm = 1,
		.out = 1,
		.bits = bits(d),
		.k = extent(d, 8, 9),
		.n = extent(d, 1, 50),
	};
	d->limit = ((struct arena_machete_permute_args *)args)->k;
}

static void draw_marlin_repack(struct draw *d, void *args)
{
	struct arena_marlin_repack_args *a = args;

	*a = (struct arena_marlin_repack_args){
		.q = 1,
		.perm = below(d, 2),
		.out = 1,
		.bits = bits(d),
		.flags = below(d, 4),
		.n = extent(d, 64, 3),
	};
	a->k = extent(d, a->flags & MARLIN_A8 ? 32 : 16, 6);
	d->limit = a->k;
}

/* In act-order, that which a kernel of its own takes: few columns, all of whose rows it holds. */
static void draw_marlin_order(struct draw *d, void *args)
{
	struct arena_marlin_repack_args *a = args;

	draw_marlin_repack(d, args);
	a->perm = 1;
	a->flags &= MARLIN_A8;
	a->n = 64 * (1 + below(d, 3));
	a->k = extent(d, a->flags & MARLIN_A8 ? 32 : 16, 6) * (1 + below(d, 16));
	d->limit = a->k;
}

/* ---- routing ---- */

static uint32_t some_experts(struct draw *d)
{
	d->experts = d->large ? extent(d, 1, 100) : extent(d, 1, 20);
	return d->experts > MOE_EXPERTS_MAX ? MOE_EXPERTS_MAX : d->experts;
}

static void draw_moe_align(struct draw *d, void *args)
{
	struct arena_moe_align_args *a = args;

	*a = (struct arena_moe_align_args){
		.ids = 1,
		.map = below(d, 2),
		.sorted = 1,
		.blocks = 1,
		.total = 1,
		.count = extent(d, 1, 200),
		.experts = some_experts(d),
		.block = 1 + below(d, 40),
		.tail = below(d, 2) ? -1 : 0,
	};
	a->capacity = a->count + a->experts * (a->block - 1) + below(d, 3) * a->block;
}

static void draw_moe_permute_index(struct draw *d, void *args)
{
	struct arena_moe_permute_index_args *a = args;

	*a = (struct arena_moe_permute_index_args){
		.ids = 1,
		.map = below(d, 2),
		.sorted = 1,
		.inverse = 1,
		.offsets = 1,
		.count = extent(d, 1, 200),
		.experts = some_experts(d),
	};
	a->local = a->map ? (a->experts + 1) / 2 : a->experts;
}

static void draw_moe_permute_rows(struct draw *d, void *args)
{
	struct arena_moe_permute_rows_args *a = args;

	*a = (struct arena_moe_permute_rows_args){
		.x = 1,
		.sorted = 1,
		.offsets = 1,
		.out = 1,
		.topk = 1 + below(d, 8),
		.local = extent(d, 1, 20),
		.row_bytes = extent(d, below(d, 2) ? 16 : 2, 50),
	};
	a->count = a->topk * extent(d, 1, 20);
	d->limit = a->count;
}

static void draw_moe_unpermute(struct draw *d, void *args)
{
	struct arena_moe_unpermute_args *a = args;

	*a = (struct arena_moe_unpermute_args){
		.rows = 1,
		.inverse = 1,
		.weights = 1,
		.offsets = 1,
		.out = 1,
		.tokens = extent(d, 1, 20),
		.topk = 1 + below(d, 8),
		.hidden = extent(d, 1, 60),
		.local = extent(d, 1, 20),
		.type = below(d, 2),
	};
	d->limit = (uint64_t)a->tokens * a->topk;
}

/* ---- contents ---- */

static void fill_words(uint16_t *w, uint64_t n, struct draw *d)
{
	/* Neither format has its largest exponent: products stay finite, too. */
	for (uint64_t i = 0; i < n; i++)
		w[i] = (uint16_t)(seed_next(&d->seed) & 0xbbff);
	for (uint64_t i = 0; d->steps && i < n; i++)
		w[i] = number_to(d->type, i % 16 ? (float)below(d, 49) / 4 - 6 : 6);
}

static void fill_order(int32_t *order, uint64_t n, struct draw *d)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t j = seed_below(&d->seed, i + 1);

		order[i] = order[j];
		order[j] = (int32_t)i;
	}
	/* Of some, one index twice, or one that is none: an order is not to be trusted. */
	if (n > 1 && below(d, 3) == 0)
		order[below(d, (uint32_t)n)] = (int32_t)below(d, (uint32_t)(n + n / 2)) - 1;
}

static void fill_offsets(int64_t *offset, uint64_t n, struct draw *d)
{
	uint64_t sum = 0, each = d->limit / n;

	for (uint64_t i = 0; i < n; i++) {
		offset[i] = (int64_t)sum;
		sum += seed_below(&d->seed, 2 * each + 1);
		if (sum > d->limit)
			sum = d->limit;
	}
}

static void fill_ints(int32_t *to, uint64_t n, enum content content, struct draw *d)
{
	for (uint64_t i = 0; i < n; i++) {
		if (content == CONTENT_MAP)
			to[i] = i % 2 ? -1 : (int32_t)i / 2;
		else if (content == CONTENT_IDS)
			to[i] = (int32_t)below(d, d->experts + 2) - 1;
		else
			to[i] = (int32_t)below(d, 9) - 4;
	}
}

static void fill_bytes(uint8_t *to, uint64_t n, bool e4m3, struct draw *d)
{
	for (uint64_t i = 0; i < n; i += 8) {
		uint64_t word = seed_next(&d->seed);

		memcpy(to + i, &word, n - i < 8 ? n - i : 8);
	}
	for (uint64_t i = 0; e4m3 && i < n; i++)
		to[i] = to[i] % 0x7f;
}

static void fill_numbers(float *to, uint64_t n, struct draw *d)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = d->steps ? number_power((int)below(d, 6))
				 : (float)(1 + below(d, 1u << 20)) / (float)(1u << below(d, 20));
}

void content_fill(const struct kernel_case *c, const struct derive_range *r, struct draw *d,
		  void *to)
{
	enum content content = CONTENT_BYTES;

	for (int i = 0; i < 4 && c->content[i].range != NULL; i++)
		if (!strcmp(c->content[i].range, r->name))
			content = c->content[i].content;
	switch (r->result ? CONTENT_BYTES : content) {
	case CONTENT_NUMBERS:
		return fill_numbers(to, r->bytes / 4, d);
	case CONTENT_WORDS:
		return fill_words(to, r->bytes / 2, d);
	case CONTENT_ORDER:
		return fill_order(to, r->bytes / 4, d);
	case CONTENT_OFFSETS:
		return fill_offsets(to, r->bytes / 8, d);
	case CONTENT_KEYS:
	case CONTENT_IDS:
	case CONTENT_MAP:
		return fill_ints(to, r->bytes / 4, content, d);
	case CONTENT_E4M3:
	case CONTENT_BYTES:
		return fill_bytes(to, r->bytes, content == CONTENT_E4M3, d);
	}
}

/* clang-format off */
#define ROW(kernel, by, ...) { .name = "arena_" #kernel, .draw = draw_##by, __VA_ARGS__ }
#define C(...)		     .content = { __VA_ARGS__ }

const struct kernel_case kernel_cases[] = {
	ROW(argsort, argsort, C({ "keys", CONTENT_KEYS })),
	ROW(b12x_input_scale, b12x_input_scale, C({ "a2_gscale", CONTENT_NUMBERS })),
	ROW(b12x_scales, b12x_scales, C({ "sf", CONTENT_E4M3 }, { "ws", CONTENT_NUMBERS })),
	ROW(cutlass_problems, cutlass_problems, C({ "offsets", CONTENT_OFFSETS })),
	ROW(cutlass_s_strides, cutlass_s_strides),
	ROW(cutlass_starts, cutlass_starts, C({ "offsets", CONTENT_OFFSETS })),
	ROW(cutlass_strides, cutlass_strides),
	ROW(exllama_shuffle, exllama_shuffle, .shift = 4),
	ROW(machete_permute, machete_permute, C({ "perm", CONTENT_ORDER })),
	ROW(machete_zeros, machete_zeros, C({ "scales", CONTENT_WORDS })),
	ROW(marlin_repack, marlin_repack, C({ "perm", CONTENT_ORDER }), .shift_sources = 4),
	ROW(marlin_repack, marlin_order, C({ "perm", CONTENT_ORDER })),
	ROW(marlin_scales, marlin_scales),
	ROW(marlin_zeros, marlin_zeros),
	ROW(mla_dequant, mla_dequant, C({ "w", CONTENT_E4M3 }, { "scales", CONTENT_NUMBERS })),
	ROW(mla_split, mla_split, .shift = 4),
	ROW(moe_align, moe_align, C({ "ids", CONTENT_IDS }, { "map", CONTENT_MAP })),
	ROW(moe_permute_index, moe_permute_index,
	    C({ "ids", CONTENT_IDS }, { "map", CONTENT_MAP })),
	ROW(moe_permute_rows, moe_permute_rows,
	    C({ "sorted", CONTENT_ORDER }, { "offsets", CONTENT_OFFSETS }), .shift = 8),
	ROW(moe_unpermute, moe_unpermute,
	    C({ "rows", CONTENT_WORDS }, { "inverse", CONTENT_ORDER },
	      { "weights", CONTENT_NUMBERS }, { "offsets", CONTENT_OFFSETS })),
	ROW(nvfp4_quant, nvfp4_quant, C({ "x", CONTENT_WORDS }, { "gscale", CONTENT_NUMBERS })),
	ROW(nvfp4_scales, nvfp4_scales,
	    C({ "w13", CONTENT_NUMBERS }, { "w2", CONTENT_NUMBERS }, { "in13", CONTENT_NUMBERS },
	      { "in2", CONTENT_NUMBERS })),
	ROW(nvfp4_swizzle, nvfp4_swizzle, .shift_sources = 1),
	ROW(pad, padded, .shift = 1),
	ROW(sinks_f32, sinks_f32, C({ "in", CONTENT_WORDS })),
	ROW(trtllm_fp8, trtllm_fp8,
	    C({ "w1", CONTENT_NUMBERS }, { "a1", CONTENT_NUMBERS }, { "w2", CONTENT_NUMBERS },
	      { "a2", CONTENT_NUMBERS })),
	{ .name = NULL },
};
/* clang-format on */
