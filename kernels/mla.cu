/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLA; see mla.c, the twins. The keys' rows of kv_b_proj are copied, 16 bytes at a time where
 * they are aligned. The values' rows are transposed: where both sides are aligned, a thread turns a
 * square of 16 bytes by 16 in registers; elsewhere a block turns 64 x 64 elements in shared memory.
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

/* A square of elements, a row 16 bytes, in its place: row i of @out is column i of @in. */
static __device__ __forceinline__ void turn_square(uint32_t out[8][4], const uint32_t in[8][4],
						   uint16_t)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int j = 0; j < 4; j++) {
			uint32_t a = in[2 * i][j], b = in[2 * i + 1][j];

			out[2 * j][i] = __byte_perm(a, b, 0x5410);
			out[2 * j + 1][i] = __byte_perm(a, b, 0x7632);
		}
}

static __device__ __forceinline__ void turn_square(uint32_t out[4][4], const uint32_t in[4][4],
						   uint32_t)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int j = 0; j < 4; j++)
			out[j][i] = in[i][j];
}

/*
 * Values: [v, latent] of each head becomes [latent, v], both of whole squares. A warp has 8 squares
 * along v, which it stores, by 4 along latent, which it loads: 128 and 64 bytes together.
 */
template <typename T> static __device__ __forceinline__ void turn_squares(const struct mla &m)
{
	constexpr uint32_t side = 16 / sizeof(T);
	uint32_t tiles_v = (m.v + 8 * side - 1) / (8 * side);
	uint32_t tiles_l = (m.latent + 32 * side - 1) / (32 * side); /* of a block */
	uint32_t x = threadIdx.x / 4 % 8 * side;
	uint32_t y = (threadIdx.x / 32 * 4 + threadIdx.x % 4) * side;

	FOR_ROWS (i, (uint64_t)m.heads * tiles_v * tiles_l) {
		uint32_t tile = i / tiles_l, v = tile % tiles_v * 8 * side + x;
		uint32_t l = (uint32_t)(i % tiles_l) * 32 * side + y;
		uint64_t head = tile / tiles_v;
		const T *from =
			(const T *)m.w + (head * (m.nope + m.v) + m.nope + v) * m.latent + l;
		T *to = (T *)m.uv + (head * m.latent + l) * m.v + v;
		uint32_t in[side][4], out[side][4];

		if (v >= m.v || l >= m.latent)
			continue;
#pragma unroll
		for (uint32_t j = 0; j < side; j++) {
			uint4 a = __ldcs((const uint4 *)(from + (uint64_t)j * m.latent));

			in[j][0] = a.x;
			in[j][1] = a.y;
			in[j][2] = a.z;
			in[j][3] = a.w;
		}
		turn_square(out, in, (T)0);
#pragma unroll
		for (uint32_t j = 0; j < side; j++)
			__stcs((uint4 *)(to + (uint64_t)j * m.v),
			       make_uint4(out[j][0], out[j][1], out[j][2], out[j][3]));
	}
}

/* The same of any shape. A block has a tile at a time. */
template <typename T> static __device__ void turn_values(const struct mla &m, T *tile)
{
	constexpr uint32_t pitch = MLA_TILE + 4 / sizeof(T); /* a bank further each row */
	uint32_t tiles_v = (m.v + MLA_TILE - 1) / MLA_TILE;
	uint32_t tiles_l = (m.latent + MLA_TILE - 1) / MLA_TILE;
	uint32_t x = threadIdx.x % MLA_TILE, y0 = threadIdx.x / MLA_TILE;

	FOR_ROWS (i, (uint64_t)m.heads * tiles_v * tiles_l) {
		uint64_t head = i / (tiles_v * tiles_l);
		uint32_t v0 = i / tiles_l % tiles_v * MLA_TILE, l0 = i % tiles_l * MLA_TILE;
		const T *from = (const T *)m.w + (head * (m.nope + m.v) + m.nope) * m.latent;
		T *to = (T *)m.uv + head * m.latent * m.v;

		for (uint32_t y = y0; y < MLA_TILE; y += DERIVE_THREADS / MLA_TILE)
			if (v0 + y < m.v && l0 + x < m.latent)
				tile[y * pitch + x] = from[(uint64_t)(v0 + y) * m.latent + l0 + x];
		__syncthreads();
		for (uint32_t y = y0; y < MLA_TILE; y += DERIVE_THREADS / MLA_TILE)
			if (l0 + y < m.latent && v0 + x < m.v)
				to[(uint64_t)(l0 + y) * m.v + v0 + x] = tile[x * pitch + y];
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
	if ((w | uv | (uint64_t)latent * word | (uint64_t)v * word) % 16 == 0) {
		if (word == 4)
			turn_squares<uint32_t>(m);
		else
			turn_squares<uint16_t>(m);
	} else if (word == 4) {
		turn_values<uint32_t>(m, tile);
	} else {
		turn_values<uint16_t>(m, (uint16_t *)tile);
	}
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
