/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twin of trtllm_fp8.cu: the scales that vLLM makes for TensorRT-LLM's FP8 MoE, with
 * one scale a tensor:
 *   g1_alphas = w1 * a1, g2_alphas = w2 * a2, g1_scale_c = g1_alphas / a2 (gated) or 1 / a2.
 * g1_scale_c comes from the g1 of this pass, not from the slot that is published later.
 * Threads: any; pure.
 */
#include "kernels/twins.h"

void arena_trtllm_fp8_twin(const void *args)
{
	const struct arena_trtllm_fp8_args *a = args;

	for (uint32_t e = 0; e < a->experts; e++) {
		uint32_t in = a->flags & TRTLLM_ONE ? 0 : e;
		float a2 = DERIVE_IN(float, a->a2)[in];
		float g1 = DERIVE_IN(float, a->w1)[e] * DERIVE_IN(float, a->a1)[in];

		DERIVE_OUT(float, a->g1)[e] = g1;
		DERIVE_OUT(float, a->g2)[e] = DERIVE_IN(float, a->w2)[e] * a2;
		DERIVE_OUT(float, a->g1_c)[e] = (a->flags & TRTLLM_GATED ? g1 : 1.0f) / a2;
	}
}
