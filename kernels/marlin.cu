/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marlin's orders; see marlin.c, the twins.
 *
 * Repack: a warp has a tile at a time, lane t its fragments of all 4 warps: 4 words at 4 bits, 8 at
 * 8 bits, which lie side by side and are stored 16 bytes at a time. In a load, the lanes have 8
 * neighbouring columns: a sector. It is right for any weight and quick for GPTQ's with rows as they
 * are; quicker ones for the others are in marlin_awq.cu and marlin_order.cu.
 */
#include "kernels/derive.cuh"

struct source {
	const uint32_t *q;
	const int32_t *perm; /* NULL: as they are */
	uint32_t k, n;
	bool awq;
};

/* How rows are found: side by side in a word, one a word, in another order (of either kind). */
enum path { PATH_GPTQ, PATH_AWQ, PATH_ORDER };

/* Code (k, col), or 0 if the order of the rows has an index that is none. */
template <int BITS>
static __device__ __forceinline__ uint32_t ordered(const struct source &s, uint32_t k, uint64_t col)
{
	if (k >= s.k)
		return 0;
	return s.awq ? code_col(s.q, k, col, s.n, BITS, true) : code_row(s.q, k, col, s.n, BITS);
}

/* Codes (k, col) and (k + 1, col), k even, the second in the high half. */
template <int BITS, enum path PATH>
static __device__ __forceinline__ uint32_t pair(const struct source &s, uint64_t k, uint64_t col)
{
	if (PATH == PATH_GPTQ) {
		uint32_t word = __ldg(s.q + k / (32 / BITS) * s.n + col);

		return code_of(word, k % (32 / BITS), BITS) |
		       code_of(word, k % (32 / BITS) + 1, BITS) << 16;
	}
	if (PATH == PATH_ORDER)
		return ordered<BITS>(s, __ldg(s.perm + k), col) |
		       ordered<BITS>(s, __ldg(s.perm + k + 1), col) << 16;
	return code_col(s.q, k, col, s.n, BITS, true) | code_col(s.q, k + 1, col, s.n, BITS, true)
								<< 16;
}

/*
 * The word or words of a fragment from its pairs: p[0] = v0 v1, p[1] = v2 v3, p[2] = v4 v5, p[3] =
 * v6 v7. 4 bits, from bit 0 on: v0 v2 v4 v6 v1 v3 v5 v7, for 8-bit activations v0 v4 v1 v5 v2
 * v6 v3 v7. 8 bits: v0 v2 v1 v3 and v4 v6 v5 v7, for 8-bit activations in order.
 */
template <int BITS, bool A8>
static __device__ __forceinline__ void place(uint32_t *word, const uint32_t p[4])
{
	if (BITS == 4 && !A8) {
		word[0] = p[0] | p[1] << 4 | p[2] << 8 | p[3] << 12;
	} else if (BITS == 4) {
		uint32_t low = p[0] | p[2] << 4, high = p[1] | p[3] << 4;

		word[0] =
			(low & 0xff) | (low >> 16) << 8 | (high & 0xff) << 16 | (high >> 16) << 24;
	} else {
		for (int h = 0; h < 2; h++) {
			uint32_t a = p[2 * h], b = p[2 * h + 1];

			word[h] = A8 ? (a & 0xff) | (a >> 16) << 8 | (b & 0xff) << 16 |
						  (b >> 16) << 24
				     : a | b << 8;
		}
	}
}

/* Lane @t's words of the tile at (@k, @col). */
template <int BITS, enum path PATH, bool A8>
static __device__ __forceinline__ void lane_words(const struct source &s, uint64_t k, uint64_t col,
						  uint32_t t, uint32_t *word)
{
#pragma unroll
	for (int w = 0; w < 4; w++) {
		uint32_t p[4];

		if (A8) {
			uint64_t row = k + 4 * (t % 4), c = col + 8 * w + t / 4;

			p[0] = pair<BITS, PATH>(s, row, c);
			p[1] = pair<BITS, PATH>(s, row + 2, c);
			p[2] = pair<BITS, PATH>(s, row + 16, c);
			p[3] = pair<BITS, PATH>(s, row + 18, c);
		} else {
			uint64_t row = k + 2 * (t % 4), c = col + 16 * w + t / 4;

			p[0] = pair<BITS, PATH>(s, row, c);
			p[1] = pair<BITS, PATH>(s, row + 8, c);
			p[2] = pair<BITS, PATH>(s, row, c + 8);
			p[3] = pair<BITS, PATH>(s, row + 8, c + 8);
		}
		place<BITS, A8>(word + w * (BITS / 4), p);
	}
}

template <int BITS, enum path PATH, bool A8>
static __device__ __forceinline__ void repack(const struct source &s, uint32_t *out, uint32_t k)
{
	constexpr uint32_t tile_k = A8 ? 32 : 16, tile_n = 1024 / tile_k, words = BITS;
	uint32_t across = s.n / tile_n;
	uint64_t lanes = (uint64_t)(k / tile_k) * across * 32;

	FOR_EACH (i, lanes) {
		uint32_t tile = i / 32; /* of a weight below 2^42 codes */
		uint32_t word[words];

		lane_words<BITS, PATH, A8>(s, tile / across * tile_k, tile % across * tile_n,
					   i % 32, word);
#pragma unroll
		for (uint32_t w = 0; w < words; w += 4)
			((uint4 *)out)[(i * words + w) / 4] =
				make_uint4(word[w], word[w + 1], word[w + 2], word[w + 3]);
	}
}

template <int BITS, bool A8>
static __device__ __forceinline__ void repack_by(const struct source &s, uint32_t *out, uint32_t k)
{
	if (s.perm)
		repack<BITS, PATH_ORDER, A8>(s, out, k);
	else if (s.awq)
		repack<BITS, PATH_AWQ, A8>(s, out, k);
	else
		repack<BITS, PATH_GPTQ, A8>(s, out, k);
}

DERIVE_KERNEL arena_marlin_repack(const uint32_t *q, const int32_t *perm, uint32_t *out, uint32_t k,
				  uint32_t n, uint32_t bits, uint32_t flags)
{
	struct source s = { q, perm, k, n, (flags & MARLIN_AWQ) != 0 };

	if (flags & MARLIN_A8) {
		if (bits == 4)
			repack_by<4, true>(s, out, k);
		else
			repack_by<8, true>(s, out, k);
	} else {
		if (bits == 4)
			repack_by<4, false>(s, out, k);
		else
			repack_by<8, false>(s, out, k);
	}
}

DERIVE_KERNEL arena_marlin_scales(const uint16_t *s, uint16_t *out, uint32_t groups, uint32_t n,
				  uint32_t channel)
{
	FOR_EACH (i, (uint64_t)groups * n) {
		uint32_t c = i % n, r = c % (channel ? 32 : 64), from;

		/* c = {0, 1, 8, 9, 16, 17, 24, 25} */
		if (channel)
			from = r / 8 * 2 + r % 2 + r % 8 / 2 * 8;
		else
			from = r / 8 + r % 8 * 8;
		out[i] = s[i - r + from];
	}
}

DERIVE_KERNEL arena_marlin_zeros(const uint32_t *z, uint32_t *out, uint32_t groups, uint32_t n,
				 uint32_t bits, uint32_t awq)
{
	uint32_t f = 32 / bits, per_row = n / f;

	FOR_EACH (i, (uint64_t)groups * per_row) {
		uint32_t w = i % per_row, word = 0;

		for (uint32_t j = 0; j < f; j++) {
			/* 4 bits: 0 2 4 6 1 3 5 7; 8 bits: 0 2 1 3 */
			uint32_t order = j % (f / 2) * 2 + j / (f / 2), col;

			if (bits == 4)
				col = w / 8 * 64 + w % 8 + 8 * order;
			else
				col = w / 16 * 64 + w % 16 / 2 + 32 * (w % 2) + 8 * order;
			word |= code_col(z, i / per_row, col, n, bits, awq) << (j * bits);
		}
		out[i] = word;
	}
}
