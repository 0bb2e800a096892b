/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model families: what a layer of each has, and the kernels of a step. model_<family>.c defines
 * a family; parts that several have are below.
 */
#ifndef ENGINE_FAMILY_H
#define ENGINE_FAMILY_H

#include "tests/engine/engine.h"

struct family {
	const char *name, *summary;
	void (*declare)(struct layer *l);
	/* Of a step: x [T, hidden] to x. */
	void (*attention)(struct layer *l, CUdeviceptr x);
	void (*mlp)(struct layer *l, CUdeviceptr x);
};

extern const struct family family_dense, family_gptq_marlin, family_gpt_oss, family_nvfp4_moe,
	family_mla, family_fp8_moe, family_b12x, family_rdna3;

/* ---- model_dense.c ---- */
void gqa_declare(struct layer *l, enum naive naive);
void gqa_attention(struct layer *l, CUdeviceptr x);
/* From [q, k, v] of each token, in buffer gqa_qkv(), to the heads' results. */
CUdeviceptr gqa_heads(struct layer *l, CUdeviceptr sinks, uint32_t window);
CUdeviceptr gqa_qkv(struct engine *e);
void gqa_project(struct layer *l, CUdeviceptr x);
void gqa_out(struct layer *l, CUdeviceptr heads, CUdeviceptr x);
CUdeviceptr gate_up(struct engine *e);	  /* [T, gate and up]: */
CUdeviceptr gate_up_act(struct layer *l); /* [T, inter] of it */
void dense_declare(struct layer *l, enum naive naive);
void dense_mlp(struct layer *l, CUdeviceptr x);

/* ---- moe.c: routing, and rows by expert ---- */
void router_declare(struct layer *l, bool bias);
void router_run(struct layer *l, CUdeviceptr x); /* to buffers topk_weights, topk_ids */
CUdeviceptr topk_weights(struct engine *e), topk_ids(struct engine *e);
/* A source an expert and projection, stacked: [E, w1 and w3] or [E, w2]. */
void experts_part(struct layer *l, struct tensor *t, enum fill fill, const char *suffix,
		  const uint64_t shape[2]);
void permute_declare(struct layer *l, enum naive naive);
CUdeviceptr permute_run(struct layer *l, CUdeviceptr x); /* @return permuted rows */
void unpermute_run(struct layer *l, CUdeviceptr rows, CUdeviceptr out);

/* ---- model_nvfp4.c ---- */
/* Declare @to: block scales @from [experts, rows, cols] in 128 x 4 tiles. */
void fp4_swizzle(struct layer *l, const char *from, const char *to, const uint64_t shape[2]);
struct fp4_gemm {
	CUdeviceptr x, gscale, w, w_sf, alphas, out;
	uint32_t n, k;
};
void fp4_run(struct layer *l, const struct fp4_gemm *g); /* quantise rows, then the GEMM */

#endif
