/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of a decode graph share: numbers, sums in a fixed order. */
#ifndef KERNELS_DECODE_DECODE_CUH
#define KERNELS_DECODE_DECODE_CUH

#include "kernels/decode/decode.h"
#include "kernels/derive.cuh"

#define DECODE_KERNEL extern "C" __global__ void __launch_bounds__(DECODE_THREADS)

#define WARPS (DECODE_THREADS / 32)
#define LANE  (threadIdx.x % 32)
#define WARP  (threadIdx.x / 32)

static __device__ __forceinline__ float from_bf16(uint16_t x)
{
	return __uint_as_float((uint32_t)x << 16);
}

static __device__ __forceinline__ uint16_t to_bf16(float x)
{
	return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/* W numbers that lie side by side: 8 if addresses and strides allow it, else 1. */
template <int W> static __device__ __forceinline__ void load_wide(const uint16_t *from, float *x)
{
	if (W == 8) {
		uint4 v = *(const uint4 *)from;
		const uint32_t word[4] = { v.x, v.y, v.z, v.w };

		for (int i = 0; i < 4; i++) {
			x[2 * i] = __uint_as_float(word[i] << 16);
			x[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000);
		}
	} else {
		for (int i = 0; i < W; i++)
			x[i] = from_bf16(from[i]);
	}
}

template <int W> static __device__ __forceinline__ void store_wide(uint16_t *to, const float *x)
{
	if (W == 8) {
		uint32_t word[4];

		for (int i = 0; i < 4; i++)
			word[i] = to_bf16(x[2 * i]) | (uint32_t)to_bf16(x[2 * i + 1]) << 16;
		*(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
	} else {
		for (int i = 0; i < W; i++)
			to[i] = to_bf16(x[i]);
	}
}

/* Whether W can be 8: of addresses and of counts of elements, or'ed together. */
static __device__ __forceinline__ bool wide(uint64_t addresses, uint64_t elements)
{
	return addresses % 16 == 0 && elements % 8 == 0;
}

static __device__ __forceinline__ float warp_sum(float x)
{
	for (int lanes = 16; lanes > 0; lanes /= 2)
		x += __shfl_xor_sync(0xffffffff, x, lanes);
	return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
	for (int lanes = 16; lanes > 0; lanes /= 2)
		x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, lanes));
	return x;
}

/* The same in all threads of the block, in the same order each time; all of them call. */
static __device__ __forceinline__ float block_sum(float x)
{
	__shared__ float part[WARPS];
	float sum = 0;

	x = warp_sum(x);
	__syncthreads(); /* the readers of the sum before */
	if (LANE == 0)
		part[WARP] = x;
	__syncthreads();
	for (int i = 0; i < WARPS; i++)
		sum += part[i];
	return sum;
}

static __device__ __forceinline__ float block_max(float x)
{
	__shared__ float part[WARPS];
	float max;

	x = warp_max(x);
	__syncthreads();
	if (LANE == 0)
		part[WARP] = x;
	__syncthreads();
	max = part[0];
	for (int i = 1; i < WARPS; i++)
		max = fmaxf(max, part[i]);
	return max;
}

#endif
