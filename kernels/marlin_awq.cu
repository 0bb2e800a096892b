/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marlin's repack of a weight of AWQ's, which has the codes of a row side by side, in any order of
 * the rows. See marlin.c, the twin.
 *
 * A unit is 128 bytes of a tile: 16 bytes, one store, of each of the lanes r, r + 4, to r + 28. It
 * is made of 4 rows of 32 bytes (8-bit activations: 8 rows of 16), by one thread, in registers.
 */
#include "kernels/marlin.cuh"

template <int BITS, bool A8> struct unit {
	static constexpr int tile_k = A8 ? 32 : 16, tile_n = 1024 / tile_k;
	static constexpr int rows = A8 ? 8 : 4, words = 32 / rows; /* of a row */
	static constexpr int parts = BITS / 4;			   /* of a lane: stores */
	static constexpr int of_tile = 4 * parts;
	static constexpr int tile_row = tile_n * BITS / 32; /* words */

	uint32_t in[rows][words];

	/* The row of the tile that is number @i of the unit. */
	static __device__ __forceinline__ uint32_t row(uint32_t r, int i)
	{
		return A8 ? 4 * r + i / 2 + i % 2 * 16 : 2 * r + i / 2 + i % 2 * 8;
	}

	__device__ __forceinline__ void load(int i, const uint32_t *from)
	{
#pragma unroll
		for (int w = 0; w < words; w += 4) {
			uint4 x = *(const uint4 *)(from + w);

			in[i][w] = x.x;
			in[i][w + 1] = x.y;
			in[i][w + 2] = x.z;
			in[i][w + 3] = x.w;
		}
	}

	__device__ __forceinline__ void clear(int i)
	{
#pragma unroll
		for (int w = 0; w < words; w++)
			in[i][w] = 0;
	}

	/* Word @w of what lanes 4 * c + r store, by the place of c in a word of the source. */
	__device__ __forceinline__ void turn(int w, uint32_t out[8]) const
	{
		if (BITS == 4) {
			uint32_t x[8];

#pragma unroll
			for (int i = 0; i < 8; i++)
				x[i] = A8 ? in[i % rows][w % words]
					  : in[i / 4 * 2 + i % 2][(2 * w + i / 2 % 2) % words];
			turn4(out, x);
		} else if (A8) {
			turn_quads(out, w % 2, 2, w / 2 * 2);
		} else {
			turn_quads(out, 0, 1, 2 * w);
		}
	}

	/* 8 bits: words @at and @at + 1 of 4 rows, @step apart. */
	__device__ __forceinline__ void turn_quads(uint32_t out[8], int first, int step,
						   int at) const
	{
#pragma unroll
		for (int q = 0; q < 2; q++)
			turn8(out + 4 * q, in[first][(at + q) % words],
			      in[first + step][(at + q) % words],
			      in[first + 2 * step][(at + q) % words],
			      in[(first + 3 * step) % rows][(at + q) % words]);
	}

	__device__ __forceinline__ void store(uint4 *tile, uint32_t r, uint32_t part)
	{
		uint32_t out[4][8];

#pragma unroll
		for (int w = 0; w < 4; w++)
			turn(w, out[w]);
#pragma unroll
		for (int c = 0; c < 8; c++) {
			int f = 32 / BITS, p = c / f * f + awq_place(c % f, BITS);

			tile[(4 * c + r) * parts + part] =
				make_uint4(out[0][p], out[1][p], out[2][p], out[3][p]);
		}
	}
};

template <int BITS, bool A8>
static __device__ __forceinline__ void repack_awq(const uint32_t *q, const int32_t *perm,
						  uint4 *out, uint32_t k, uint32_t n)
{
	typedef struct unit<BITS, A8> unit;
	uint32_t across = n / unit::tile_n;

	FOR_EACH (i, (uint64_t)(k / unit::tile_k) * across * unit::of_tile) {
		uint32_t tile = i / unit::of_tile, r = i % 4, part = i / 4 % unit::parts;
		uint32_t first = tile / across * unit::tile_k;
		uint32_t at = tile % across * unit::tile_row + part * unit::words;
		unit u;

#pragma unroll
		for (int j = 0; j < unit::rows; j++) {
			uint32_t row = first + unit::row(r, j);

			if (perm)
				row = __ldg(perm + row);
			if (row < k)
				u.load(j, q + (uint64_t)row * (n / (32 / BITS)) + at);
			else
				u.clear(j);
		}
		u.store(out + (uint64_t)tile * (8 * BITS), r, part);
	}
}

DERIVE_KERNEL arena_marlin_awq(const uint32_t *q, const int32_t *perm, uint4 *out, uint32_t k,
			       uint32_t n, uint32_t bits, uint32_t flags)
{
	if (flags & MARLIN_A8) {
		if (bits == 4)
			repack_awq<4, true>(q, perm, out, k, n);
		else
			repack_awq<8, true>(q, perm, out, k, n);
	} else {
		if (bits == 4)
			repack_awq<4, false>(q, perm, out, k, n);
		else
			repack_awq<8, false>(q, perm, out, k, n);
	}
}
