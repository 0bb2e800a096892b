/* SPDX-License-Identifier: Apache-2.0 */
/* Activations as e4m3; see fp8.c, the twins. */
#include "kernels/decode/decode.cuh"

#define FP8_MAX 448.0f

/* The larger of numbers from 0 on is that of the larger bits, and in any order the same. */
DECODE_KERNEL decode_fp8_amax(const uint16_t *x, float *scale, uint64_t count)
{
	float max = 0;

	FOR_EACH (i, count)
		max = fmaxf(max, fabsf(from_bf16(x[i])));
	max = block_max(max);
	if (threadIdx.x == 0)
		atomicMax((int *)scale, __float_as_int(__fdiv_rn(max, FP8_MAX)));
}

DECODE_KERNEL decode_fp8_quant(const uint16_t *x, const float *scale, uint8_t *out, uint64_t count)
{
	float inverse = __frcp_rn(*scale);
	uint64_t eights = wide((uint64_t)x | 2 * (uint64_t)out, 0) ? count / 8 : 0;

	FOR_EACH (i, eights) {
		float v[8];
		uint32_t word[2] = { 0, 0 };

		load_wide<8>(x + 8 * i, v);
		for (int w = 0; w < 8; w++)
			word[w / 4] |= (uint32_t)to_e4m3(__fmul_rn(v[w], inverse)) << 8 * (w % 4);
		((uint2 *)out)[i] = make_uint2(word[0], word[1]);
	}
	FOR_EACH (i, count - 8 * eights) {
		uint64_t at = 8 * eights + i;

		out[at] = to_e4m3(__fmul_rn(from_bf16(x[at]), inverse));
	}
}

DECODE_KERNEL decode_fp8_quant_token(const uint16_t *x, const float *bound, uint8_t *out,
				     float *scales, uint32_t tokens, uint32_t k)
{
	FOR_ROWS (t, tokens) {
		const uint16_t *row = x + t * k;
		float max = 0, scale;

		FOR_COLUMNS (c, k)
			max = fmaxf(max, fabsf(from_bf16(row[c])));
		max = block_max(max);
		if (bound)
			max = fminf(max, *bound);
		scale = fmaxf(__fdiv_rn(max, FP8_MAX), 1 / (FP8_MAX * 512));
		if (threadIdx.x == 0)
			scales[t] = scale;
		FOR_COLUMNS (c, k)
			out[t * k + c] = to_e4m3(__fdiv_rn(from_bf16(row[c]), scale));
	}
}
