/* SPDX-License-Identifier: Apache-2.0 */
/* Gated activations; see activation.c, the twins. */
#include "kernels/decode/decode.cuh"

template <int W>
static __device__ __forceinline__ void silu_and_mul(const uint16_t *x, uint16_t *out,
						    uint32_t tokens, uint32_t d)
{
	uint32_t units = d / W;

	FOR_EACH (i, (uint64_t)tokens * units) {
		uint64_t t = i / units, c = i % units * W;
		float gate[W], up[W];

		load_wide<W>(x + 2 * t * d + c, gate);
		load_wide<W>(x + 2 * t * d + d + c, up);
		for (int w = 0; w < W; w++)
			/* Rounded before it meets the other half. */
			gate[w] = from_bf16(to_bf16(gate[w] / (1 + expf(-gate[w])))) * up[w];
		store_wide<W>(out + t * d + c, gate);
	}
}

DECODE_KERNEL decode_silu_and_mul(const uint16_t *x, uint16_t *out, uint32_t tokens, uint32_t d)
{
	if (wide((uint64_t)x | (uint64_t)out, d))
		silu_and_mul<8>(x, out, tokens, d);
	else
		silu_and_mul<1>(x, out, tokens, d);
}

/* As torch.clamp: a NaN stays one, which fminf() would drop. */
static __device__ __forceinline__ float at_most(float x, float limit)
{
	return x > limit ? limit : x;
}

DECODE_KERNEL decode_swigluoai_and_mul(const uint16_t *x, uint16_t *out, uint32_t tokens,
				       uint32_t d, float alpha, float limit)
{
	FOR_EACH (i, (uint64_t)tokens * d) {
		float gate = at_most(from_bf16(x[2 * i]), limit);
		float up = -at_most(-at_most(from_bf16(x[2 * i + 1]), limit), limit);

		out[i] = to_bf16((up + 1) * (gate / (1 + expf(-alpha * gate))));
	}
}
