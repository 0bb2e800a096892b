/* SPDX-License-Identifier: Apache-2.0 */
/* W4A16 GEMM on codes in exllama order; see exllama_gemm.c, the twin, and tile.cuh. */
#include "kernels/decode/tile.cuh"

#define EXLLAMA_COLS 32

/* A tile: rows from @row on, columns from @col on, of one expert. */
struct exllama_job {
	const uint16_t *xs, *scales;
	const uint32_t *q, *zeros;
	const float *weights;
	uint16_t *to;
	uint64_t row, col;
	uint32_t rows, cols, n, k, group, topk; /* group: rows of one */
	bool fast;

	__device__ __forceinline__ uint4 x(uint32_t r, uint32_t at) const
	{
		return tile_bf16(xs + (row + r) / topk * k, at, r < rows ? k : 0, fast);
	}

	/* Codes 0, 2, 4, 6 of a column in the low half of a word, 1, 3, 5, 7 in the high half. */
	__device__ __forceinline__ uint4 eight(uint32_t c, uint32_t at) const
	{
		uint64_t n_at = col + c, g = at / group;
		uint32_t word, pair[4];
		int32_t zero;
		float scale;

		if (c >= cols || at >= k)
			return make_uint4(0, 0, 0, 0);
		word = q[(uint64_t)(at / 8) * n + n_at];
		zero = 1 + code_of(zeros[g * (n / 8) + n_at / 8], n_at % 8, 4);
		scale = from_bf16(scales[g * n + n_at]);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int32_t even = code_of(word, i, 4), odd = code_of(word, 4 + i, 4);

			pair[i] = tile_round((even - zero) * scale, (odd - zero) * scale);
		}
		return make_uint4(pair[0], pair[1], pair[2], pair[3]);
	}

	/* Words of neighbouring columns lie side by side, so lanes have columns. */
	__device__ __forceinline__ void w(tile_column *to_w, uint32_t at) const
	{
		for (uint32_t i = threadIdx.x; i < EXLLAMA_COLS * TILE_K / 8; i += DECODE_THREADS) {
			uint32_t c = i % EXLLAMA_COLS, run = i / EXLLAMA_COLS * 8;

			*(uint4 *)&to_w[c][run] = eight(c, at + run);
		}
	}

	__device__ __forceinline__ void out(uint32_t r, uint32_t c, float sum) const
	{
		if (weights)
			sum = __fmul_rn(sum, weights[row + r]);
		to[(row + r) * n + col + c] = to_bf16(sum);
	}
};

/* With ids a tile is one row: neighbours have other experts. */
DECODE_KERNEL decode_exllama_gemm(const uint16_t *x, const uint32_t *q, const uint16_t *scales,
				  const uint32_t *zeros, const int32_t *ids, const float *weights,
				  uint16_t *out, uint32_t rows, uint32_t n, uint32_t k,
				  uint32_t groups, uint32_t topk, uint32_t experts)
{
	__shared__ tile_memory<1> memory;
	uint32_t each = ids ? 1 : TILE_ROWS, down = (rows + each - 1) / each;

	if (groups == 0 || topk == 0 || k % (8ull * groups) != 0 || n % 8 != 0)
		return;
	FOR_ROWS (i, (uint64_t)down * ((n + EXLLAMA_COLS - 1) / EXLLAMA_COLS)) {
		uint64_t row = i % down * each, col = i / down * EXLLAMA_COLS;
		uint64_t e = ids ? (uint32_t)ids[row] : 0;
		const exllama_job job = {
			x,
			scales + e * groups * n,
			q + e * (k / 8) * n,
			zeros + e * groups * (n / 8),
			weights,
			out,
			row,
			col,
			min(rows - (uint32_t)row, each),
			min(n - (uint32_t)col, EXLLAMA_COLS),
			n,
			k,
			k / groups,
			topk,
			((uint64_t)x | 2 * (uint64_t)k) % 16 == 0,
		};

		if (!ids || e < experts)
			tile_run(memory, job, job.rows, job.cols, k);
		else if (threadIdx.x < job.cols)
			out[row * n + col + threadIdx.x] = 0;
	}
}
