/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GEMMs on packed weights: what they share. tile.h says in which order is added.
 *
 * A block has up to 16 rows of x and 32 * COLS columns. It brings 128 numbers along K of both to
 * shared memory, as bf16 whatever they were packed as; warp p adds part p of them, a lane a column
 * (or two). Decoding a weight once for all rows and reading it with whole sectors is what a
 * decode batch needs; there are no tensor cores here, and no second buffer.
 *
 * A job says where the numbers come from and go to:
 *	uint4 x(r, k)		8 numbers of row r from k on, zero where there are none
 *	void w(column, k)	all columns, 128 numbers each from k on; zero where there are none
 *	void out(r, c, sum)
 */
#ifndef KERNELS_DECODE_TILE_CUH
#define KERNELS_DECODE_TILE_CUH

#include "kernels/decode/decode.cuh"
#include "kernels/decode/tile.h"

/* Of a column in shared memory: 8 lanes read or write 16 bytes each, in 32 different banks. */
#define TILE_PITCH (TILE_K + 8)

typedef uint16_t tile_column[TILE_PITCH];

template <int COLS> union __align__(16) tile_memory
{
	struct {
		uint16_t x[TILE_ROWS][TILE_K];
		tile_column w[32 * COLS];
	} in;
	float part[TILE_PARTS][TILE_ROWS][32 * COLS];
};

/* ---- 8 numbers as bf16 ---- */

/* Two numbers that bf16 can hold. */
static __device__ __forceinline__ uint32_t tile_pair(float low, float high)
{
	return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}

/* Two numbers that it may not. */
static __device__ __forceinline__ uint32_t tile_round(float low, float high)
{
	return to_bf16(low) | (uint32_t)to_bf16(high) << 16;
}

/* @p fast: 16-byte aligned. */
static __device__ __forceinline__ uint4 tile_bf16(const uint16_t *row, uint32_t k, uint32_t end,
						  bool fast)
{
	uint32_t word[4] = { 0, 0, 0, 0 };

	if (fast && k + 8 <= end)
		return *(const uint4 *)(row + k);
#pragma unroll
	for (uint32_t i = 0; i < 8; i++)
		if (k + i < end)
			word[i / 2] |= (uint32_t)row[k + i] << (16 * (i % 2));
	return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Bytes in the low half. */
static __device__ __forceinline__ uint32_t tile_e4m3_pair(uint32_t bytes)
{
	float2 x = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(bytes, __NV_E4M3)));

	return tile_pair(x.x, x.y);
}

/* @p fast: 8-byte aligned. */
static __device__ __forceinline__ uint4 tile_e4m3(const uint8_t *row, uint32_t k, uint32_t end,
						  bool fast)
{
	uint32_t word[2] = { 0, 0 };

	if (fast && k + 8 <= end) {
		uint2 wide = *(const uint2 *)(row + k);

		word[0] = wide.x;
		word[1] = wide.y;
	} else {
#pragma unroll
		for (uint32_t i = 0; i < 8; i++)
			if (k + i < end)
				word[i / 4] |= (uint32_t)row[k + i] << (8 * (i % 4));
	}
	return make_uint4(tile_e4m3_pair(word[0] & 0xffff), tile_e4m3_pair(word[0] >> 16),
			  tile_e4m3_pair(word[1] & 0xffff), tile_e4m3_pair(word[1] >> 16));
}

/* ---- shared memory ---- */

/*
 * Columns that lie one behind the other in memory: eight(c, k) gives 8 numbers of one, neighbours
 * along K to neighbouring threads. All loads are on their way before the first store.
 */
template <int COLS, class F>
static __device__ __forceinline__ void tile_fill(tile_column *w, uint32_t k, const F &eight)
{
	constexpr int runs = TILE_K / 8, each = 32 * COLS * runs / DECODE_THREADS;
	uint4 word[each];

#pragma unroll
	for (int j = 0; j < each; j++) {
		uint32_t i = j * DECODE_THREADS + threadIdx.x;

		word[j] = eight(i / runs, k + i % runs * 8);
	}
#pragma unroll
	for (int j = 0; j < each; j++) {
		uint32_t i = j * DECODE_THREADS + threadIdx.x;

		*(uint4 *)&w[i / runs][i % runs * 8] = word[j];
	}
}

static __device__ __forceinline__ float tile_low(uint32_t pair)
{
	return __uint_as_float(pair << 16);
}

static __device__ __forceinline__ float tile_high(uint32_t pair)
{
	return __uint_as_float(pair & 0xffff0000);
}

static __device__ __forceinline__ float tile_add(uint4 x, uint4 w, float sum)
{
	const uint32_t a[4] = { x.x, x.y, x.z, x.w }, b[4] = { w.x, w.y, w.z, w.w };

#pragma unroll
	for (int i = 0; i < 4; i++) {
		sum = fmaf(tile_low(a[i]), tile_low(b[i]), sum);
		sum = fmaf(tile_high(a[i]), tile_high(b[i]), sum);
	}
	return sum;
}

/* ---- sums ---- */

template <int COLS, int ROWS, class J>
static __device__ __forceinline__ void tile_parts_of(tile_memory<COLS> &m, const J &job,
						     uint32_t begin, uint32_t end)
{
	constexpr uint32_t runs = TILE_K / 8;
	float sum[ROWS][COLS] = {};

#pragma unroll 1
	for (uint32_t k = begin; k < end; k += TILE_K) {
		__syncthreads(); /* readers of what was there before */
		for (uint32_t i = threadIdx.x; i < ROWS * runs; i += DECODE_THREADS)
			*(uint4 *)&m.in.x[i / runs][i % runs * 8] =
				job.x(i / runs, k + i % runs * 8);
		job.w(m.in.w, k);
		__syncthreads();
#pragma unroll 1 /* registers */
		for (int i = 0; i < TILE_RUN; i += 8) {
			uint4 w[COLS];

#pragma unroll
			for (int c = 0; c < COLS; c++)
				w[c] = *(const uint4 *)&m.in.w[LANE + 32 * c][WARP * TILE_RUN + i];
#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				uint4 x = *(const uint4 *)&m.in.x[r][WARP * TILE_RUN + i];

#pragma unroll
				for (int c = 0; c < COLS; c++)
					sum[r][c] = tile_add(x, w[c], sum[r][c]);
			}
		}
	}
	__syncthreads();
#pragma unroll
	for (int r = 0; r < ROWS; r++)
#pragma unroll
		for (int c = 0; c < COLS; c++)
			m.part[WARP][r][LANE + 32 * c] = sum[r][c];
	__syncthreads();
}

/* The parts of @rows <= TILE_ROWS rows, to shared memory. All threads of the block call. */
template <int COLS, class J>
static __device__ __forceinline__ void tile_parts(tile_memory<COLS> &m, const J &job, uint32_t rows,
						  uint32_t begin, uint32_t end)
{
	if (rows == 1)
		tile_parts_of<COLS, 1>(m, job, begin, end);
	else if (rows <= 4)
		tile_parts_of<COLS, 4>(m, job, begin, end);
	else
		tile_parts_of<COLS, TILE_ROWS>(m, job, begin, end);
}

/* Give out() the sum of the parts. */
template <int COLS, class J>
static __device__ __forceinline__ void tile_out(const tile_memory<COLS> &m, const J &job,
						uint32_t rows, uint32_t cols)
{
#pragma unroll 1
	for (uint32_t i = threadIdx.x; i < rows * 32 * COLS; i += DECODE_THREADS) {
		uint32_t r = i / (32 * COLS), c = i % (32 * COLS);
		float sum = m.part[0][r][c];

		if (c >= cols)
			continue;
#pragma unroll
		for (int p = 1; p < TILE_PARTS; p++)
			sum = __fadd_rn(sum, m.part[p][r][c]);
		job.out(r, c, sum);
	}
}

template <int COLS, class J>
static __device__ __forceinline__ void tile_run(tile_memory<COLS> &m, const J &job, uint32_t rows,
						uint32_t cols, uint32_t k)
{
	tile_parts(m, job, rows, 0, k);
	tile_out(m, job, rows, cols);
}

#endif
