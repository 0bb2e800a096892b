/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVFP4; see nvfp4.c, the twins. Of the swizzle, a thread has 16 columns of the rows m, m + 32,
 * m + 64 and m + 96: 16 bytes of each of 4 tiles, turned in registers. A warp has 64 columns of 32
 * rows: it loads 64 bytes a row and stores 128 a tile.
 */
#include "kernels/derive.cuh"

static __device__ __forceinline__ float factor(float stored, uint32_t flags)
{
	return flags & NVFP4_INVERSE ? stored : __fdiv_rn(1.0f, stored);
}

static __device__ __forceinline__ float factor13(const float *in13, uint64_t e, uint32_t flags)
{
	return fmaxf(factor(in13[2 * e], flags), factor(in13[2 * e + 1], flags));
}

DERIVE_KERNEL arena_nvfp4_scales(const float *w13, const float *w2, const float *in13,
				 const float *in2, float *a13, float *a2, float *a1_gscale,
				 float *a2_gscale, float *g1, float *g2, uint32_t experts,
				 uint32_t flags)
{
	FOR_EACH (e, experts) {
		float x13 = factor13(in13, e, flags), x2 = factor(in2[e], flags);

		for (uint32_t i = 0; flags & NVFP4_GLOBAL && i < experts; i++) {
			x13 = fmaxf(x13, factor13(in13, i, flags));
			x2 = fmaxf(x2, factor(in2[i], flags));
		}
		a13[e] = x13;
		a2[e] = x2;
		a1_gscale[e] = __fdiv_rn(1.0f, x13);
		a2_gscale[e] = __fdiv_rn(1.0f, x2);
		g1[e] = __fmul_rn(factor(w13[2 * e], flags), x13);
		g2[e] = __fmul_rn(factor(w2[e], flags), x2);
	}
}

struct sf_matrix {
	const uint8_t *sf, *end; /* of all matrices */
	uint32_t rows, cols;
};

/* Columns @c to @c + 3 of the row at @row, byte by byte. */
static __device__ __forceinline__ uint32_t sf_bytes(const uint8_t *row, uint32_t c, uint32_t cols)
{
	uint32_t value = 0;

	for (uint32_t i = 0; i < 4 && c + i < cols; i++)
		value |= (uint32_t)row[c + i] << (8 * i);
	return value;
}

/*
 * The 4 words from column @c on, zero where there are no columns. A row starts anywhere: what is
 * read are words in their places, shifted; none that is partly outside of the matrices.
 */
static __device__ __forceinline__ void sf_shifted(const struct sf_matrix &m, const uint8_t *row,
						  uint32_t c, uint32_t word[4])
{
	const uint8_t *at = row + c;
	uint32_t shift = (uint64_t)at % 4, left = min(16, m.cols - c), in[5];
	const uint32_t *from = (const uint32_t *)(at - shift);

	if ((const uint8_t *)from < m.sf || (const uint8_t *)(from + 5) > m.end) {
		for (uint32_t i = 0; i < 4; i++)
			word[i] = sf_bytes(row, c + 4 * i, m.cols);
		return;
	}
#pragma unroll
	for (uint32_t i = 0; i < 5; i++)
		in[i] = 4 * i < shift + left ? __ldg(from + i) : 0;
#pragma unroll
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t have = min(4, left - min(left, 4 * i));

		word[i] = __funnelshift_r(in[i], in[i + 1], 8 * shift);
		if (have < 4)
			word[i] &= (1u << 8 * have) - 1;
	}
}

/* The 4 words of row @r from column @c on. WIDE: rows and their starts are multiples of 16. */
template <bool WIDE>
static __device__ __forceinline__ void sf_load(const struct sf_matrix &m, uint64_t r, uint32_t c,
					       uint32_t word[4], uint64_t first)
{
	const uint8_t *row = m.sf + (first + r) * m.cols;

	if (r >= m.rows || c >= m.cols) {
		word[0] = word[1] = word[2] = word[3] = 0;
	} else if (WIDE) {
		uint4 x = __ldcs((const uint4 *)(row + c));

		word[0] = x.x;
		word[1] = x.y;
		word[2] = x.z;
		word[3] = x.w;
	} else {
		sf_shifted(m, row, c, word);
	}
}

/* A block has 128 rows by 128 columns at a time: a warp 64 columns of every fourth 8 rows. */
template <bool WIDE>
static __device__ __forceinline__ void sf_swizzle(const struct sf_matrix &m, uint8_t *out,
						  uint32_t batch)
{
	uint32_t words = (m.cols + 3) / 4, across = (words + 31) / 32, down = (m.rows + 127) / 128;
	uint32_t warp = threadIdx.x / 32, y = warp / 2 * 8 + threadIdx.x % 32 / 4;
	uint32_t x = warp % 2 * 16 + threadIdx.x % 4 * 4; /* words */

	FOR_ROWS (i, (uint64_t)batch * down * across) {
		uint64_t group = i / across;
		uint32_t w = (uint32_t)(i - group * across) * 32 + x, in[4][4];
		uint64_t matrix = group / down, r = (group - matrix * down) * 128 + y;
		uint4 *to = (uint4 *)out + (group * words + w) * 32 + y;

#pragma unroll
		for (int q = 0; q < 4; q++)
			sf_load<WIDE>(m, r + 32 * q, 4 * w, in[q], matrix * m.rows);
#pragma unroll
		for (int k = 0; k < 4; k++)
			if (w + k < words)
				__stcs(to + k * 32,
				       make_uint4(in[0][k], in[1][k], in[2][k], in[3][k]));
	}
}

DERIVE_KERNEL arena_nvfp4_swizzle(const uint8_t *sf, uint8_t *out, uint32_t batch, uint32_t rows,
				  uint32_t cols)
{
	const struct sf_matrix m = { sf, sf + (uint64_t)batch * rows * cols, rows, cols };

	if (((uint64_t)sf | cols) % 16 == 0)
		sf_swizzle<true>(m, out, batch);
	else
		sf_swizzle<false>(m, out, batch);
}

/* A thread has a block of 16: two loads, one store of 8 bytes. */
DERIVE_KERNEL arena_nvfp4_quant(const uint4 *x, const float *gscale, uint2 *codes, uint8_t *sf,
				uint32_t rows, uint32_t cols, uint32_t type)
{
	float g = *gscale;

	FOR_EACH (i, (uint64_t)rows * cols / 16) {
		union {
			uint4 wide[2];
			uint16_t x[16];
		} in = { { x[2 * i], x[2 * i + 1] } };
		float value[16], amax = 0, d = 0;
		uint32_t word[2] = { 0, 0 };
		uint8_t scale;

#pragma unroll
		for (int j = 0; j < 16; j++) {
			value[j] = from_word(type, in.x[j]);
			amax = fmaxf(amax, fabsf(value[j]));
		}
		scale = to_e4m3(__fmul_rn(g, __fdiv_rn(amax, 6.0f)));
		if (scale != 0)
			d = __fdiv_rn(g, from_e4m3(scale));
#pragma unroll
		for (int j = 0; j < 16; j++)
			word[j / 8] |= (uint32_t)to_e2m1(__fmul_rn(value[j], d)) << (j % 8 * 4);
		codes[i] = make_uint2(word[0], word[1]);
		sf[i] = scale;
	}
}
