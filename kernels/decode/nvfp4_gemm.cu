/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of NVFP4, decoded by software; see nvfp4_gemm.c, the twins, and tile.cuh. */
#include "kernels/decode/nvfp4_tiles.h"
#include "kernels/decode/tile.cuh"

#define NVFP4_COLS 32

/* Rows of codes and their block scales; row 0 is the first of a tile row of scales. */
struct nvfp4_side {
	const uint8_t *codes, *sf;
	bool fast; /* 4-byte aligned */

	/* 8 numbers of a row from @at on, or zeros. */
	__device__ __forceinline__ uint4 eight(uint64_t row, uint32_t at, uint32_t k) const
	{
		const uint8_t *from = codes + (row * k + at) / 2;
		uint32_t word = 0, pair[4];
		float scale;

		if (at >= k)
			return make_uint4(0, 0, 0, 0);
		if (fast)
			word = *(const uint32_t *)from;
		else
			for (int i = 0; i < 4; i++)
				word |= (uint32_t)from[i] << (8 * i);
		scale = from_e4m3(sf[nvfp4_place(row, at / 16, k)]);
#pragma unroll
		for (int i = 0; i < 4; i++)
			pair[i] = tile_pair(number(word >> (8 * i)) * scale,
					    number(word >> (8 * i + 4)) * scale);
		return make_uint4(pair[0], pair[1], pair[2], pair[3]);
	}

	/* As bits of f32 a code is the number times 2^-126, which may be a denormal one. */
	static __device__ __forceinline__ float number(uint32_t code)
	{
		return __uint_as_float((code & 8) << 28 | (code & 7) << 22) * 0x1p126f;
	}
};

struct nvfp4_job {
	nvfp4_side xs, ws;
	const float *alpha;
	uint16_t *to; /* row 0 */
	uint64_t row, col;
	uint32_t rows, cols, n, k;

	__device__ __forceinline__ uint4 x(uint32_t r, uint32_t at) const
	{
		return xs.eight(row + r, at, r < rows ? k : 0);
	}

	__device__ __forceinline__ void w(tile_column *to_w, uint32_t at) const
	{
		tile_fill<1>(to_w, at, [&](uint32_t c, uint32_t i) {
			return ws.eight(col + c, i, c < cols ? k : 0);
		});
	}

	__device__ __forceinline__ void out(uint32_t r, uint32_t c, float sum) const
	{
		to[(row + r) * n + col + c] = to_bf16(__fmul_rn(*alpha, sum));
	}
};

DECODE_KERNEL decode_nvfp4_gemm(const uint8_t *x, const uint8_t *w, const uint8_t *x_sf,
				const uint8_t *w_sf, const float *alpha, uint16_t *out,
				uint32_t tokens, uint32_t n, uint32_t k)
{
	__shared__ tile_memory<1> memory;
	uint32_t down = (tokens + TILE_ROWS - 1) / TILE_ROWS;

	if (k % 16 != 0)
		return;
	FOR_ROWS (i, (uint64_t)down * ((n + NVFP4_COLS - 1) / NVFP4_COLS)) {
		uint64_t row = i % down * TILE_ROWS, col = i / down * NVFP4_COLS;
		const nvfp4_job job = {
			{ x, x_sf, (uint64_t)x % 4 == 0 },
			{ w, w_sf, (uint64_t)w % 4 == 0 },
			alpha,
			out,
			row,
			col,
			min(tokens - (uint32_t)row, TILE_ROWS),
			min(n - (uint32_t)col, NVFP4_COLS),
			n,
			k,
		};

		tile_run(memory, job, job.rows, job.cols, k);
	}
}

DECODE_KERNEL decode_moe_gemm_nvfp4(const uint8_t *x, const uint8_t *w, const uint8_t *x_sf,
				    const uint8_t *w_sf, const float *alphas,
				    const int64_t *offsets, const int32_t *sf_offsets,
				    uint16_t *out, uint32_t rows, uint32_t experts, uint32_t n,
				    uint32_t k, uint32_t sf_rows)
{
	__shared__ tile_memory<1> memory;
	uint32_t across = (n + NVFP4_COLS - 1) / NVFP4_COLS;

	if (k % 16 != 0)
		return;
	FOR_ROWS (i, (uint64_t)experts * across) {
		uint64_t e = i / across, col = i % across * NVFP4_COLS, first, count;

		if (!nvfp4_group_fits(offsets + e, sf_offsets[e], rows, sf_rows))
			continue;
		first = offsets[e];
		count = offsets[e + 1] - first;
		for (uint64_t row = 0; row < count; row += TILE_ROWS) {
			const nvfp4_job job = {
				{ x + first * (k / 2), x_sf + nvfp4_bytes(sf_offsets[e], k),
				  (uint64_t)x % 4 == 0 },
				{ w + e * n * (k / 2), w_sf + e * nvfp4_bytes(n, k),
				  (uint64_t)w % 4 == 0 },
				alphas + e,
				out + first * n,
				row,
				col,
				(uint32_t)min(count - row, (uint64_t)TILE_ROWS),
				min(n - (uint32_t)col, NVFP4_COLS),
				n,
				k,
			};

			tile_run(memory, job, job.rows, job.cols, k);
		}
	}
}
