/* SPDX-License-Identifier: Apache-2.0 */
/* Job: the twins of norm.cu: rms_norm, as engines round it. Threads: any; pure. */
#include <math.h>

#include "kernels/decode/decode.h"
#include "kernels/number.h"

/* @x may be @out. */
static void normalise(const uint16_t *x, const uint16_t *weight, uint16_t *out, uint32_t hidden,
		      float eps)
{
	double sum = 0;
	float r;

	for (uint32_t i = 0; i < hidden; i++)
		sum += (double)number_from_bf16(x[i]) * number_from_bf16(x[i]);
	r = 1 / sqrtf((float)(sum / hidden) + eps);
	for (uint32_t i = 0; i < hidden; i++) {
		/* Rounded before it meets the weight. */
		uint16_t part = number_to_bf16(number_from_bf16(x[i]) * r);

		out[i] = number_to_bf16(number_from_bf16(part) * number_from_bf16(weight[i]));
	}
}

void decode_rms_norm_twin(const void *args)
{
	const struct decode_rms_norm_args *a = args;
	const uint16_t *x = DERIVE_IN(uint16_t, a->x);

	for (uint64_t t = 0; t < a->tokens; t++)
		normalise(x + t * a->x_stride, DERIVE_IN(uint16_t, a->weight),
			  DERIVE_OUT(uint16_t, a->out) + t * a->hidden, a->hidden, a->eps);
}

void decode_fused_add_rms_norm_twin(const void *args)
{
	const struct decode_fused_add_rms_norm_args *a = args;
	uint16_t *x = DERIVE_OUT(uint16_t, a->x), *residual = DERIVE_OUT(uint16_t, a->residual);

	for (uint32_t t = 0; t < a->tokens; t++, x += a->hidden, residual += a->hidden) {
		for (uint32_t i = 0; i < a->hidden; i++)
			residual[i] = number_to_bf16(number_from_bf16(x[i]) +
						     number_from_bf16(residual[i]));
		normalise(residual, DERIVE_IN(uint16_t, a->weight), x, a->hidden, a->eps);
	}
}
