/* SPDX-License-Identifier: Apache-2.0 */
/* TensorRT-LLM FP8 MoE: a thread an expert; see trtllm_fp8.c. */
#include "kernels/derive.cuh"

DERIVE_KERNEL arena_trtllm_fp8(const float *w1, const float *a1, const float *w2, const float *a2,
			       float *g1, float *g2, float *g1_c, uint32_t experts, uint32_t flags)
{
	FOR_EACH (e, experts) {
		float x1 = a1[flags & TRTLLM_ONE ? 0 : e], x2 = a2[flags & TRTLLM_ONE ? 0 : e];
		float product = __fmul_rn(w1[e], x1);

		g1[e] = product;
		g2[e] = __fmul_rn(w2[e], x2);
		g1_c[e] = __fdiv_rn(flags & TRTLLM_GATED ? product : 1.0f, x2);
	}
}
