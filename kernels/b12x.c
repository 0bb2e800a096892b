/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of b12x.cu: FlashInfer's B12x MoE wrapper on SM120.
 *
 * vLLM's post-load processing bakes the global scale into the block scales, sf' = e4m3(sf * ws[e]),
 * and sets the alphas to 1; the product of the two is what the kernel sees. Its view of w1_sf_mma
 * and w2_sf_mma is the 128 x 4 order of nvfp4.c, and its padded copy is pad.c. Both are made once a
 * pointer: after a reload they have to be made again.
 * Threads: any; pure.
 */
#include "kernels/number.h"
#include "kernels/twins.h"

void arena_b12x_scales_twin(const void *args)
{
	const struct arena_b12x_scales_args *a = args;
	const uint8_t *sf = DERIVE_IN(uint8_t, a->sf);
	const float *ws = DERIVE_IN(float, a->ws);
	uint8_t *out = DERIVE_OUT(uint8_t, a->out);

	for (uint32_t e = 0; e < a->experts; e++)
		for (uint32_t i = 0; i < a->per_expert; i++, sf++)
			*out++ = number_to_e4m3(number_from_e4m3(*sf) * ws[e]);
}

void arena_b12x_input_scale_twin(const void *args)
{
	const struct arena_b12x_input_scale_args *a = args;
	const float *from = DERIVE_IN(float, a->a2_gscale);
	float *out = DERIVE_OUT(float, a->out);

	for (uint32_t e = 0; e < a->experts; e++)
		out[e] = from != NULL ? from[e] : 1.0f;
}
