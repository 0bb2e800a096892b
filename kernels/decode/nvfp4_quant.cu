/* SPDX-License-Identifier: Apache-2.0 */
/* Activations as NVFP4; see nvfp4_quant.c, the twins. A thread has a block of 16. */
#include "kernels/decode/decode.cuh"
#include "kernels/decode/nvfp4_tiles.h"

/* As arena_nvfp4_quant (kernels/nvfp4.cu): each step is rounded once. */
static __device__ __forceinline__ uint8_t nvfp4_block(const uint16_t *x, float gscale,
						      uint8_t *codes, bool fast)
{
	float value[16], amax = 0, d = 0;
	uint32_t word[2] = { 0, 0 };
	uint8_t scale;

	if (fast) {
		load_wide<8>(x, value);
		load_wide<8>(x + 8, value + 8);
	} else {
		load_wide<1>(x, value);
#pragma unroll
		for (int i = 1; i < 16; i++)
			value[i] = from_bf16(x[i]);
	}
#pragma unroll
	for (int i = 0; i < 16; i++)
		amax = fmaxf(amax, fabsf(value[i]));
	scale = to_e4m3(__fmul_rn(gscale, __fdiv_rn(amax, 6.0f)));
	if (scale != 0)
		d = __fdiv_rn(gscale, from_e4m3(scale));
#pragma unroll
	for (int i = 0; i < 16; i++)
		word[i / 8] |= (uint32_t)to_e2m1(__fmul_rn(value[i], d)) << (i % 8 * 4);
	if ((uint64_t)codes % 8 == 0) {
		*(uint2 *)codes = make_uint2(word[0], word[1]);
	} else {
#pragma unroll
		for (int i = 0; i < 8; i++)
			codes[i] = word[i / 4] >> (i % 4 * 8);
	}
	return scale;
}

/* A thread an entry of the tiles, and the block that it is of, if there is one. */
DECODE_KERNEL decode_nvfp4_quant(const uint16_t *x, const float *gscale, uint8_t *codes,
				 uint8_t *sf, uint32_t tokens, uint32_t k)
{
	uint32_t blocks = k / 16, columns = nvfp4_across(k) * 4;
	uint64_t rows = ((uint64_t)tokens + 127) / 128 * 128;
	bool fast = wide((uint64_t)x, k);

	if (k % 16 != 0)
		return;
	FOR_EACH (i, rows * columns) {
		uint64_t row = i / columns;
		uint32_t b = i % columns;
		uint8_t scale = 0;

		if (row < tokens && b < blocks)
			scale = nvfp4_block(x + row * k + 16 * b, *gscale,
					    codes + row * (k / 2) + 8 * b, fast);
		sf[nvfp4_place(row, b, k)] = scale;
	}
}

/*
 * at[e] = first tile row of expert e, at[experts] = their end; has[e] = how many rows it has, 0 if
 * they do not fit. All threads of the block take part.
 */
static __device__ void nvfp4_starts(const int64_t *offsets, uint32_t *at, uint32_t *has,
				    uint32_t experts, const uint32_t rows_sf_rows[2])
{
	uint64_t end = ((uint64_t)rows_sf_rows[1] + 127) / 128 * 128;
	uint32_t sum = 0;

	for (uint32_t e = threadIdx.x; e < experts; e += DECODE_THREADS) {
		bool fits = nvfp4_group_fits(offsets + e, 0, rows_sf_rows[0], UINT32_MAX);

		has[e] = fits ? offsets[e + 1] - offsets[e] : 0;
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		for (uint32_t e = 0; e < experts; e++) {
			at[e] = sum;
			if (has[e] > end - sum)
				has[e] = 0;
			sum += (has[e] + 127) / 128 * 128;
		}
		at[experts] = sum;
	}
	__syncthreads();
}

DECODE_KERNEL decode_moe_nvfp4_quant(const uint16_t *x, const float *gscale, const int64_t *offsets,
				     int32_t *sf_offsets, uint8_t *codes, uint8_t *sf,
				     uint32_t rows, uint32_t experts, uint32_t k, uint32_t sf_rows)
{
	__shared__ uint32_t at[DECODE_EXPERTS_MAX + 1], has[DECODE_EXPERTS_MAX];
	const uint32_t counts[2] = { rows, sf_rows };
	uint32_t blocks = k / 16;
	bool fast = wide((uint64_t)x, k);

	if (k % 16 != 0 || experts > DECODE_EXPERTS_MAX)
		return;
	nvfp4_starts(offsets, at, has, experts, counts);
	for (uint32_t e = threadIdx.x; blockIdx.x == 0 && e <= experts; e += DECODE_THREADS)
		sf_offsets[e] = at[e];
	for (uint32_t e = 0; e < experts; e++)
		FOR_EACH (i, (uint64_t)has[e] * blocks) {
			uint64_t r = i / blocks, row = offsets[e] + r;
			uint32_t b = i % blocks;

			sf[nvfp4_place(at[e] + r, b, k)] =
				nvfp4_block(x + row * k + 16 * b, gscale[e],
					    codes + row * (k / 2) + 8 * b, fast);
		}
}
