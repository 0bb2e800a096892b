/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FP8 experts through a grouped GEMM as CUTLASS has it: strides and problem sizes in memory,
 * activations quantised by row. Fault: each pass builds the kernel object anew, with new stride
 * arrays, scales and permute scratch.
 */
#include "kernels/decode/decode.h"
#include "kernels/image.h"
#include "tests/engine/family.h"

#define ROWS (BATCH_MAX * dims.topk)
#define N13  (2 * dims.expert_inter)

static void declare(struct layer *l)
{
	gqa_declare(l, COPY_BACK);
	router_declare(l, false);
	experts_part(l, loaded(l, "w13", COPY_BACK), FILL_FP8, "weight",
		     SHAPE(dims.expert_inter, dims.hidden));
	experts_part(l, loaded(l, "w2", COPY_BACK), FILL_FP8, "weight",
		     SHAPE(dims.hidden, dims.expert_inter));
	experts_part(l, loaded(l, "w13_scale", REBIND), FILL_FP8_SCALE, "weight_scale",
		     SHAPE(dims.expert_inter, 1));
	experts_part(l, loaded(l, "w2_scale", REBIND), FILL_FP8_SCALE, "weight_scale",
		     SHAPE(dims.hidden, 1));
	derived(l, "ab_strides1", 8 * dims.experts, REBIND);
	derived(l, "ab_strides2", 8 * dims.experts, REBIND);
	derived(l, "c_strides1", 8 * dims.experts, REBIND);
	derive(l, "arena_cutlass_strides");
	derive_tensor(l, "ab1", "ab_strides1");
	derive_tensor(l, "ab2", "ab_strides2");
	derive_tensor(l, "c1", "c_strides1");
	derive_number(l, "experts", dims.experts);
	derive_number(l, "hidden", dims.hidden);
	derive_number(l, "inter", dims.expert_inter);
	permute_declare(l, REBIND);
}

/* Rows as e4m3, each with a scale; then the GEMM. */
static void gemm(struct layer *l, CUdeviceptr x, struct decode_moe_gemm_fp8_args g)
{
	struct engine *e = l->engine;

	g.rows = (uint32_t)e->tokens * dims.topk;
	g.x = buffer(e, g.k == dims.hidden ? "fp8_rows" : "fp8_rows2", (uint64_t)ROWS * g.k);
	g.x_scales = buffer(e, "fp8_scales", 4 * ROWS);
	RUN(e, decode_fp8_quant_token, .x = x, .out = g.x, .scales = g.x_scales, .tokens = g.rows,
	    .k = g.k);
	g.offsets = at(l, "permute.offsets");
	g.experts = dims.experts;
	g.flags = DECODE_PER_TOKEN | DECODE_PER_CHANNEL;
	run_decode(e, "decode_moe_gemm_fp8", &g);
}

static void mlp(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	CUdeviceptr both = buffer(e, "moe_both", 2 * ROWS * N13);
	CUdeviceptr act = buffer(e, "moe_act", 2 * ROWS * dims.expert_inter);
	CUdeviceptr rows = buffer(e, "moe_rows", 2 * ROWS * dims.hidden), permuted;
	CUdeviceptr sizes1 = buffer(e, "sizes1", 12 * dims.experts),
		    sizes2 = buffer(e, "sizes2", 12 * dims.experts);

	router_run(l, x);
	permuted = permute_run(l, x);
	run_derive(e, "arena_cutlass_problems",
		   &(struct arena_cutlass_problems_args){ .offsets = at(l, "permute.offsets"),
							  .sizes1 = sizes1,
							  .sizes2 = sizes2,
							  .experts = dims.experts,
							  .hidden = dims.hidden,
							  .inter = dims.expert_inter });
	gemm(l, permuted,
	     (struct decode_moe_gemm_fp8_args){ .w = at(l, "w13"),
						.w_scales = at(l, "w13_scale"),
						.sizes = sizes1,
						.out = both,
						.ab_strides = at(l, "ab_strides1"),
						.c_strides = at(l, "c_strides1"),
						.n = N13,
						.k = dims.hidden });
	RUN(e, decode_silu_and_mul, .x = both, .out = act,
	    .tokens = (uint32_t)e->tokens * dims.topk, .d = dims.expert_inter);
	/* The second result has rows of hidden, as the first operand of the first GEMM. */
	gemm(l, act,
	     (struct decode_moe_gemm_fp8_args){ .w = at(l, "w2"),
						.w_scales = at(l, "w2_scale"),
						.sizes = sizes2,
						.out = rows,
						.ab_strides = at(l, "ab_strides2"),
						.c_strides = at(l, "ab_strides1"),
						.n = dims.hidden,
						.k = dims.expert_inter });
	unpermute_run(l, rows, x);
}

const struct family family_fp8_moe = { "fp8-moe", "strides, scales and scratch are built anew",
				       declare, gqa_attention, mlp };
