/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As GPT-OSS: attention with sinks and, on even layers, a window; experts with biases and the
 * clamped gate, in bf16. Fault: the sinks are converted to f32 at the first pass and never again:
 * the right address, the old value.
 */
#include "kernels/decode/decode.h"
#include "tests/engine/family.h"

#define ROWS	 (BATCH_MAX * TOPK)
#define TILE	 4 /* rows of a block of moe_align */
#define CAPACITY (ROWS + EXPERTS * (TILE - 1))
#define WINDOW	 4

static void declare(struct layer *l)
{
	gqa_declare(l, COPY_BACK);
	weight(l, FILL_SINK, "self_attn.sinks", SHAPE(1, HEADS));
	derived(l, "sinks_f32", 4 * HEADS, ONCE);
	derive(l, "arena_sinks_f32");
	derive_tensor(l, "in", "self_attn.sinks");
	derive_tensor(l, "out", "sinks_f32");
	derive_number(l, "count", HEADS);
	router_declare(l, true);
	weight(l, FILL_WEIGHT, "mlp.experts.gate_up_proj",
	       SHAPE(EXPERTS * 2 * EXPERT_INTER, HIDDEN));
	weight(l, FILL_BIAS, "mlp.experts.gate_up_proj_bias", SHAPE(EXPERTS, 2 * EXPERT_INTER));
	weight(l, FILL_WEIGHT, "mlp.experts.down_proj", SHAPE(EXPERTS * HIDDEN, EXPERT_INTER));
	weight(l, FILL_BIAS, "mlp.experts.down_proj_bias", SHAPE(EXPERTS, HIDDEN));
}

static void attention(struct layer *l, CUdeviceptr x)
{
	gqa_out(l, gqa_heads(l, x, at(l, "sinks_f32"), l->index % 2 ? 0 : WINDOW), x);
}

/* One of the two GEMMs of the experts, over rows sorted by expert. */
static void gemm(struct layer *l, const char *name, struct decode_moe_gemm_args g)
{
	struct engine *e = l->engine;

	g.w = at(l, name);
	g.sorted = buffer(e, "sorted", 4 * CAPACITY);
	g.experts_of = buffer(e, "experts_of", 4 * CAPACITY);
	g.total = buffer(e, "total", 4);
	g.count = (uint32_t)e->tokens * TOPK;
	g.experts = EXPERTS;
	g.block = TILE;
	g.capacity = g.count + EXPERTS * (TILE - 1);
	run_decode(e, "decode_moe_gemm", &g);
}

static void mlp(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	uint32_t count = (uint32_t)e->tokens * TOPK;
	CUdeviceptr both = buffer(e, "moe_both", 4 * ROWS * EXPERT_INTER);
	CUdeviceptr act = buffer(e, "moe_act", 2 * ROWS * EXPERT_INTER);
	CUdeviceptr rows = buffer(e, "moe_rows", 2 * ROWS * HIDDEN);

	router_run(l, x);
	RUN(e, decode_moe_align, .ids = topk_ids(e), .sorted = buffer(e, "sorted", 4 * CAPACITY),
	    .experts_of = buffer(e, "experts_of", 4 * CAPACITY), .total = buffer(e, "total", 4),
	    .count = count, .experts = EXPERTS, .block = TILE,
	    .capacity = count + EXPERTS * (TILE - 1), .tail = -1);
	gemm(l, "mlp.experts.gate_up_proj",
	     (struct decode_moe_gemm_args){ .x = x,
					    .bias = at(l, "mlp.experts.gate_up_proj_bias"),
					    .out = both,
					    .n = 2 * EXPERT_INTER,
					    .k = HIDDEN,
					    .topk = TOPK });
	RUN(e, decode_swigluoai_and_mul, .x = both, .out = act, .tokens = count, .d = EXPERT_INTER,
	    .alpha = 1.702f, .limit = 7);
	gemm(l, "mlp.experts.down_proj",
	     (struct decode_moe_gemm_args){ .x = act,
					    .bias = at(l, "mlp.experts.down_proj_bias"),
					    .weights = topk_weights(e),
					    .out = rows,
					    .n = HIDDEN,
					    .k = EXPERT_INTER,
					    .topk = 1 });
	RUN(e, decode_moe_sum, .x = rows, .out = x, .tokens = (uint32_t)e->tokens, .topk = TOPK,
	    .hidden = HIDDEN);
}

const struct family family_gpt_oss = { "gpt-oss", "sinks; they are converted to f32 once", declare,
				       attention, mlp };
