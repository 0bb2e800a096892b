/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marlin's repack of a GPTQ weight in act-order; see marlin.c, the twin.
 *
 * The rows of a tile lie anywhere, so all rows of a stripe of columns are brought to shared memory,
 * as rows of codes side by side, and tile after tile is made of them. Where they are too many for a
 * block, a cluster has them: word w of a column, and so its rows, is block w % blocks's. Each makes
 * as many of the tiles, and looks rows up where they are. While it does, the next stripe is on its
 * way to the L2.
 *
 * A stripe is 64 columns, a tile wide, or with 8-bit activations half a tile. What is stored is
 * whole sectors in any case, and what a warp reads at once whole lines or every other half of their
 * sectors. So no lane has all that a word of a row is made of: lanes exchange what they have read.
 *
 * In the source a tile has lines of 128 bytes, each 4 sectors of 8 columns, or 2 quads. Of a line,
 * warps 2 l and 2 l + 1 want 16 columns each, 2 sectors (8-bit activations: 4 warps, a sector each,
 * and a stripe is one quad of each). A row in shared memory, 8 bits: for each line and column of a
 * sector a word, the codes of the four sectors. 4 bits: for each quad of such columns and each line
 * two words, of two sectors each, those of the two warps in the same half (8-bit activations: of
 * warps 0 and 1, and of 2 and 3).
 */
#include "kernels/marlin.cuh"

#define AHEAD 4 /* loads of a thread that are under way at a time */

struct order {
	const uint32_t *q;
	const int32_t *perm;
	uint4 *out;
	uint32_t k, n;
	uint32_t stripe;
	uint32_t rank, log_blocks; /* in the cluster */
	uint32_t stride;	   /* marlin_order_stride() */
	uint32_t *rows;
};

template <int BITS, bool A8> struct form {
	static constexpr bool a8 = A8;
	static constexpr uint32_t bits = BITS, f = 32 / BITS;
	static constexpr uint32_t tile_k = A8 ? 32 : 16, tile_n = 1024 / tile_k;
	static constexpr uint32_t tile = 8 * BITS;	 /* uint4 */
	static constexpr uint32_t stripes = A8 ? 2 : 1;	 /* of a tile */
	static constexpr uint32_t quads = A8 ? 1 : 2;	 /* of a sector, in a stripe */
	static constexpr uint32_t lanes = A8 ? 4 : 16;	 /* that read the words of a stripe */
	static constexpr uint32_t row = A8 ? BITS / 2 : 2 * BITS; /* words, marlin_order_row() */
	static constexpr uint32_t words = A8 ? 2 : 4;	 /* of it, that a lane takes: a unit */
	static constexpr uint32_t units = row / words;
	static constexpr uint32_t rows = A8 ? 8 : 4; /* that what a lane stores is made of */
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

/* All lanes of a warp come here; @in: of words @w of this block, which may be none. */
template <class S>
static __device__ __forceinline__ void write_rows(const struct order &o, uint32_t w, bool is_there,
						  uint4 in)
{
	uint32_t lane = threadIdx.x % S::lanes;
	uint32_t quad = lane % S::quads, sector = lane / S::quads % 4, line = lane / S::quads / 4;
	uint32_t *to = o.rows + w * S::row;

	if (S::bits == 4) {
		bool second = S::a8 ? sector & 1 : sector >> 1;
		uint32_t x[4];

		to += 2 * second * o.stride + (2 * quad + line) * 2 + (S::a8 ? sector >> 1 : sector & 1);
		turn_quad(x, in);
#pragma unroll
		for (uint32_t i = 0; i < 4; i++) {
			x[i] = swap_halves(x[i], S::a8 ? 1 : 4, second);
			if (is_there)
				to[(i / 2 + i % 2 * 4) * o.stride] = x[i];
		}
	} else {
		in.x = swap_rows(in.x, S::quads, sector);
		in.y = swap_rows(in.y, S::quads, sector);
		in.z = swap_rows(in.z, S::quads, sector);
		in.w = swap_rows(in.w, S::quads, sector);
		if (is_there)
			*(uint4 *)(to + sector * o.stride + 8 * line + 4 * quad) = in;
	}
}

/* The first column of a stripe. */
template <class S>
static __device__ __forceinline__ uint32_t column(uint32_t stripe)
{
	return stripe / S::stripes * S::tile_n + stripe % S::stripes * 4;
}

template <class S> static __device__ __forceinline__ void bring(const struct order &o)
{
	uint32_t step = blockDim.x / S::lanes, lane = threadIdx.x % S::lanes, turn = 0;
	uint32_t words = (o.k / S::f + (1u << o.log_blocks) - 1 - o.rank) >> o.log_blocks;
	const uint32_t *from = o.q + (uint64_t)o.rank * o.n + column<S>(o.stripe) +
			       (S::a8 ? 8 : 4) * lane;

	/* The same turns for all lanes, as they exchange what they read. */
	do {
		uint32_t w = turn + threadIdx.x / S::lanes;
		uint4 in[AHEAD];

#pragma unroll
		for (uint32_t i = 0; i < AHEAD; i++)
			if (w + i * step < words)
				in[i] = __ldg((const uint4 *)(from + ((uint64_t)(w + i * step) * o.n
								      << o.log_blocks)));
		if (turn == 0)
			cluster_wait(); /* nobody reads the last stripe's rows any longer */
#pragma unroll
		for (uint32_t i = 0; i < AHEAD; i++)
			if (turn + i * step < words)
				write_rows<S>(o, w + i * step, w + i * step < words, in[i]);
		turn += AHEAD * step;
	} while (turn < words);
}

/* What this cluster brings next. */
template <class S>
static __device__ __forceinline__ void announce(const struct order &o, uint32_t stripe)
{
	const uint32_t *from = o.q + column<S>(stripe) / S::tile_n * S::tile_n;
	uint32_t words = o.k / S::f;

	if (stripe < o.n / S::tile_n * S::stripes && stripe % S::stripes == 0)
		for (uint32_t i = threadIdx.x; (i << o.log_blocks) + o.rank < words; i += blockDim.x)
			prefetch_l2(from + (uint64_t)((i << o.log_blocks) + o.rank) * o.n,
				    4 * S::tile_n);
}

/* ---- out of it ---- */

/* The rows that work @work of the tiles is made of, lanes 4 * c + r: half side by side, and as
 * many half a tile below. */
template <class S>
static __device__ __forceinline__ void rows_of(uint32_t k[S::rows], const struct order &o,
					       uint32_t work)
{
	constexpr uint32_t half = S::rows / 2;
	uint32_t r = work / S::units % 4, down = work / S::units / 4;
	const int32_t *perm = o.perm + down * S::tile_k + r * half;

#pragma unroll
	for (uint32_t i = 0; i < S::rows; i += half, perm += S::tile_k / 2) {
		if (half == 2) {
			int2 x = __ldg((const int2 *)perm);

			k[i] = x.x;
			k[i + 1] = x.y;
		} else {
			int4 x = __ldg((const int4 *)perm);

			k[i] = x.x;
			k[i + 1] = x.y;
			k[(i + 2) % S::rows] = x.z;
			k[(i + 3) % S::rows] = x.w;
		}
	}
}

/* Unit @unit of each row, from whichever block has it. A row that is none counts as 0. */
template <class S, bool CLUSTER>
static __device__ __forceinline__ void look_up(uint32_t x[S::words][S::rows], const struct order &o,
					       const uint32_t k[S::rows], uint32_t unit)
{
#pragma unroll
	for (uint32_t i = 0; i < S::rows; i++) {
		uint32_t w = k[i] / S::f, rank = w & ((1u << o.log_blocks) - 1);
		const uint32_t *at = o.rows + k[i] % S::f * o.stride +
				     (w >> o.log_blocks) * S::row + unit * S::words;

		if (k[i] >= o.k) {
			at = o.rows + S::f * o.stride;
			rank = o.rank;
		}
		if (S::words == 2) {
			uint2 y = CLUSTER ? cluster_uint2(at, rank) : *(const uint2 *)at;

			x[0][i] = y.x;
			x[1][i] = y.y;
		} else {
			uint4 y = CLUSTER ? cluster_uint4(at, rank) : *(const uint4 *)at;

			x[0][i] = y.x;
			x[1][i] = y.y;
			x[2 % S::words][i] = y.z;
			x[3 % S::words][i] = y.w;
		}
	}
}

/* 4 bits: what the lanes of a quad of columns store for two warps: @warp[4 * i + c], warp i. */
template <class S>
static __device__ __forceinline__ void turn_warps(uint32_t warp[8], const uint32_t *x,
						  const uint32_t *y)
{
	if (S::a8) {
		uint32_t in[8] = { x[0], x[4 % S::rows], x[1], x[5 % S::rows],
				   x[2], x[6 % S::rows], x[3], x[7 % S::rows] };

		turn4(warp, in);
	} else {
		uint32_t in[8] = { x[0], x[2], y[0], y[2], x[1], x[3], y[1], y[3] };

		turn4(warp, in);
	}
}

/* 4 bits: 16 bytes of each lane of a quad of columns. */
template <class S>
static __device__ __forceinline__ void store_quad(uint4 *to, const uint32_t x[S::words][S::rows])
{
	uint32_t low[8], high[8];

	turn_warps<S>(low, x[0], x[1]);
	turn_warps<S>(high, x[S::a8 ? 1 : 2 % S::words], x[3 % S::words]);
#pragma unroll
	for (uint32_t c = 0; c < 4; c++)
		to[4 * c] = make_uint4(low[c], low[4 + c], high[c], high[4 + c]);
}

/* 8 bits: 16 bytes (8-bit activations: 32) of a lane. */
template <class S> static __device__ __forceinline__ void store_lane(uint4 *to, const uint32_t *x)
{
	uint32_t y[4], z[4];

	if (S::a8) {
		turn8(y, x[0], x[1], x[2], x[3]);
		turn8(z, x[4 % S::rows], x[5 % S::rows], x[6 % S::rows], x[7 % S::rows]);
		to[0] = make_uint4(y[0], z[0], y[1], z[1]);
		to[1] = make_uint4(y[2], z[2], y[3], z[3]);
	} else {
		turn8(y, x[0], x[2], x[1], x[3]);
		to[0] = make_uint4(y[0], y[1], y[2], y[3]);
	}
}

/* Of lanes 4 * c + r of a tile, what one unit of rows @k is for. */
template <class S, bool CLUSTER>
static __device__ __forceinline__ void make_unit(const struct order &o, uint32_t work,
						 const uint32_t k[S::rows])
{
	uint32_t unit = work % S::units, r = work / S::units % 4, down = work / S::units / 4;
	uint4 *tile = o.out + ((uint64_t)down * (o.n / S::tile_n) + o.stripe / S::stripes) * S::tile;
	uint4 *to = tile + o.stripe % S::stripes * (S::tile / 2);
	uint32_t x[S::words][S::rows];

	look_up<S, CLUSTER>(x, o, k, unit);
	if (S::bits == 4) {
		store_quad<S>(to + 16 * unit + r, x);
	} else {
		uint32_t line = S::a8 ? 0 : unit / 2, first = (S::a8 ? unit : unit % 2) * S::words;

#pragma unroll
		for (uint32_t c = 0; c < S::words; c++)
			store_lane<S>(to + 2 * (4 * (first + c) + r) + line, x[c]);
	}
}

/* Warp by warp, the blocks of a cluster in turn; the lanes that take a row are side by side. What
 * rows comes next is asked before it is needed. */
template <class S, bool CLUSTER>
static __device__ __forceinline__ void make_tiles(const struct order &o)
{
	uint32_t works = o.k / S::tile_k * 4 * S::units, step = blockDim.x << o.log_blocks;
	uint32_t i = (((threadIdx.x / 32) << o.log_blocks) + o.rank) * 32 + threadIdx.x % 32;
	uint32_t k[S::rows], next[S::rows];

	if (i < works)
		rows_of<S>(next, o, i);
	cluster_wait(); /* all rows are there */
	for (; i < works; i += step) {
#pragma unroll
		for (uint32_t j = 0; j < S::rows; j++)
			k[j] = next[j];
		if (i + step < works)
			rows_of<S>(next, o, i + step);
		make_unit<S, CLUSTER>(o, i, k);
	}
}

template <int BITS, bool A8> static __device__ __forceinline__ void repack_order(struct order o)
{
	typedef form<BITS, A8> form;
	uint32_t clusters = gridDim.x >> o.log_blocks;

	o.stride = (uint32_t)marlin_order_stride(o.k, BITS, A8, 1u << o.log_blocks);
	if (threadIdx.x < 4)
		o.rows[form::f * o.stride + threadIdx.x] = 0;
	cluster_arrive(true);
	o.stripe = blockIdx.x >> o.log_blocks;
	for (; o.stripe < o.n / form::tile_n * form::stripes; o.stripe += clusters) {
		bring<form>(o);
		cluster_arrive(false);
		announce<form>(o, o.stripe + clusters);
		if (o.log_blocks == 0)
			make_tiles<form, false>(o);
		else
			make_tiles<form, true>(o);
		cluster_arrive(true);
	}
	cluster_wait();
}

extern "C" __global__ void __launch_bounds__(MARLIN_ORDER_THREADS)
	arena_marlin_order(const uint32_t *q, const int32_t *perm, uint4 *out, uint32_t k,
			   uint32_t n, uint32_t bits, uint32_t flags)
{
	struct order o = { q, perm, out, k, n };

	o.rank = cluster_rank();
	o.log_blocks = __ffs(cluster_blocks()) - 1;
	o.rows = (uint32_t *)shared_memory();
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
