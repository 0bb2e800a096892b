/* SPDX-License-Identifier: Apache-2.0 */
/* Experts of 4 bits in exllama's order, as the path for RDNA3 has them. Fault: the buffers of the
 * kernels are attributes that each pass makes anew. */
#include "kernels/decode/decode.h"
#include "tests/engine/family.h"

#define ROWS	       (BATCH_MAX * dims.topk)
#define N13	       (2 * dims.expert_inter)
#define ROWS_PER_SCALE 32

static void declare_weight(struct layer *l, const char *const names[4], const uint64_t shape[2])
{
	uint64_t k = shape[0], n = shape[1], words = dims.experts * k / 8 * n;

	weight(l, FILL_CODES, names[0], SHAPE(dims.experts * k / 8, n));
	weight(l, FILL_SCALE, names[1], SHAPE(dims.experts * k / ROWS_PER_SCALE, n));
	weight(l, FILL_CODES, names[2], SHAPE(dims.experts * k / ROWS_PER_SCALE, n / 8));
	derived(l, names[3], 4 * words, COPY_BACK);
	derive(l, "arena_exllama_shuffle");
	derive_tensor(l, "q", names[0]);
	derive_tensor(l, "out", names[3]);
	derive_number(l, "words", words);
}

static void declare(struct layer *l)
{
	static const char *const w13[] = { "mlp.experts.w13_qweight", "mlp.experts.w13_scales",
					   "mlp.experts.w13_qzeros", "w13_shuffled" },
				 *const w2[] = { "mlp.experts.w2_qweight", "mlp.experts.w2_scales",
						 "mlp.experts.w2_qzeros", "w2_shuffled" };

	gqa_declare(l, COPY_BACK);
	router_declare(l, false);
	declare_weight(l, w13, SHAPE(dims.hidden, N13));
	declare_weight(l, w2, SHAPE(dims.expert_inter, dims.hidden));
	zeroed(l, "w1_buf", 2 * ROWS * N13);
	scratch(l, "act_buf", 2 * ROWS * dims.expert_inter, REBIND);
	zeroed(l, "out_buf", 2 * ROWS * dims.hidden);
}

static void mlp(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	uint32_t rows = (uint32_t)e->tokens * dims.topk;

	router_run(l, x);
	RUN(e, decode_exllama_gemm, .x = x, .q = at(l, "w13_shuffled"),
	    .scales = at(l, "mlp.experts.w13_scales"), .zeros = at(l, "mlp.experts.w13_qzeros"),
	    .ids = topk_ids(e), .out = at(l, "w1_buf"), .rows = rows, .n = N13, .k = dims.hidden,
	    .groups = dims.hidden / ROWS_PER_SCALE, .topk = dims.topk, .experts = dims.experts);
	RUN(e, decode_silu_and_mul, .x = at(l, "w1_buf"), .out = at(l, "act_buf"), .tokens = rows,
	    .d = dims.expert_inter);
	RUN(e, decode_exllama_gemm, .x = at(l, "act_buf"), .q = at(l, "w2_shuffled"),
	    .scales = at(l, "mlp.experts.w2_scales"), .zeros = at(l, "mlp.experts.w2_qzeros"),
	    .ids = topk_ids(e), .weights = topk_weights(e), .out = at(l, "out_buf"), .rows = rows,
	    .n = dims.hidden, .k = dims.expert_inter, .groups = dims.expert_inter / ROWS_PER_SCALE,
	    .topk = 1, .experts = dims.experts);
	RUN(e, decode_moe_sum, .x = at(l, "out_buf"), .out = x, .tokens = (uint32_t)e->tokens,
	    .topk = dims.topk, .hidden = dims.hidden);
}

const struct family family_rdna3 = { "rdna3", "exllama's order; the kernels' buffers are made anew",
				     declare, gqa_attention, mlp };
