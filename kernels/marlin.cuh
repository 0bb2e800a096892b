/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the Marlin kernels share: squares of codes, turned in registers. A row of codes side by side
 * becomes a column, which is what a lane's words are made of.
 */
#ifndef KERNELS_MARLIN_CUH
#define KERNELS_MARLIN_CUH

#include "kernels/derive.cuh"

/* 4 x 4 bytes: byte j of word i becomes byte i of word j. */
static __device__ __forceinline__ void turn8(uint32_t out[4], uint32_t a, uint32_t b, uint32_t c,
					     uint32_t d)
{
	uint32_t ab = __byte_perm(a, b, 0x5140), ab2 = __byte_perm(a, b, 0x7362);
	uint32_t cd = __byte_perm(c, d, 0x5140), cd2 = __byte_perm(c, d, 0x7362);

	out[0] = __byte_perm(ab, cd, 0x5410);
	out[1] = __byte_perm(ab, cd, 0x7632);
	out[2] = __byte_perm(ab2, cd2, 0x5410);
	out[3] = __byte_perm(ab2, cd2, 0x7632);
}

/* 8 x 8 codes of 4 bits: code j of word i becomes code i of word j. */
static __device__ __forceinline__ void turn4(uint32_t out[8], const uint32_t in[8])
{
	uint32_t even[4], odd[4], turned[4];

#pragma unroll
	for (int i = 0; i < 4; i++) {
		uint32_t a = in[2 * i], b = in[2 * i + 1];

		even[i] = (a & 0x0f0f0f0f) | (b << 4 & 0xf0f0f0f0);
		odd[i] = (a >> 4 & 0x0f0f0f0f) | (b & 0xf0f0f0f0);
	}
	turn8(turned, even[0], even[1], even[2], even[3]);
#pragma unroll
	for (int i = 0; i < 4; i++)
		out[2 * i] = turned[i];
	turn8(turned, odd[0], odd[1], odd[2], odd[3]);
#pragma unroll
	for (int i = 0; i < 4; i++)
		out[2 * i + 1] = turned[i];
}

#endif
