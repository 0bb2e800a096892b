/* SPDX-License-Identifier: Apache-2.0 */
/* Grouped GEMM of bf16 experts; see moe_gemm.c, the twin, and tile.cuh. */
#include "kernels/decode/tile.cuh"

#define MOE_COLS 32

/* A tile: rows of one block of moe_align, columns from @col on of one expert. */
struct moe_job {
	const uint16_t *xs, *ws, *bias; /* of the expert */
	const int32_t *index;
	const float *weights;
	uint16_t *to;
	uint64_t col;
	uint32_t rows, cols, count, n, k, topk;
	bool fast;

	__device__ __forceinline__ uint4 x(uint32_t r, uint32_t at) const
	{
		uint32_t i = r < rows ? index[r] : count;

		return tile_bf16(xs + (uint64_t)(i / topk) * k, at, i < count ? k : 0, fast);
	}

	__device__ __forceinline__ void w(tile_column *to_w, uint32_t at) const
	{
		tile_fill<1>(to_w, at, [&](uint32_t c, uint32_t i) {
			return tile_bf16(ws + (col + c) * k, i, c < cols ? k : 0, fast);
		});
	}

	__device__ __forceinline__ void out(uint32_t r, uint32_t c, float sum) const
	{
		uint32_t i = index[r];

		if (i >= count)
			return;
		if (bias)
			sum = __fadd_rn(sum, from_bf16(bias[col + c]));
		if (weights)
			sum = __fmul_rn(sum, weights[i]);
		to[(uint64_t)i * n + col + c] = to_bf16(sum);
	}
};

/* @rows without the padding behind them. */
static __device__ __forceinline__ uint32_t moe_filled(const int32_t *index, uint32_t rows,
						      uint32_t count)
{
	while (rows > 0 && (uint32_t)index[rows - 1] >= count)
		rows--;
	return rows;
}

DECODE_KERNEL decode_moe_gemm(const uint16_t *x, const uint16_t *w, const uint16_t *bias,
			      const int32_t *sorted, const int32_t *experts_of,
			      const int32_t *total, const float *weights, uint16_t *out,
			      uint32_t count, uint32_t n, uint32_t k, uint32_t topk,
			      uint32_t experts, uint32_t block, uint32_t capacity)
{
	__shared__ tile_memory<1> memory;
	uint32_t filled = (uint32_t)min((int64_t)max(*total, 0), (int64_t)capacity);
	uint32_t across = (n + MOE_COLS - 1) / MOE_COLS, down = (block + TILE_ROWS - 1) / TILE_ROWS;
	bool fast = ((uint64_t)x | (uint64_t)w | 2 * (uint64_t)k) % 16 == 0;

	if (topk == 0 || block == 0)
		return;
	FOR_ROWS (i, ((uint64_t)filled + block - 1) / block * down * across) {
		uint32_t b = i / across / down, in_block = i / across % down * TILE_ROWS;
		uint64_t first = (uint64_t)b * block + in_block, e = (uint32_t)experts_of[b];
		uint32_t col = i % across * MOE_COLS, rows;

		if (e >= experts || first >= filled)
			continue;
		rows = min(min(block - in_block, TILE_ROWS), filled - (uint32_t)first);
		rows = moe_filled(sorted + first, rows, count);
		if (rows == 0)
			continue;

		const moe_job job = { x,
				      w + e * n * k,
				      bias ? bias + e * n : NULL,
				      sorted + first,
				      weights,
				      out,
				      col,
				      rows,
				      min(n - col, MOE_COLS),
				      count,
				      n,
				      k,
				      topk,
				      fast };

		tile_run(memory, job, rows, job.cols, k);
	}
}
