/* SPDX-License-Identifier: Apache-2.0 */
/* Job: the twins of activation.cu: gated activations. Threads: any; pure. */
#include <math.h>

#include "kernels/decode/decode.h"
#include "kernels/number.h"

void decode_silu_and_mul_twin(const void *args)
{
	const struct decode_silu_and_mul_args *a = args;
	const uint16_t *x = DERIVE_IN(uint16_t, a->x);
	uint16_t *out = DERIVE_OUT(uint16_t, a->out);

	for (uint32_t t = 0; t < a->tokens; t++, x += 2ull * a->d, out += a->d)
		for (uint32_t i = 0; i < a->d; i++) {
			float gate = number_from_bf16(x[i]);
			uint16_t silu = number_to_bf16(gate / (1 + expf(-gate)));

			out[i] = number_to_bf16(number_from_bf16(silu) *
						number_from_bf16(x[a->d + i]));
		}
}

/* As torch.clamp: a NaN stays one. */
static float at_most(float x, float limit)
{
	return x > limit ? limit : x;
}

void decode_swigluoai_and_mul_twin(const void *args)
{
	const struct decode_swigluoai_and_mul_args *a = args;
	const uint16_t *x = DERIVE_IN(uint16_t, a->x);
	uint16_t *out = DERIVE_OUT(uint16_t, a->out);

	for (uint64_t i = 0; i < (uint64_t)a->tokens * a->d; i++) {
		float gate = at_most(number_from_bf16(x[2 * i]), a->limit);
		float up = -at_most(-at_most(number_from_bf16(x[2 * i + 1]), a->limit), a->limit);

		out[i] = number_to_bf16((up + 1) * (gate / (1 + expf(-a->alpha * gate))));
	}
}
