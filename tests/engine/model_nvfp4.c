/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVFP4 experts as compressed-tensors stores them: e2m1 codes, e4m3 block scales, one global scale
 * an expert. Fault: g1_alphas are multiplied in place, so that a second pass multiplies what the
 * first one left. All addresses stay.
 */
#include "kernels/decode/decode.h"
#include "kernels/derive.h"
#include "tests/engine/family.h"

#include <stdio.h>

#define ROWS	(BATCH_MAX * dims.topk)
#define N13	(2 * dims.expert_inter)
#define SF_ROWS (dims.experts * 128) /* each expert's rows rounded up */

static void declare_weights(struct layer *l)
{
	experts_part(l, loaded(l, "w13_packed", COPY_BACK), FILL_FP4, "weight_packed",
		     SHAPE(dims.expert_inter, dims.hidden / 2));
	experts_part(l, loaded(l, "w2_packed", COPY_BACK), FILL_FP4, "weight_packed",
		     SHAPE(dims.hidden, dims.expert_inter / 2));
	experts_part(l, loaded(l, "w13_scale", COPY_BACK), FILL_FP4_SCALE, "weight_scale",
		     SHAPE(dims.expert_inter, dims.hidden / 16));
	experts_part(l, loaded(l, "w2_scale", COPY_BACK), FILL_FP4_SCALE, "weight_scale",
		     SHAPE(dims.hidden, dims.expert_inter / 16));
	experts_part(l, loaded(l, "w13_global", COPY_BACK), FILL_GLOBAL, "weight_global_scale",
		     SHAPE(1, 1));
	experts_part(l, loaded(l, "w2_global", COPY_BACK), FILL_GLOBAL, "weight_global_scale",
		     SHAPE(1, 1));
	experts_part(l, loaded(l, "w13_input", COPY_BACK), FILL_INPUT_GLOBAL, "input_global_scale",
		     SHAPE(1, 1));
	experts_part(l, loaded(l, "w2_input", COPY_BACK), FILL_INPUT_GLOBAL, "input_global_scale",
		     SHAPE(1, 1));
}

static void declare_scales(struct layer *l)
{
	static const char *const results[][2] = {
		{ "a13", "a13" },
		{ "a2", "a2" },
		{ "a1_gscale", "a1_gscale" },
		{ "a2_gscale", "a2_gscale" },
		{ "g1", "g1_alphas" },
		{ "g2", "g2_alphas" },
	};

	for (int i = 0; i < 6; i++)
		derived(l, results[i][1], 4 * dims.experts, COPY_BACK);
	layer_find(l, "g1_alphas")->naive = ACCUMULATE;
	snprintf(layer_find(l, "g1_alphas")->factor, NAME_BYTES, "a13");
	derive(l, "arena_nvfp4_scales");
	derive_tensor(l, "w13", "w13_global");
	derive_tensor(l, "w2", "w2_global");
	derive_tensor(l, "in13", "w13_input");
	derive_tensor(l, "in2", "w2_input");
	for (int i = 0; i < 6; i++)
		derive_tensor(l, results[i][0], results[i][1]);
	derive_number(l, "experts", dims.experts);
}

/* Block scales [experts, rows, cols] in 128 x 4 tiles. */
void fp4_swizzle(struct layer *l, const char *from, const char *to, const uint64_t shape[2])
{
	derived(l, to, dims.experts * DERIVE_UP(shape[0], 128) * DERIVE_UP(shape[1], 4), COPY_BACK);
	derive(l, "arena_nvfp4_swizzle");
	derive_tensor(l, "sf", from);
	derive_tensor(l, "out", to);
	derive_number(l, "batch", dims.experts);
	derive_number(l, "rows", shape[0]);
	derive_number(l, "cols", shape[1]);
}

static void declare(struct layer *l)
{
	gqa_declare(l, COPY_BACK);
	router_declare(l, false);
	declare_weights(l);
	declare_scales(l);
	fp4_swizzle(l, "w13_scale", "w13_sf", SHAPE(N13, dims.hidden / 16));
	fp4_swizzle(l, "w2_scale", "w2_sf", SHAPE(dims.hidden, dims.expert_inter / 16));
	permute_declare(l, COPY_BACK);
}

void fp4_run(struct layer *l, const struct fp4_gemm *g)
{
	struct engine *e = l->engine;
	uint32_t count = (uint32_t)e->tokens * dims.topk;
	bool wide = g->k == dims.hidden;
	CUdeviceptr codes = buffer(e, wide ? "fp4_codes" : "fp4_codes2", ROWS * g->k / 2);
	CUdeviceptr sf = buffer(e, wide ? "fp4_sf" : "fp4_sf2", SF_ROWS * DERIVE_UP(g->k / 16, 4));
	CUdeviceptr sf_offsets = buffer(e, "fp4_sf_offsets", 4 * (dims.experts + 1));

	RUN(e, decode_moe_nvfp4_quant, .x = g->x, .gscale = g->gscale,
	    .offsets = at(l, "permute.offsets"), .sf_offsets = sf_offsets, .codes = codes, .sf = sf,
	    .rows = count, .experts = dims.experts, .k = g->k, .sf_rows = SF_ROWS);
	RUN(e, decode_moe_gemm_nvfp4, .x = codes, .w = g->w, .x_sf = sf, .w_sf = g->w_sf,
	    .alphas = g->alphas, .offsets = at(l, "permute.offsets"), .sf_offsets = sf_offsets,
	    .out = g->out, .rows = count, .experts = dims.experts, .n = g->n, .k = g->k,
	    .sf_rows = SF_ROWS);
}

static void mlp(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	CUdeviceptr both = buffer(e, "moe_both", 2 * ROWS * N13);
	CUdeviceptr act = buffer(e, "moe_act", 2 * ROWS * dims.expert_inter);
	CUdeviceptr rows = buffer(e, "moe_rows", 2 * ROWS * dims.hidden);

	router_run(l, x);
	fp4_run(l, &(struct fp4_gemm){ .x = permute_run(l, x),
				       .gscale = at(l, "a1_gscale"),
				       .w = at(l, "w13_packed"),
				       .w_sf = at(l, "w13_sf"),
				       .alphas = at(l, "g1_alphas"),
				       .out = both,
				       .n = N13,
				       .k = dims.hidden });
	RUN(e, decode_silu_and_mul, .x = both, .out = act,
	    .tokens = (uint32_t)e->tokens * dims.topk, .d = dims.expert_inter);
	fp4_run(l, &(struct fp4_gemm){ .x = act,
				       .gscale = at(l, "a2_gscale"),
				       .w = at(l, "w2_packed"),
				       .w_sf = at(l, "w2_sf"),
				       .alphas = at(l, "g2_alphas"),
				       .out = rows,
				       .n = dims.hidden,
				       .k = dims.expert_inter });
	unpermute_run(l, rows, x);
}

const struct family family_nvfp4_moe = { "nvfp4-moe", "g1_alphas are multiplied in place", declare,
					 gqa_attention, mlp };
