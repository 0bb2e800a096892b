/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVFP4 experts behind a wrapper object, as FlashInfer's for B12x: global scales are baked into
 * block scales, the wrapper owns workspace and output. Fault: the wrapper is built anew at each
 * pass, the scales it was given are new tensors.
 */
#include "kernels/decode/decode.h"
#include "tests/engine/family.h"

#define ROWS (BATCH_MAX * dims.topk)
#define N13  (2 * dims.expert_inter)

static void declare_weights(struct layer *l)
{
	struct tensor *t;

	experts_part(l, loaded(l, "w13_packed", COPY_BACK), FILL_FP4, "weight",
		     SHAPE(dims.expert_inter, dims.hidden / 2));
	experts_part(l, loaded(l, "w2_packed", COPY_BACK), FILL_FP4, "weight",
		     SHAPE(dims.hidden, dims.expert_inter / 2));
	experts_part(l, loaded(l, "w13_scale", COPY_BACK), FILL_FP4_SCALE, "weight_scale",
		     SHAPE(dims.expert_inter, dims.hidden / 16));
	experts_part(l, loaded(l, "w2_scale", COPY_BACK), FILL_FP4_SCALE, "weight_scale",
		     SHAPE(dims.hidden, dims.expert_inter / 16));
	t = loaded(l, "w1_global", COPY_BACK);
	part(l, t, FILL_RECIPROCAL, "mlp.experts.w1_weight_scale_2", SHAPE(1, dims.experts));
	t = loaded(l, "w2_global", COPY_BACK);
	part(l, t, FILL_RECIPROCAL, "mlp.experts.w2_weight_scale_2", SHAPE(1, dims.experts));
}

static void declare_baked(struct layer *l, const char *const names[4], const uint64_t shape[2])
{
	derived(l, names[2], dims.experts * shape[0] * shape[1], COPY_BACK);
	derive(l, "arena_b12x_scales");
	derive_tensor(l, "sf", names[0]);
	derive_tensor(l, "ws", names[1]);
	derive_tensor(l, "out", names[2]);
	derive_number(l, "experts", dims.experts);
	derive_number(l, "per_expert", shape[0] * shape[1]);
	fp4_swizzle(l, names[2], names[3], shape);
	layer_find(l, names[3])->naive = REBIND;
}

/* The global scales are in the block scales, so these are ones. */
static void declare_ones(struct layer *l, const char *name)
{
	derived(l, name, 4 * dims.experts, REBIND);
	derive(l, "arena_b12x_input_scale");
	derive_tensor(l, "out", name);
	derive_number(l, "experts", dims.experts);
}

static void declare(struct layer *l)
{
	static const char *const w13[] = { "w13_scale", "w1_global", "w13_baked", "w1_sf_mma" },
				 *const w2[] = { "w2_scale", "w2_global", "w2_baked", "w2_sf_mma" };

	gqa_declare(l, COPY_BACK);
	router_declare(l, false);
	declare_weights(l);
	declare_baked(l, w13, SHAPE(N13, dims.hidden / 16));
	declare_baked(l, w2, SHAPE(dims.hidden, dims.expert_inter / 16));
	declare_ones(l, "alphas");
	declare_ones(l, "fc2_input_scale");
	permute_declare(l, COPY_BACK);
	l->object_type = "flashinfer.B12xMoEWrapper";
	object_part(l, "workspace", 2 * ROWS * (N13 + dims.expert_inter + dims.hidden));
	object_part(l, "moe_output", 2 * BATCH_MAX * dims.hidden);
}

static void mlp(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	CUdeviceptr both = at(l, "workspace"), act = both + 2 * ROWS * N13;
	CUdeviceptr rows = act + 2 * ROWS * dims.expert_inter, out = at(l, "moe_output");

	router_run(l, x);
	fp4_run(l, &(struct fp4_gemm){ .x = permute_run(l, x),
				       .gscale = at(l, "alphas"),
				       .w = at(l, "w13_packed"),
				       .w_sf = at(l, "w1_sf_mma"),
				       .alphas = at(l, "alphas"),
				       .out = both,
				       .n = N13,
				       .k = dims.hidden });
	RUN(e, decode_silu_and_mul, .x = both, .out = act,
	    .tokens = (uint32_t)e->tokens * dims.topk, .d = dims.expert_inter);
	fp4_run(l, &(struct fp4_gemm){ .x = act,
				       .gscale = at(l, "fc2_input_scale"),
				       .w = at(l, "w2_packed"),
				       .w_sf = at(l, "w2_sf_mma"),
				       .alphas = at(l, "alphas"),
				       .out = rows,
				       .n = dims.hidden,
				       .k = dims.expert_inter });
	unpermute_run(l, rows, out);
	RUN(e, decode_copy_rows, .in = out, .out = x, .rows = (uint32_t)e->tokens,
	    .row_bytes = 2 * dims.hidden, .in_stride = 2 * dims.hidden,
	    .out_stride = 2 * dims.hidden);
}

const struct family family_b12x = { "b12x", "a wrapper with workspaces, which is built anew",
				    declare, gqa_attention, mlp };
