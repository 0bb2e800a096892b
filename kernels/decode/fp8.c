/* SPDX-License-Identifier: Apache-2.0 */
/* Job: the twins of fp8.cu: activations as e4m3. Threads: any; pure. */
#include <math.h>
#include <string.h>

#include "kernels/decode/decode.h"
#include "kernels/number.h"

#define FP8_MAX 448.0f

/* NaN does not count. */
static float largest(const uint16_t *x, uint64_t count)
{
	float max = 0;

	for (uint64_t i = 0; i < count; i++)
		max = fmaxf(max, fabsf(number_from_bf16(x[i])));
	return max;
}

/* Compared as the kernel's atomic does, by the bits: a NaN that was there stays. */
void decode_fp8_amax_twin(const void *args)
{
	const struct decode_fp8_amax_args *a = args;
	float max = largest(DERIVE_IN(uint16_t, a->x), a->count) / FP8_MAX;
	int32_t *scale = DERIVE_OUT(int32_t, a->scale), bits;

	memcpy(&bits, &max, sizeof(bits));
	if (bits > *scale)
		*scale = bits;
}

void decode_fp8_quant_twin(const void *args)
{
	const struct decode_fp8_quant_args *a = args;
	const uint16_t *x = DERIVE_IN(uint16_t, a->x);
	float inverse = 1 / *DERIVE_IN(float, a->scale);

	for (uint64_t i = 0; i < a->count; i++)
		DERIVE_OUT(uint8_t, a->out)[i] = number_to_e4m3(number_from_bf16(x[i]) * inverse);
}

void decode_fp8_quant_token_twin(const void *args)
{
	const struct decode_fp8_quant_token_args *a = args;
	const uint16_t *x = DERIVE_IN(uint16_t, a->x);
	const float *bound = DERIVE_IN(float, a->bound);
	uint8_t *out = DERIVE_OUT(uint8_t, a->out);

	for (uint32_t t = 0; t < a->tokens; t++, x += a->k, out += a->k) {
		float max = largest(x, a->k), scale;

		if (bound != NULL)
			max = fminf(max, *bound);
		scale = fmaxf(max / FP8_MAX, 1 / (FP8_MAX * 512));
		DERIVE_OUT(float, a->scales)[t] = scale;
		for (uint32_t i = 0; i < a->k; i++)
			out[i] = number_to_e4m3(number_from_bf16(x[i]) / scale);
	}
}
