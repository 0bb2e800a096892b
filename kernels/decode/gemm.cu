/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GEMMs of few rows, which reading the weight bounds; see gemm.c, the twins.
 *
 * decode_gemm: a warp has a column and up to TOKENS rows; its lanes read the weight's row side by
 * side, once for all of them. decode_bmm: a thread has a column, as the weight's rows run the other
 * way. Sums are f32, in an order that the shape decides.
 */
#include "kernels/decode/decode.cuh"

#define TOKENS 8

struct gemm {
	const uint16_t *x, *w;
	uint32_t tokens, n, k, x_stride;
};

/* sum[t] += the products of this lane for rows from @t0 on and column @n. */
template <int W>
static __device__ __forceinline__ void lane_sums(const gemm &g, uint64_t t0, uint64_t n, float *sum)
{
	uint32_t rows = min(g.tokens - (uint32_t)t0, TOKENS);

	for (uint32_t c = LANE * W; c < g.k; c += 32 * W) {
		float w[W];

		load_wide<W>(g.w + n * g.k + c, w);
#pragma unroll
		for (uint32_t t = 0; t < TOKENS; t++) {
			float x[W];

			if (t >= rows)
				break;
			load_wide<W>(g.x + (t0 + t) * g.x_stride + c, x);
			for (int i = 0; i < W; i++)
				sum[t] = fmaf(x[i], w[i], sum[t]);
		}
	}
}

DECODE_KERNEL decode_gemm(const uint16_t *x, const uint16_t *w, const uint16_t *bias, void *out,
			  uint32_t tokens, uint32_t n, uint32_t k, uint32_t x_stride,
			  uint32_t flags)
{
	const gemm g = { x, w, tokens, n, k, x_stride };
	bool fast = wide((uint64_t)x | (uint64_t)w, k | x_stride);
	uint64_t groups = ((uint64_t)tokens + TOKENS - 1) / TOKENS;

	for (uint64_t i = (uint64_t)blockIdx.x * WARPS + WARP; i < groups * n;
	     i += (uint64_t)gridDim.x * WARPS) {
		uint64_t column = i % n, t0 = i / n * TOKENS;
		float sum[TOKENS] = { 0 };

		if (fast)
			lane_sums<8>(g, t0, column, sum);
		else
			lane_sums<1>(g, t0, column, sum);
#pragma unroll
		for (uint32_t t = 0; t < TOKENS; t++) {
			uint64_t at = (t0 + t) * n + column;
			float all = warp_sum(sum[t]);

			if (LANE != 0 || t0 + t >= tokens)
				continue;
			if (bias)
				all += from_bf16(bias[column]);
			if (flags & DECODE_F32)
				((float *)out)[at] = all;
			else
				((uint16_t *)out)[at] = to_bf16(all);
		}
	}
}

DECODE_KERNEL decode_bmm(const uint16_t *x, const uint16_t *w, uint16_t *out, uint32_t tokens,
			 uint32_t heads, uint32_t n, uint32_t k, uint32_t x_stride, uint32_t x_head)
{
	uint64_t groups = ((uint64_t)tokens + TOKENS - 1) / TOKENS, columns = (uint64_t)heads * n;

	FOR_EACH (i, groups * columns) {
		uint64_t t0 = i / columns * TOKENS, h = i % columns / n, column = i % n;
		float sum[TOKENS] = { 0 };

		for (uint32_t c = 0; c < k; c++) {
			float weight = from_bf16(w[(h * k + c) * n + column]);

#pragma unroll
			for (uint32_t t = 0; t < TOKENS; t++)
				if (t0 + t < tokens)
					sum[t] = fmaf(
						from_bf16(x[(t0 + t) * x_stride + h * x_head + c]),
						weight, sum[t]);
		}
#pragma unroll
		for (uint32_t t = 0; t < TOKENS; t++)
			if (t0 + t < tokens)
				out[((t0 + t) * heads + h) * n + column] = to_bf16(sum[t]);
	}
}
