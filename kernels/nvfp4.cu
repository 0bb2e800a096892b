/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVFP4; see nvfp4.c, the twins. The swizzle goes through shared memory, 128 rows by 64 columns
 * at a time: loads run along the rows, and what is stored is 8 KiB without a gap.
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

#define SF_WORDS 16	   /* 4 columns each, of a piece */
#define SF_PITCH (128 + 4) /* words of a tile, and a shift so that neighbours differ in bank */

struct sf_piece {
	const uint8_t *sf;   /* of its matrix */
	uint64_t m0;	     /* first row */
	uint32_t w0, width;  /* first word of a row, and how many */
	uint32_t rows, cols; /* of the matrix */
};

/* Columns 4 * @word to 4 * @word + 3 of row @m, zero where there are none. */
template <bool ALIGNED>
static __device__ __forceinline__ uint32_t sf_word(const struct sf_piece &p, uint64_t m,
						   uint32_t word)
{
	const uint8_t *at = p.sf + m * p.cols + 4 * word;
	uint32_t value = 0;

	if (m >= p.rows)
		return 0;
	if (ALIGNED) {
		value = *(const uint32_t *)at;
	} else {
#pragma unroll
		for (uint32_t c = 0; c < 4; c++)
			if (4 * word + c < p.cols)
				value |= (uint32_t)at[c] << (8 * c);
	}
	return value;
}

/*
 * A warp loads 8 words of each of the rows m, m + 32, m + 64 and m + 96: whole sectors, and 32
 * different banks to put them in.
 */
template <bool ALIGNED>
static __device__ __forceinline__ void sf_load(const struct sf_piece &p, uint32_t *piece)
{
#pragma unroll
	for (uint32_t j = threadIdx.x; j < 128 * SF_WORDS; j += DERIVE_THREADS) {
		uint32_t quarter = j / 8 % 4, m = j / 32 % 32, w = j / 1024 * 8 + j % 8;

		if (w < p.width)
			piece[w * SF_PITCH + m * 4 + quarter] =
				sf_word<ALIGNED>(p, p.m0 + quarter * 32 + m, p.w0 + w);
	}
}

DERIVE_KERNEL arena_nvfp4_swizzle(const uint8_t *sf, uint8_t *out, uint32_t batch, uint32_t rows,
				  uint32_t cols)
{
	__shared__ __align__(16) uint32_t piece[SF_WORDS * SF_PITCH];
	uint32_t words = (cols + 3) / 4, across = (words + SF_WORDS - 1) / SF_WORDS;
	uint32_t down = (rows + 127) / 128;
	bool aligned = ((uint64_t)sf | cols) % 4 == 0;

	FOR_ROWS (i, (uint64_t)batch * down * across) {
		uint64_t matrix = i / across / down, m0 = i / across % down * 128;
		uint32_t w0 = i % across * SF_WORDS, width = min(SF_WORDS, words - w0);
		struct sf_piece p = { sf + matrix * rows * cols, m0, w0, width, rows, cols };
		uint4 *to = (uint4 *)(out + ((matrix * down + m0 / 128) * words + w0) * 512);

		if (aligned)
			sf_load<true>(p, piece);
		else
			sf_load<false>(p, piece);
		__syncthreads();
		for (uint32_t j = threadIdx.x; j < 32 * width; j += DERIVE_THREADS)
			to[j] = *(uint4 *)(piece + j / 32 * SF_PITCH + j % 32 * 4);
		__syncthreads();
	}
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
