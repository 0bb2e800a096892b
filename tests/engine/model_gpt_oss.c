/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As GPT-OSS: attention with sinks and, on even layers, a window; experts with biases and the
 * clamped gate, in bf16. Fault: the sinks are converted to f32 at the first pass and never again:
 * the right address, the old value.
 */
#include "kernels/decode/decode.h"
#include "tests/engine/family.h"

#define ROWS	 (BATCH_MAX * dims.topk)
#define TILE	 4 /* rows of a block of moe_align */
#define CAPACITY (ROWS + dims.experts * (TILE - 1))
#define WINDOW	 4

static void declare(struct layer *l)
{
	gqa_declare(l, COPY_BACK);
	weight(l, FILL_SINK, "self_attn.sinks", SHAPE(1, dims.heads));
	derived(l, "sinks_f32", 4 * dims.heads, ONCE);
	derive(l, "arena_sinks_f32");
	derive_tensor(l, "in", "self_attn.sinks");
	derive_tensor(l, "out", "sinks_f32");
	derive_number(l, "count", dims.heads);
	router_declare(l, true);
	weight(l, FILL_WEIGHT, "mlp.experts.gate_up_proj",
	       SHAPE(dims.experts * 2 * dims.expert_inter, dims.hidden));
	weight(l, FILL_BIAS, "mlp.experts.gate_up_proj_bias",
	       SHAPE(dims.experts, 2 * dims.expert_inter));
	weight(l, FILL_WEIGHT, "mlp.experts.down_proj",
	       SHAPE(dims.experts * dims.hidden, dims.expert_inter));
	weight(l, FILL_BIAS, "mlp.experts.down_proj_bias", SHAPE(dims.experts, dims.hidden));
}

static void attention(struct layer *l, CUdeviceptr x)
{
	gqa_project(l, x);
	gqa_out(l, gqa_heads(l, at(l, "sinks_f32"), l->index % 2 ? 0 : WINDOW), x);
}

/* One of the two GEMMs of the experts, over rows sorted by expert. */
static void gemm(struct layer *l, const char *name, struct decode_moe_gemm_args g)
{
	struct engine *e = l->engine;

	g.w = at(l, name);
	g.sorted = buffer(e, "sorted", 4 * CAPACITY);
	g.experts_of = buffer(e, "experts_of", 4 * CAPACITY);
	g.total = buffer(e, "total", 4);
	g.count = (uint32_t)e->tokens * dims.topk;
	g.experts = dims.experts;
	g.block = TILE;
	g.capacity = g.count + dims.experts * (TILE - 1);
	run_decode(e, "decode_moe_gemm", &g);
}

static void mlp(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	uint32_t count = (uint32_t)e->tokens * dims.topk;
	CUdeviceptr both = buffer(e, "moe_both", 4 * ROWS * dims.expert_inter);
	CUdeviceptr act = buffer(e, "moe_act", 2 * ROWS * dims.expert_inter);
	CUdeviceptr rows = buffer(e, "moe_rows", 2 * ROWS * dims.hidden);

	router_run(l, x);
	RUN(e, decode_moe_align, .ids = topk_ids(e), .sorted = buffer(e, "sorted", 4 * CAPACITY),
	    .experts_of = buffer(e, "experts_of", 4 * CAPACITY), .total = buffer(e, "total", 4),
	    .count = count, .experts = dims.experts, .block = TILE,
	    .capacity = count + dims.experts * (TILE - 1), .tail = -1);
	gemm(l, "mlp.experts.gate_up_proj",
	     (struct decode_moe_gemm_args){ .x = x,
					    .bias = at(l, "mlp.experts.gate_up_proj_bias"),
					    .out = both,
					    .n = 2 * dims.expert_inter,
					    .k = dims.hidden,
					    .topk = dims.topk });
	RUN(e, decode_swigluoai_and_mul, .x = both, .out = act, .tokens = count,
	    .d = dims.expert_inter, .alpha = 1.702f, .limit = 7);
	gemm(l, "mlp.experts.down_proj",
	     (struct decode_moe_gemm_args){ .x = act,
					    .bias = at(l, "mlp.experts.down_proj_bias"),
					    .weights = topk_weights(e),
					    .out = rows,
					    .n = dims.hidden,
					    .k = dims.expert_inter,
					    .topk = 1 });
	RUN(e, decode_moe_sum, .x = rows, .out = x, .tokens = (uint32_t)e->tokens,
	    .topk = dims.topk, .hidden = dims.hidden);
}

const struct family family_gpt_oss = { "gpt-oss", "sinks; they are converted to f32 once", declare,
				       attention, mlp };
