/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marlin's repack of a GPTQ weight in act-order; see marlin.c, the twin.
 *
 * The rows of a tile lie anywhere, so a block brings all rows of its columns to shared memory, as
 * rows of codes side by side, and makes tile after tile of it. Where the columns of a whole tile
 * are too many, 2, 4 or 8 blocks share them (struct share). From 4 on, without 8-bit activations,
 * each stores parts of sectors: slow, once the output exceeds the L2 (tests/gpu/RESULTS.md).
 *
 * A line is 32 columns: 128 bytes of the source, 4 sectors of 8 columns, which are what warps 2 l
 * and 2 l + 1 want, 16 columns each (8-bit activations: 4 warps, 8 each). What a warp reads at once
 * is whole lines, since each one that an instruction touches takes the L1 a cycle: so no lane has
 * all that a word of a row is made of, and lanes of one line exchange what they have read.
 *
 * A row in shared memory, 8 bits: for each line and column of a sector a word, the codes of the four
 * sectors. 4 bits: for each quad of such columns and each line two words, of two sectors each, those
 * of the two warps in the same half (8-bit activations: of warps 0 and 1, and of 2 and 3).
 */
#include "kernels/marlin.cuh"

#define AHEAD 4 /* loads of a thread that are under way at a time */

struct order {
	const uint32_t *q;
	const int32_t *perm;
	uint4 *out;
	uint32_t k, n;
	uint32_t tile, part; /* of a row of tiles; of that tile */
};

template <int BITS, bool A8, int PARTS> struct share {
	static constexpr bool a8 = A8;
	static constexpr uint32_t bits = BITS, f = 32 / BITS, parts = PARTS;
	static constexpr uint32_t tile_k = A8 ? 32 : 16, tile_n = 1024 / tile_k;
	/* First each block gets a quad of a sector's columns, then a line, then a pair. */
	static constexpr uint32_t lines = A8 || PARTS >= 4 ? 1 : 2;
	static constexpr uint32_t columns = PARTS == 1 ? 8 : PARTS == (A8 ? 4 : 8) ? 2 : 4;
	static constexpr uint32_t quads = columns == 8 ? 2 : 1;
	static constexpr uint32_t row_words = lines * columns * BITS / 8; /* marlin_order_words() */
	static constexpr uint32_t lanes = lines * 4 * quads; /* that read a row of words */
	static constexpr uint32_t rows = A8 ? 8 : 4;	     /* that what a lane stores is made of */

	static __device__ __forceinline__ uint32_t first_line(uint32_t part)
	{
		return !A8 && PARTS >= 4 ? part >> 1 & 1 : 0;
	}

	static __device__ __forceinline__ uint32_t first_column(uint32_t part)
	{
		return 4 * (part & 1) + (columns == 2 ? 2 * (part / (A8 ? 2 : 4)) : 0);
	}

	/* Where row @i of words @w begins. */
	static __device__ __forceinline__ uint32_t place(uint32_t i, uint32_t w, uint32_t k)
	{
		return (i * (uint32_t)marlin_order_places(k, BITS, row_words) + w) * row_words;
	}
};

/* ---- into shared memory ---- */

/* The lane's columns of 8 rows, 4 bits: rows i and i + 2 a word, for i = 0, 4, 1, 5. */
static __device__ __forceinline__ void turn_quad(uint32_t out[4], const uint4 &in)
{
	uint32_t even01 = (in.x & 0x0f0f0f0f) | (in.y << 4 & 0xf0f0f0f0);
	uint32_t even23 = (in.z & 0x0f0f0f0f) | (in.w << 4 & 0xf0f0f0f0);
	uint32_t odd01 = (in.x >> 4 & 0x0f0f0f0f) | (in.y & 0xf0f0f0f0);
	uint32_t odd23 = (in.z >> 4 & 0x0f0f0f0f) | (in.w & 0xf0f0f0f0);

	out[0] = __byte_perm(even01, even23, 0x5140);
	out[1] = __byte_perm(even01, even23, 0x7362);
	out[2] = __byte_perm(odd01, odd23, 0x5140);
	out[3] = __byte_perm(odd01, odd23, 0x7362);
}

/* Of two lanes the first one gets the low halves of @x, the other one the high halves. */
static __device__ __forceinline__ uint32_t swap_halves(uint32_t x, uint32_t apart, bool second)
{
	return __byte_perm(x, __shfl_xor_sync(~0u, x, apart), second ? 0x3276 : 0x5410);
}

/* Of two lanes the first one gets the even bytes of @x, the other one the odd ones. */
static __device__ __forceinline__ uint32_t swap_bytes(uint32_t x, uint32_t apart, bool second)
{
	return __byte_perm(x, __shfl_xor_sync(~0u, x, apart), second ? 0x3715 : 0x6240);
}

/* Four lanes, a sector each, get a row each: its codes in the four sectors. */
static __device__ __forceinline__ uint32_t swap_rows(uint32_t x, uint32_t apart, uint32_t sector)
{
	x = swap_bytes(x, apart, sector & 1);
	return swap_halves(x, 2 * apart, sector >> 1);
}

/* All lanes of a warp come here; @w: which rows of words @in is of, none if there are no such. */
template <class S>
static __device__ __forceinline__ void write_rows(const struct order &o, uint32_t w, uint4 in,
						  uint32_t *rows)
{
	uint32_t lane = threadIdx.x % S::lanes;
	uint32_t quad = lane % S::quads, sector = lane / S::quads % 4, line = lane / S::quads / 4;
	bool is_there = w < o.k / S::f;

	if (S::bits == 4) {
		bool second = S::a8 ? sector & 1 : sector >> 1;
		uint32_t word = S::a8 ? sector >> 1 : sector & 1;
		uint32_t *to = rows + (quad * S::lines + line) * 2 + word, x[4];

		turn_quad(x, in);
#pragma unroll
		for (uint32_t i = 0; i < 4; i++) {
			x[i] = swap_halves(x[i], (S::a8 ? 1 : 2) * S::quads, second);
			if (is_there)
				to[S::place(i / 2 + i % 2 * 4 + 2 * second, w, o.k)] = x[i];
		}
	} else {
		uint32_t *to = rows + S::place(sector, w, o.k) + line * S::columns + 4 * quad;

		if (S::columns == 2 && S::first_column(o.part) % 4 != 0) {
			in.x = in.z;
			in.y = in.w;
		}
		in.x = swap_rows(in.x, S::quads, sector);
		in.y = swap_rows(in.y, S::quads, sector);
		if (S::columns != 2) {
			in.z = swap_rows(in.z, S::quads, sector);
			in.w = swap_rows(in.w, S::quads, sector);
		}
		if (is_there && S::columns == 2)
			*(uint2 *)to = make_uint2(in.x, in.y);
		else if (is_there)
			*(uint4 *)to = in;
	}
}

template <class S>
static __device__ __forceinline__ void bring(const struct order &o, uint32_t *rows)
{
	constexpr uint32_t step = MARLIN_ORDER_THREADS / S::lanes;
	uint32_t lane = threadIdx.x % S::lanes, words = o.k / S::f;
	uint32_t sector = lane / S::quads, quad = S::first_column(o.part) / 4 + lane % S::quads;
	const uint32_t *from = o.q + o.tile * S::tile_n + 32 * S::first_line(o.part) +
			       8 * sector + 4 * quad;

	/* The same turns for all lanes, as they exchange what they read. */
	for (uint32_t turn = 0; turn < words; turn += AHEAD * step) {
		uint32_t w = turn + threadIdx.x / S::lanes;
		uint4 in[AHEAD];

#pragma unroll
		for (uint32_t i = 0; i < AHEAD; i++)
			if (w + i * step < words)
				in[i] = __ldg((const uint4 *)(from + (uint64_t)(w + i * step) * o.n));
#pragma unroll
		for (uint32_t i = 0; i < AHEAD; i++)
			if (turn + i * step < words)
				write_rows<S>(o, w + i * step, in[i], rows);
	}
}

/* ---- out of it ---- */

template <uint32_t COUNT>
static __device__ __forceinline__ void indices(uint32_t k[COUNT], const int32_t *perm)
{
	if (COUNT == 2) {
		int2 x = __ldg((const int2 *)perm);

		k[0] = x.x;
		k[1] = x.y;
	} else {
		int4 x = __ldg((const int4 *)perm);

		k[0] = x.x;
		k[1] = x.y;
		k[2 % COUNT] = x.z;
		k[3 % COUNT] = x.w;
	}
}

/* The rows that lanes 4 * c + r of tile @down are made of: half of them side by side, and as many
 * half a tile below. @words: of each, @COUNT from @rows on; a row that is none counts as 0. */
template <class S, uint32_t COUNT>
static __device__ __forceinline__ void look_up(uint32_t words[COUNT][S::rows],
					       const struct order &o, uint32_t down, uint32_t r,
					       const uint32_t *rows)
{
	constexpr uint32_t half = S::a8 ? 4 : 2;
	const int32_t *perm = o.perm + down * S::tile_k + r * half;
	uint32_t k[2 * half];

	indices<half>(k, perm);
	indices<half>(k + half, perm + S::tile_k / 2);
#pragma unroll
	for (uint32_t i = 0; i < 2 * half; i++) {
		const uint32_t *at = rows + S::place(k[i] % S::f, k[i] / S::f, o.k);
		uint4 x = make_uint4(0, 0, 0, 0);

		if (k[i] < o.k && COUNT == 4) {
			x = *(const uint4 *)at;
		} else if (k[i] < o.k) {
			uint2 y = *(const uint2 *)at;

			x.x = y.x;
			x.y = y.y;
		}
		words[0][i] = x.x;
		words[1][i] = x.y;
		words[2 % COUNT][i] = COUNT == 4 ? x.z : x.x;
		words[3 % COUNT][i] = COUNT == 4 ? x.w : x.y;
	}
}

/* 4 bits: what the lanes of a quad of columns store for two warps: @warp[4 * i + c], warp i. */
template <class S, uint32_t COUNT>
static __device__ __forceinline__ void turn_warps(uint32_t warp[8],
						  const uint32_t x[COUNT][S::rows],
						  uint32_t pair)
{
	if (S::a8) {
		const uint32_t *y = x[pair];
		uint32_t in[8] = { y[0], y[4 % S::rows], y[1], y[5 % S::rows],
				   y[2], y[6 % S::rows], y[3], y[7 % S::rows] };

		turn4(warp, in);
	} else {
		const uint32_t *y = x[2 * pair % COUNT], *z = x[(2 * pair + 1) % COUNT];
		uint32_t in[8] = { y[0], y[2], z[0], z[2], y[1], y[3], z[1], z[3] };

		turn4(warp, in);
	}
}

/* 4 bits: 16 bytes, or what this line has of them, of each lane of a quad of columns. */
template <class S>
static __device__ __forceinline__ void make_quad(const struct order &o, uint4 *tile, uint32_t down,
						 uint32_t r, uint32_t quad, const uint32_t *rows)
{
	constexpr uint32_t count = 2 * S::lines;
	uint32_t x[count][S::rows], low[8], high[8];
	uint32_t lane = 16 * quad + 4 * S::first_column(o.part) + r;

	look_up<S, count>(x, o, down, r, rows + quad * count);
	turn_warps<S, count>(low, x, 0);
	if (S::a8 || S::lines == 2)
		turn_warps<S, count>(high, x, 1);
#pragma unroll
	for (uint32_t c = 0; c < 4; c++)
		if (S::a8 || S::lines == 2)
			tile[lane + 4 * c] = make_uint4(low[c], low[4 + c], high[c], high[4 + c]);
		else
			((uint2 *)(tile + lane + 4 * c))[S::first_line(o.part)] =
				make_uint2(low[c], low[4 + c]);
}

/* 8 bits: 16 bytes (8-bit activations: 32) of each lane of a pair of columns. */
template <class S>
static __device__ __forceinline__ void make_pair(const struct order &o, uint4 *tile, uint32_t down,
						 uint32_t r, uint32_t line, uint32_t pair,
						 const uint32_t *rows)
{
	uint32_t x[2][S::rows], y[4], z[4];
	uint32_t lane = 8 * pair + 4 * S::first_column(o.part) + r;

	look_up<S, 2>(x, o, down, r, rows + line * S::columns + 2 * pair);
#pragma unroll
	for (uint32_t c = 0; c < 2; c++) {
		uint4 *to = tile + 2 * (lane + 4 * c);

		if (S::a8) {
			turn8(y, x[c][0], x[c][1], x[c][2], x[c][3]);
			turn8(z, x[c][4 % S::rows], x[c][5 % S::rows], x[c][6 % S::rows],
			      x[c][7 % S::rows]);
			to[0] = make_uint4(y[0], z[0], y[1], z[1]);
			to[1] = make_uint4(y[2], z[2], y[3], z[3]);
		} else {
			turn8(y, x[c][0], x[c][2], x[c][1], x[c][3]);
			to[S::first_line(o.part) + line] = make_uint4(y[0], y[1], y[2], y[3]);
		}
	}
}

template <class S>
static __device__ __forceinline__ void make_tiles(const struct order &o, const uint32_t *rows)
{
	constexpr uint32_t units = S::bits == 4 ? S::quads : S::lines * (S::columns / 2);
	uint32_t works = o.k / S::tile_k * 4 * units;
	uint64_t across = o.n / S::tile_n;

	for (uint32_t i = threadIdx.x; i < works; i += MARLIN_ORDER_THREADS) {
		uint32_t r = i % 4, unit = i / 4 % units, down = i / 4 / units;
		uint4 *tile = o.out + (down * across + o.tile) * 8 * S::bits;

		if (S::bits == 4)
			make_quad<S>(o, tile, down, r, unit, rows);
		else
			make_pair<S>(o, tile, down, r, unit % S::lines, unit / S::lines, rows);
	}
}

template <class S> static __device__ __forceinline__ void repack_share(struct order o)
{
	uint32_t *rows = (uint32_t *)shared_memory();

	FOR_ROWS (i, (uint64_t)(o.n / S::tile_n) * S::parts) {
		o.tile = (uint32_t)(i / S::parts);
		o.part = (uint32_t)(i % S::parts);
		__syncthreads();
		bring<S>(o, rows);
		__syncthreads();
		make_tiles<S>(o, rows);
	}
}

/* As the launch reckoned, which takes care that a part fits. */
template <int BITS, bool A8>
static __device__ __forceinline__ void repack_order(const struct order &o)
{
	switch (marlin_order_parts(o.k, BITS, A8, shared_bytes())) {
	case 1:
		return repack_share<share<BITS, A8, 1>>(o);
	case 2:
		return repack_share<share<BITS, A8, 2>>(o);
	case 4:
		if (BITS == 8 || !A8)
			repack_share<share<BITS, A8, 4>>(o);
		return;
	case 8:
		if (BITS == 8 && !A8)
			repack_share<share<BITS, A8, 8>>(o);
	}
}

extern "C" __global__ void __launch_bounds__(MARLIN_ORDER_THREADS)
	arena_marlin_order(const uint32_t *q, const int32_t *perm, uint4 *out, uint32_t k,
			   uint32_t n, uint32_t bits, uint32_t flags)
{
	struct order o = { q, perm, out, k, n };

	if (flags & MARLIN_A8) {
		if (bits == 4)
			repack_order<4, true>(o);
		else
			repack_order<8, true>(o);
	} else {
		if (bits == 4)
			repack_order<4, false>(o);
		else
			repack_order<8, false>(o);
	}
}
