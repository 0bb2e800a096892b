/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of e4m3; see fp8_gemm.c, the twins, and tile.cuh. */
#include "kernels/decode/fp8_groups.h"
#include "kernels/decode/tile.cuh"

#define FP8_COLS 32

/* A tile: its row 0, its column 0. */
struct fp8_job {
	const uint8_t *rows_at, *cols_at;
	const float *x_scale, *w_scale; /* of row 0, of column 0 */
	const uint16_t *bias;
	uint16_t *to;
	uint64_t x_stride, w_stride, out_stride;
	uint32_t rows, cols, k, flags;
	bool fast;

	__device__ __forceinline__ uint4 x(uint32_t r, uint32_t at) const
	{
		return tile_e4m3(rows_at + r * x_stride, at, r < rows ? k : 0, fast);
	}

	__device__ __forceinline__ void w(tile_column *to_w, uint32_t at) const
	{
		tile_fill<1>(to_w, at, [&](uint32_t c, uint32_t i) {
			return tile_e4m3(cols_at + c * w_stride, i, c < cols ? k : 0, fast);
		});
	}

	__device__ __forceinline__ void out(uint32_t r, uint32_t c, float sum) const
	{
		sum = __fmul_rn(sum, x_scale[flags & DECODE_PER_TOKEN ? r : 0]);
		sum = __fmul_rn(sum, w_scale[flags & DECODE_PER_CHANNEL ? c : 0]);
		if (bias)
			sum = __fadd_rn(sum, from_bf16(bias[c]));
		to[r * out_stride + c] = to_bf16(sum);
	}
};

DECODE_KERNEL decode_fp8_gemm(const uint8_t *x, const uint8_t *w, const float *x_scales,
			      const float *w_scales, const uint16_t *bias, uint16_t *out,
			      uint32_t tokens, uint32_t n, uint32_t k, uint32_t flags)
{
	__shared__ tile_memory<1> memory;
	uint32_t down = (tokens + TILE_ROWS - 1) / TILE_ROWS;

	FOR_ROWS (i, (uint64_t)down * ((n + FP8_COLS - 1) / FP8_COLS)) {
		uint64_t row = i % down * TILE_ROWS, col = i / down * FP8_COLS;
		const fp8_job job = {
			x + row * k,
			w + col * k,
			x_scales + (flags & DECODE_PER_TOKEN ? row : 0),
			w_scales + (flags & DECODE_PER_CHANNEL ? col : 0),
			bias ? bias + col : NULL,
			out + row * n + col,
			k,
			k,
			n,
			min(tokens - (uint32_t)row, TILE_ROWS),
			min(n - (uint32_t)col, FP8_COLS),
			k,
			flags,
			((uint64_t)x | (uint64_t)w | k) % 8 == 0,
		};

		tile_run(memory, job, job.rows, job.cols, k);
	}
}

DECODE_KERNEL decode_moe_gemm_fp8(const uint8_t *x, const uint8_t *w, const float *x_scales,
				  const float *w_scales, const int64_t *offsets,
				  const int32_t *sizes, const int64_t *ab_strides,
				  const int64_t *c_strides, uint16_t *out, uint32_t rows,
				  uint32_t experts, uint32_t n, uint32_t k, uint32_t flags)
{
	__shared__ tile_memory<1> memory;
	const fp8_groups groups = { offsets, ab_strides, c_strides, sizes, rows, experts, n, k };
	uint32_t across = (n + FP8_COLS - 1) / FP8_COLS;

	FOR_ROWS (i, (uint64_t)experts * across) {
		uint64_t e = i / across, col = i % across * FP8_COLS;
		uint64_t count = fp8_group_rows(&groups, e), ab = ab_strides[e], c = c_strides[e];

		for (uint64_t r = 0; r < count; r += TILE_ROWS) {
			uint64_t row = offsets[e] + r;
			const fp8_job job = {
				x + offsets[e] * k + r * ab,
				w + e * n * k + col * ab,
				x_scales + (flags & DECODE_PER_TOKEN ? row : 0),
				w_scales + (flags & DECODE_PER_CHANNEL ? e * n + col : e),
				NULL,
				out + offsets[e] * n + r * c + col,
				ab,
				ab,
				c,
				(uint32_t)min(count - r, (uint64_t)TILE_ROWS),
				min(n - (uint32_t)col, FP8_COLS),
				k,
				flags,
				((uint64_t)x | (uint64_t)w | k | ab) % 8 == 0,
			};

			tile_run(memory, job, job.rows, job.cols, k);
		}
	}
}
