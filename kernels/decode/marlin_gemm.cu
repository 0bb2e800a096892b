/* SPDX-License-Identifier: Apache-2.0 */
/*
 * W4A16 and W8A16 GEMM on Marlin's layout; see marlin_gemm.c, the twin, and tile.cuh.
 *
 * As many neighbouring blocks as K has slices are a gang: it has 64 columns at a time, each of its
 * blocks one slice of K. They add to tmp in turn; the lock of the columns says whose it is. A
 * block waits for blocks of lower number only, or (from the second 16 rows on) of its gang, so
 * those that are resident always get on. A grid that is smaller than a gang is one block.
 */
#include "kernels/decode/marlin_gemm.h"
#include "kernels/decode/tile.cuh"

#define MARLIN_COLS  64
#define MARLIN_POLLS 200000 /* with sleeps of up to 1 us: far longer than any slice takes */

static __device__ __forceinline__ int32_t marlin_acquire(const int32_t *lock)
{
	int32_t value;

	asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(lock) : "memory");
	return value;
}

/* Pairs with marlin_acquire(): what the block wrote to tmp is seen with the turn. */
static __device__ __forceinline__ void marlin_release(int32_t *lock, int32_t value)
{
	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence();
		asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(lock), "r"(value)
			     : "memory");
	}
}

/* Wait for the turn. False: it did not come. All threads call, and get the same. */
static __device__ __forceinline__ bool marlin_wait(const int32_t *lock, int32_t turn, bool alone)
{
	__shared__ bool come;

	if (threadIdx.x == 0) {
		come = marlin_acquire(lock) == turn;
		for (int i = 0; i < MARLIN_POLLS && !come && !alone; i++) {
			__nanosleep(500); /* none at all to twice that: it is a hint */
			come = marlin_acquire(lock) == turn;
		}
	}
	__syncthreads();
	return come;
}

struct marlin_params {
	const uint16_t *x;
	const uint32_t *q;
	const uint16_t *scales;
	const uint32_t *zeros;
	const int32_t *g_idx, *perm;
	const uint16_t *bias;
	int32_t *workspace, *status;
	float *tmp;
	uint16_t *out;
	uint32_t tokens, n, k, groups, bits;
	bool fast_x, fast_q, fast_scales;
};

/* Scales and zero points of 8 columns, 8 apart. */
struct marlin_group {
	float scale[8], zero[8];
};

struct marlin_job {
	const marlin_params &p;
	uint32_t row, rows, col, begin, end;

	__device__ __forceinline__ uint4 x(uint32_t r, uint32_t at) const
	{
		const uint16_t *from = p.x + (uint64_t)(row + r) * p.k;
		uint32_t word[4] = { 0, 0, 0, 0 }, stop = r < rows ? end : 0;

		if (!p.perm)
			return tile_bf16(from, at, stop, p.fast_x);
#pragma unroll
		for (uint32_t i = 0; i < 8; i++) {
			uint32_t c = at + i < stop ? p.perm[at + i] : p.k;

			if (c < p.k)
				word[i / 2] |= (uint32_t)from[c] << (16 * (i % 2));
		}
		return make_uint4(word[0], word[1], word[2], word[3]);
	}

	/* Of columns n % 8 == b: by group they lie side by side, by channel in pairs. */
	__device__ __forceinline__ void load_scales(marlin_group &g, uint32_t group,
						    uint32_t b) const
	{
		const uint16_t *s = p.scales + (uint64_t)group * p.n + col;

		if (p.groups > 1) {
			uint4 v = tile_bf16(s, 8 * b, MARLIN_COLS, p.fast_scales);
			const uint32_t word[4] = { v.x, v.y, v.z, v.w };

#pragma unroll
			for (int m = 0; m < 8; m++)
				g.scale[m] = from_bf16(word[m / 2] >> (16 * (m % 2)));
		} else {
#pragma unroll
			for (int m = 0; m < 8; m++)
				g.scale[m] =
					from_bf16(s[m / 4 * 32 + b / 2 * 8 + m % 4 * 2 + b % 2]);
		}
	}

	__device__ __forceinline__ void load_zeros(marlin_group &g, uint32_t group,
						   uint32_t b) const
	{
		const uint32_t *z = p.zeros + ((uint64_t)group * p.n + col) * p.bits / 32;

#pragma unroll
		for (int m = 0; m < 8; m++) {
			if (!p.zeros)
				g.zero[m] = p.bits == 4 ? 8 : 128;
			else if (p.bits == 4)
				g.zero[m] = code_of(z[b], m / 2 + m % 2 * 4, 4);
			else
				g.zero[m] = code_of(z[2 * b + m / 4], m % 4 / 2 + m % 2 * 2, 8);
		}
	}

	__device__ __forceinline__ uint32_t group_of(uint32_t row) const
	{
		return p.g_idx ? p.g_idx[row] : row / (p.k / p.groups);
	}

	/* One that is none makes weights 0. */
	__device__ __forceinline__ void load_group(marlin_group &g, uint32_t group,
						   uint32_t b) const
	{
		if (group < p.groups) {
			load_scales(g, group, b);
			load_zeros(g, group, b);
			return;
		}
#pragma unroll
		for (int m = 0; m < 8; m++)
			g.scale[m] = g.zero[m] = 0;
	}

	/* The words of a lane: BITS of them, 16 bytes at a time. */
	template <int BITS>
	__device__ __forceinline__ void load_words(uint32_t *word, uint64_t tile) const
	{
		const uint32_t *from = p.q + (tile * 32 + LANE) * BITS;

#pragma unroll
		for (int i = 0; i < BITS; i += 4) {
			if (p.fast_q)
				*(uint4 *)(word + i) = *(const uint4 *)(from + i);
			else
				for (int j = 0; j < 4; j++)
					word[i + j] = from[i + j];
		}
	}

	/*
	 * A warp has a tile of 16 rows, a lane of it rows 2 * (t % 4) + { 0, 1, 8, 9 } of
	 * columns t / 4 + 8 m. One row at a time: most often they are all of one group.
	 */
	template <int BITS>
	__device__ __forceinline__ void tile(tile_column *w, uint32_t first, uint32_t at) const
	{
		__align__(16) uint32_t word[BITS];
		uint32_t b = LANE / 4, have = UINT32_MAX;
		marlin_group g;

		load_words<BITS>(word, (uint64_t)(at / 16) * (p.n / 64) + col / 64);
#pragma unroll 1
		for (uint32_t i = 0; i < 4; i++) {
			uint32_t row = 2 * (LANE % 4) + i % 2 + i / 2 * 8,
				 group = group_of(at + row);

			if (group != have)
				load_group(g, group, b);
			have = group;
#pragma unroll
			for (uint32_t m = 0; m < 8; m++) {
				float code = code_in<BITS>(word, m, i);

				w[8 * m + b][first + row] =
					to_bf16((code - g.zero[m]) * g.scale[m]);
			}
		}
	}

	/* Of row @i of 4, column @m of 8 of a lane. */
	template <int BITS>
	static __device__ __forceinline__ uint32_t code_in(const uint32_t *word, uint32_t m,
							   uint32_t i)
	{
		if (BITS == 4)
			return code_of(word[m / 2], m % 2 * 2 + i / 2 + i % 2 * 4, 4);
		return code_of(word[m], i / 2 + i % 2 * 2, 8);
	}

	__device__ __forceinline__ void w(tile_column *to, uint32_t at) const
	{
		uint32_t first = 16 * WARP;

		if (at + first >= end)
			for (uint32_t i = LANE; i < MARLIN_COLS * 8; i += 32)
				*(uint32_t *)&to[i / 8][first + i % 8 * 2] = 0;
		else if (p.bits == 4)
			tile<4>(to, first, at + first);
		else
			tile<8>(to, first, at + first);
	}

	__device__ __forceinline__ void out(uint32_t r, uint32_t c, float sum) const
	{
		uint64_t at = (uint64_t)(row + r) * p.n + col + c;

		if (begin != 0)
			sum = __fadd_rn(__ldcg(p.tmp + at), sum);
		if (end != p.k) {
			__stcg(p.tmp + at, sum);
			return;
		}
		if (p.bias)
			sum = __fadd_rn(sum, from_bf16(p.bias[col + c]));
		p.out[at] = to_bf16(sum);
	}
};

/* One slice of up to 16 rows and 64 columns, when its turn comes. False: it did not. */
static __device__ __forceinline__ bool marlin_slice(tile_memory<2> &memory, const marlin_job &job,
						    uint32_t slice, uint32_t slices, bool alone)
{
	int32_t *lock = job.p.workspace + job.col / MARLIN_COLS;
	uint32_t turn = job.row / TILE_ROWS * slices + slice;
	bool last = slice + 1 == slices && job.row + job.rows == job.p.tokens;

	tile_parts(memory, job, job.rows, job.begin, job.end);
	if (!marlin_wait(lock, marlin_turn(turn), alone)) {
		if (threadIdx.x == 0)
			atomicOr(job.p.status, DECODE_STATUS_DIRTY);
		return false;
	}
	tile_out(memory, job, job.rows, MARLIN_COLS);
	marlin_release(lock, last ? 0 : marlin_turn(turn + 1));
	return true;
}

/* The slices from @first on, @step apart, of 64 columns. */
static __device__ __forceinline__ void marlin_columns(tile_memory<2> &memory,
						      const marlin_params &p, uint32_t col,
						      uint32_t first, uint32_t step)
{
	uint32_t depth = marlin_slice_rows(p.k, p.tmp), slices = (p.k + depth - 1) / depth;

	for (uint32_t row = 0; row < p.tokens; row += TILE_ROWS)
		for (uint32_t slice = first; slice < slices; slice += step) {
			const marlin_job job = {
				p,   row,	    min(p.tokens - row, TILE_ROWS),
				col, slice * depth, min(p.k, (slice + 1) * depth),
			};

			if (!marlin_slice(memory, job, slice, slices, step == 1))
				return;
		}
}

DECODE_KERNEL decode_marlin_gemm(const uint16_t *x, const uint32_t *q, const uint16_t *scales,
				 const uint32_t *zeros, const int32_t *g_idx, const int32_t *perm,
				 const uint16_t *bias, int32_t *workspace, int32_t *status,
				 float *tmp, uint16_t *out, uint32_t tokens, uint32_t n, uint32_t k,
				 uint32_t groups, uint32_t bits, uint32_t locks)
{
	__shared__ tile_memory<2> memory;
	const marlin_params p = {
		x,
		q,
		scales,
		zeros,
		g_idx,
		perm,
		bias,
		workspace,
		status,
		tmp,
		out,
		tokens,
		n,
		k,
		groups,
		bits,
		((uint64_t)x | 2 * (uint64_t)k) % 16 == 0,
		(uint64_t)q % 16 == 0,
		(uint64_t)scales % 16 == 0,
	};
	uint32_t depth, slices, gangs;

	if ((bits != 4 && bits != 8) || k == 0 || k % 16 != 0 || n % 64 != 0 || groups == 0 ||
	    k % groups != 0 || locks < n / 64)
		return;
	depth = marlin_slice_rows(k, tmp);
	slices = (k + depth - 1) / depth;
	gangs = gridDim.x / slices;
	if (gangs == 0 ? blockIdx.x != 0 : blockIdx.x >= gangs * slices)
		return;
	for (uint64_t tile = gangs == 0 ? 0 : blockIdx.x / slices; tile < n / 64;
	     tile += gangs == 0 ? 1 : gangs)
		marlin_columns(memory, p, tile * 64, gangs == 0 ? 0 : blockIdx.x % slices,
			       gangs == 0 ? 1 : slices);
}
