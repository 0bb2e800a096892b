/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLA; see mla.c, the twins. The keys' rows of kv_b_proj are copied, 16 bytes at a time where
 * they are aligned; the values' rows are transposed through shared memory, 64 x 64 elements at a
 * time, so that loads and stores both run along rows. Of 2-byte elements two go together where
 * rows have an even number.
 */
#include "kernels/derive.cuh"

#define MLA_TILE   64
#define KEYS_PIECE (4 * DERIVE_THREADS) /* units that a block copies at a time */

struct mla {
	uint64_t w, uk, uv; /* addresses */
	uint32_t heads, nope, v, latent;
};

/* Rows of the keys: all of a head lie together, here and there. */
template <typename T>
static __device__ __forceinline__ void copy_keys(const struct mla &m, uint32_t word)
{
	uint64_t row = (uint64_t)m.latent * word / sizeof(T), per_head = m.nope * row;
	uint64_t pieces = (per_head + KEYS_PIECE - 1) / KEYS_PIECE;

	FOR_ROWS (i, m.heads * pieces) {
		uint64_t head = i / pieces, first = i % pieces * KEYS_PIECE + threadIdx.x;
		const T *from = (const T *)m.w + head * (m.nope + m.v) * row;
		T *to = (T *)m.uk + head * per_head;

#pragma unroll
		for (uint64_t c = first; c < first + KEYS_PIECE; c += DERIVE_THREADS)
			if (c < per_head)
				to[c] = from[c];
	}
}

/* Two elements of a row, of which the second may be outside. PAIR: one access. */
template <typename T, bool PAIR>
static __device__ __forceinline__ void load_two(T to[2], const T *from, bool first, bool second)
{
	if (PAIR) {
		if (first)
			*(uint32_t *)to = *(const uint32_t *)from;
	} else {
		if (first)
			to[0] = from[0];
		if (second)
			to[1] = from[1];
	}
}

template <typename T, bool PAIR>
static __device__ __forceinline__ void store_two(T *to, T a, T b, bool first, bool second)
{
	if (PAIR) {
		if (first)
			*(uint32_t *)to = (uint32_t)a | (uint32_t)b << 16;
	} else {
		if (first)
			to[0] = a;
		if (second)
			to[1] = b;
	}
}

/* Values: [v, latent] of each head becomes [latent, v]. A block has a tile at a time. */
template <typename T, bool PAIR> static __device__ void turn_values(const struct mla &m, T *tile)
{
	constexpr uint32_t pitch = MLA_TILE + 4 / sizeof(T); /* a bank further each row */
	uint32_t tiles_v = (m.v + MLA_TILE - 1) / MLA_TILE;
	uint32_t tiles_l = (m.latent + MLA_TILE - 1) / MLA_TILE;
	uint32_t x = threadIdx.x % 32 * 2, y0 = threadIdx.x / 32;

	FOR_ROWS (i, (uint64_t)m.heads * tiles_v * tiles_l) {
		uint64_t head = i / (tiles_v * tiles_l);
		uint32_t v0 = i / tiles_l % tiles_v * MLA_TILE, l0 = i % tiles_l * MLA_TILE;
		const T *from = (const T *)m.w + (head * (m.nope + m.v) + m.nope) * m.latent;
		T *to = (T *)m.uv + head * m.latent * m.v;

#pragma unroll
		for (uint32_t y = y0; y < MLA_TILE; y += DERIVE_THREADS / 32)
			load_two<T, PAIR>(tile + y * pitch + x,
					  from + (uint64_t)(v0 + y) * m.latent + l0 + x,
					  v0 + y < m.v && l0 + x < m.latent,
					  v0 + y < m.v && l0 + x + 1 < m.latent);
		__syncthreads();
#pragma unroll
		for (uint32_t y = y0; y < MLA_TILE; y += DERIVE_THREADS / 32) {
			bool inside = l0 + y < m.latent;

			store_two<T, PAIR>(to + (uint64_t)(l0 + y) * m.v + v0 + x,
					   tile[x * pitch + y], tile[(x + 1) * pitch + y],
					   inside && v0 + x < m.v, inside && v0 + x + 1 < m.v);
		}
		__syncthreads();
	}
}

DERIVE_KERNEL arena_mla_split(uint64_t w, uint64_t uk, uint64_t uv, uint32_t heads, uint32_t nope,
			      uint32_t v, uint32_t latent, uint32_t word)
{
	__shared__ __align__(16) uint32_t tile[MLA_TILE * (MLA_TILE + 1)];
	const struct mla m = { w, uk, uv, heads, nope, v, latent };

	if ((w | uk | (uint64_t)latent * word) % 16 == 0)
		copy_keys<uint4>(m, word);
	else if (word == 4)
		copy_keys<uint32_t>(m, word);
	else
		copy_keys<uint16_t>(m, word);
	if (word == 4)
		turn_values<uint32_t, false>(m, tile);
	else if ((w | uv) % 4 == 0 && (v | latent) % 2 == 0)
		turn_values<uint16_t, true>(m, (uint16_t *)tile);
	else
		turn_values<uint16_t, false>(m, (uint16_t *)tile);
}

DERIVE_KERNEL arena_mla_dequant(const uint8_t *w, const float *scales, uint16_t *out, uint32_t rows,
				uint32_t cols, uint32_t block_rows, uint32_t block_cols)
{
	uint32_t per_row = (cols - 1) / block_cols + 1;

	FOR_ROWS (r, rows)
		FOR_COLUMNS (c, cols) {
			float scale = scales[r / block_rows * per_row + c / block_cols];

			out[r * cols + c] =
				to_word(DERIVE_BF16, __fmul_rn(from_e4m3(w[r * cols + c]), scale));
		}
}
