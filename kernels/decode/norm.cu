/* SPDX-License-Identifier: Apache-2.0 */
/* rms_norm, alone and behind a sum: a block a row; see norm.c, the twins. */
#include "kernels/decode/decode.cuh"

/* Each thread meets the same columns in both passes, so what it wrote in the first it may read. */
#define FOR_WIDE_COLUMNS(c, count) \
	for (uint32_t c = threadIdx.x * W; c < (count); c += DECODE_THREADS * W)

/* @out may be @x. */
template <int W>
static __device__ __forceinline__ void scale_row(const uint16_t *x, const uint16_t *weight,
						 uint16_t *out, uint32_t hidden, float factor)
{
	FOR_WIDE_COLUMNS(c, hidden)
	{
		float v[W], w[W];

		load_wide<W>(x + c, v);
		load_wide<W>(weight + c, w);
		for (int i = 0; i < W; i++)
			/* Rounded before it meets the weight. */
			v[i] = from_bf16(to_bf16(v[i] * factor)) * w[i];
		store_wide<W>(out + c, v);
	}
}

template <int W>
static __device__ __forceinline__ float sum_squares(const uint16_t *x, uint32_t hidden)
{
	float sum = 0;

	FOR_WIDE_COLUMNS(c, hidden)
	{
		float v[W];

		load_wide<W>(x + c, v);
		for (int i = 0; i < W; i++)
			sum += v[i] * v[i];
	}
	return sum;
}

template <int W>
static __device__ __forceinline__ void add_row(const uint16_t *x, uint16_t *residual,
					       uint32_t hidden)
{
	FOR_WIDE_COLUMNS(c, hidden)
	{
		float v[W], r[W];

		load_wide<W>(x + c, v);
		load_wide<W>(residual + c, r);
		for (int i = 0; i < W; i++)
			r[i] += v[i];
		store_wide<W>(residual + c, r);
	}
}

template <int W>
static __device__ __forceinline__ void normalise(const uint16_t *x, const uint16_t *weight,
						 uint16_t *out, uint32_t hidden, float eps)
{
	float mean = block_sum(sum_squares<W>(x, hidden)) / hidden;

	scale_row<W>(x, weight, out, hidden, 1 / sqrtf(mean + eps));
}

DECODE_KERNEL decode_rms_norm(const uint16_t *x, const uint16_t *weight, uint16_t *out,
			      uint32_t tokens, uint32_t hidden, uint32_t x_stride, float eps)
{
	bool fast = wide((uint64_t)x | (uint64_t)weight | (uint64_t)out, hidden | x_stride);

	FOR_ROWS (t, tokens) {
		if (fast)
			normalise<8>(x + t * x_stride, weight, out + t * hidden, hidden, eps);
		else
			normalise<1>(x + t * x_stride, weight, out + t * hidden, hidden, eps);
	}
}

template <int W>
static __device__ __forceinline__ void add_and_normalise(uint16_t *x, uint16_t *residual,
							 const uint16_t *weight, uint32_t hidden,
							 float eps)
{
	add_row<W>(x, residual, hidden);
	normalise<W>(residual, weight, x, hidden, eps);
}

DECODE_KERNEL decode_fused_add_rms_norm(uint16_t *x, uint16_t *residual, const uint16_t *weight,
					uint32_t tokens, uint32_t hidden, float eps)
{
	bool fast = wide((uint64_t)x | (uint64_t)residual | (uint64_t)weight, hidden);

	FOR_ROWS (t, tokens) {
		uint64_t at = t * hidden;

		if (fast)
			add_and_normalise<8>(x + at, residual + at, weight, hidden, eps);
		else
			add_and_normalise<1>(x + at, residual + at, weight, hidden, eps);
	}
}
