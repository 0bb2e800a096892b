/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marlin's repack of a GPTQ weight in act-order; see marlin.c, the twin.
 *
 * The rows of a tile lie anywhere, so a block brings all rows of its columns to shared memory, as
 * rows of codes side by side, and makes tile after tile of it. Its columns are those of one tile,
 * or of a part of one: where the rows of a whole tile are too large, 2, 4 or 8 blocks have a part
 * each, columns that some lanes of all warps want, so that what a block writes is 128 bytes or more
 * at once. In the source these columns are pieces of 16 bytes or less, of which other parts read
 * the same sectors: those blocks are neighbours, which run at the same time, and the L2 has them.
 *
 * A word in shared memory is 4 or 8 codes of a row: column c of each warp's 8 (4 bits: c and
 * c + 1). Half h has columns 8 to 15 of a warp, which there are without 8-bit activations. Row k
 * lies at place (k % f) * stride + k / f, stride odd, so that neither the rows of a word nor those
 * of neighbouring words share a bank.
 */
#include "kernels/marlin.cuh"

struct order {
	const uint32_t *q;
	const int32_t *perm;
	uint4 *out;
	uint32_t k, n;
	uint32_t stride;
	uint32_t log_mine; /* of a tile's words by c, how many are this block's */
	uint32_t first;	   /* from which on */
};

template <int BITS, bool A8> struct strip {
	static constexpr uint32_t tile_k = A8 ? 32 : 16, tile_n = 1024 / tile_k;
	static constexpr uint32_t f = 32 / BITS, halves = A8 ? 1 : 2;
	static constexpr uint32_t log_words = BITS == 4 ? 2 : 3; /* by c */
	static constexpr uint32_t lanes = tile_n / 16;		 /* that read a row */
	static constexpr uint32_t each = BITS / 2;		 /* words by c that one reads */
};

static __device__ __forceinline__ uint32_t item(const uint4 &x, uint32_t i)
{
	return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/* Words @u of the f rows that @in is of. */
template <int BITS>
static __device__ __forceinline__ void turn_in(uint32_t row[8], const uint4 in[4], uint32_t u)
{
	if (BITS == 4) {
		uint32_t x[8];

#pragma unroll
		for (int i = 0; i < 8; i++)
			x[i] = item(in[i % 4], 2 * u + i / 4);
		turn4(row, x);
	} else {
		turn8(row, item(in[0], u), item(in[1], u), item(in[2], u), item(in[3], u));
	}
}

/* What this lane reads of the rows of word @w. */
template <int BITS, bool A8>
static __device__ __forceinline__ void read_words(uint4 in[4], const struct order &o, uint32_t w,
						  uint32_t column)
{
	const uint32_t *from = o.q + (uint64_t)w * o.n + column;

#pragma unroll
	for (uint32_t i = 0; i < 4; i++)
		in[i] = __ldg((const uint4 *)(from + i * (strip<BITS, A8>::tile_n / 4)));
}

/* To where the words' columns belong; NULL: to another part. */
template <int BITS, bool A8>
static __device__ __forceinline__ void write_rows(const struct order &o, uint32_t w,
						  const uint4 in[4], uint32_t *const *to)
{
	typedef struct strip<BITS, A8> strip;

#pragma unroll
	for (uint32_t u = 0; u < strip::each; u++) {
		uint32_t row[8];

		if (to[u] == NULL)
			continue;
		turn_in<BITS>(row, in, u);
#pragma unroll
		for (uint32_t i = 0; i < strip::f; i++)
			to[u][(i * o.stride + w) * (strip::halves << o.log_mine)] = row[i];
	}
}

/* A part has no use for every other piece of a row: its lanes are for the others. */
template <int BITS, bool A8>
static __device__ __forceinline__ void bring(const struct order &o, uint32_t column, uint32_t *rows)
{
	typedef struct strip<BITS, A8> strip;
	uint32_t half = o.log_mine < strip::log_words, lanes = strip::lanes >> half;
	uint32_t lane = threadIdx.x % lanes << half | (half & o.first / strip::each);
	uint32_t c = lane % 2 * strip::each, words = o.k / strip::f;
	uint32_t *to[strip::each];

#pragma unroll
	for (uint32_t u = 0; u < strip::each; u++) {
		uint32_t mine = c + u - o.first;

		to[u] = NULL;
		if (mine >> o.log_mine == 0)
			to[u] = rows + mine * strip::halves + lane / 2;
	}
	for (uint32_t w = threadIdx.x / lanes; w < words; w += MARLIN_ORDER_THREADS / lanes) {
		uint4 in[4];

		read_words<BITS, A8>(in, o, w, column + 4 * lane);
		write_rows<BITS, A8>(o, w, in, to);
	}
}

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

/* Both halves, or the only one, of row @k of the source. */
template <int BITS, bool A8>
static __device__ __forceinline__ uint2 look_up(const struct order &o, const uint32_t *words,
						uint32_t k)
{
	typedef struct strip<BITS, A8> strip;
	uint32_t place = k % strip::f * o.stride + k / strip::f;

	if (k >= o.k)
		return make_uint2(0, 0);
	words += place * (strip::halves << o.log_mine);
	return A8 ? make_uint2(*words, 0) : *(const uint2 *)words;
}

/* What lanes 4 * c + r, and 4 bits: c + 1, store, 16 bytes at a time. */
template <int BITS, bool A8>
static __device__ __forceinline__ void turn_out(uint4 out[2], const uint2 *x)
{
	uint32_t y[8];

	if (BITS == 4 && A8) {
		uint32_t in[8] = { x[0].x, x[4].x, x[1].x, x[5].x, x[2].x, x[6].x, x[3].x, x[7].x };

		turn4(y, in);
	} else if (BITS == 4) {
		uint32_t in[8] = { x[0].x, x[2].x, x[0].y, x[2].y, x[1].x, x[3].x, x[1].y, x[3].y };

		turn4(y, in);
	} else if (A8) {
		turn8(y, x[0].x, x[1].x, x[2].x, x[3].x);
		turn8(y + 4, x[4].x, x[5].x, x[6].x, x[7].x);
	} else {
		turn8(y, x[0].x, x[2].x, x[1].x, x[3].x);
		turn8(y + 4, x[0].y, x[2].y, x[1].y, x[3].y);
	}
	if (BITS == 4) {
		out[0] = make_uint4(y[0], y[1], y[2], y[3]);
		out[1] = make_uint4(y[4], y[5], y[6], y[7]);
	} else {
		out[0] = make_uint4(y[0], y[4], y[1], y[5]);
		out[1] = make_uint4(y[2], y[6], y[3], y[7]);
	}
}

template <int BITS, bool A8>
static __device__ __forceinline__ void make_tiles(const struct order &o, uint32_t column,
						  const uint32_t *rows)
{
	typedef struct strip<BITS, A8> strip;
	constexpr uint32_t count = A8 ? 8 : 4;
	uint32_t across = o.n / strip::tile_n, works = o.k / strip::tile_k * 4 << o.log_mine;

	for (uint32_t i = threadIdx.x; i < works; i += MARLIN_ORDER_THREADS) {
		uint32_t r = i % 4, mine = i / 4 & ((1u << o.log_mine) - 1);
		uint32_t down = i / 4 >> o.log_mine, c = o.first + mine;
		const int32_t *perm = o.perm + down * strip::tile_k + r * (count / 2);
		uint32_t from[count];
		uint4 *tile = o.out + ((uint64_t)down * across + column / strip::tile_n) * 8 * BITS;
		uint2 x[count];
		uint4 words[2];

		/* Half of the rows side by side, and as many half a tile below. */
		indices<count / 2>(from, perm);
		indices<count / 2>(from + count / 2, perm + strip::tile_k / 2);
#pragma unroll
		for (uint32_t j = 0; j < count; j++)
			x[j] = look_up<BITS, A8>(o, rows + mine * strip::halves, from[j]);
		turn_out<BITS, A8>(words, x);
		if (BITS == 4) {
			tile[8 * c + r] = words[0];
			tile[8 * c + 4 + r] = words[1];
		} else {
			tile[(4 * c + r) * 2] = words[0];
			tile[(4 * c + r) * 2 + 1] = words[1];
		}
	}
}

template <int BITS, bool A8>
static __device__ __forceinline__ void repack_order(struct order o, uint32_t flags)
{
	typedef struct strip<BITS, A8> strip;
	uint32_t *rows = (uint32_t *)shared_memory();
	uint32_t log_parts = 0;

	while (marlin_order_bytes(o.k, BITS, flags, 1u << log_parts) > shared_bytes())
		if (++log_parts > strip::log_words)
			return;
	o.stride = o.k / strip::f + 1;
	o.log_mine = strip::log_words - log_parts;
	FOR_ROWS (i, (uint64_t)(o.n / strip::tile_n) << log_parts) {
		uint32_t column = (uint32_t)(i >> log_parts) * strip::tile_n;

		o.first = i % (1u << log_parts) << o.log_mine;
		__syncthreads();
		bring<BITS, A8>(o, column, rows);
		__syncthreads();
		make_tiles<BITS, A8>(o, column, rows);
	}
}

extern "C" __global__ void __launch_bounds__(MARLIN_ORDER_THREADS)
	arena_marlin_order(const uint32_t *q, const int32_t *perm, uint4 *out, uint32_t k,
			   uint32_t n, uint32_t bits, uint32_t flags)
{
	struct order o = { q, perm, out, k, n };

	if (flags & MARLIN_A8) {
		if (bits == 4)
			repack_order<4, true>(o, flags);
		else
			repack_order<8, true>(o, flags);
	} else {
		if (bits == 4)
			repack_order<4, false>(o, flags);
		else
			repack_order<8, false>(o, flags);
	}
}
