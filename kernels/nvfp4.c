/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of nvfp4.cu: the scales of NVFP4 MoE weights, and activations in FP4.
 *
 * The trap. Engines reuse the storage of ws13 (the weights' global scale) for g1_alphas and
 * multiply in place: g1 *= a13. A second pass over what the first one left gives ws13 * a13 *
 * a13. Here the alphas come from the checkpoint's tensors alone: a pass can be repeated.
 *
 * As vLLM has them for compressed-tensors and ModelOpt checkpoints, and its scaled_fp4_quant; the
 * 128 x 4 order is that of cuBLAS's and CUTLASS's block-scaled GEMMs.
 * Threads: any; pure.
 */
#include "kernels/number.h"
#include "kernels/twins.h"

/* A global scale as a factor: compressed-tensors stores the large form, 448 * 6 / amax. */
static float factor(const struct arena_nvfp4_scales_args *a, float stored)
{
	return a->flags & NVFP4_INVERSE ? stored : 1.0f / stored;
}

static float larger(float x, float y)
{
	return x > y ? x : y;
}

/* Input scales of expert @e: the larger of w1's and w3's, and w2's. */
static void input_scales(const struct arena_nvfp4_scales_args *a, uint32_t e, float *a13, float *a2)
{
	const float *in13 = DERIVE_IN(float, a->in13);

	*a13 = larger(factor(a, in13[2 * e]), factor(a, in13[2 * e + 1]));
	*a2 = factor(a, DERIVE_IN(float, a->in2)[e]);
}

void arena_nvfp4_scales_twin(const void *args)
{
	const struct arena_nvfp4_scales_args *a = args;
	float a13, a2, all13 = 0, all2 = 0;

	for (uint32_t e = 0; e < a->experts; e++) {
		input_scales(a, e, &a13, &a2);
		all13 = larger(all13, a13);
		all2 = larger(all2, a2);
	}
	for (uint32_t e = 0; e < a->experts; e++) {
		input_scales(a, e, &a13, &a2);
		if (a->flags & NVFP4_GLOBAL) {
			a13 = all13;
			a2 = all2;
		}
		DERIVE_OUT(float, a->a13)[e] = a13;
		DERIVE_OUT(float, a->a2)[e] = a2;
		DERIVE_OUT(float, a->a1_gscale)[e] = 1.0f / a13;
		DERIVE_OUT(float, a->a2_gscale)[e] = 1.0f / a2;
		/* w1 and w3 share a scale; the first column is it. */
		DERIVE_OUT(float, a->g1)[e] = factor(a, DERIVE_IN(float, a->w13)[2 * e]) * a13;
		DERIVE_OUT(float, a->g2)[e] = factor(a, DERIVE_IN(float, a->w2)[e]) * a2;
	}
}

/*
 * byte(m, c) = ((m / 128) * Kt + c / 4) * 512 + (m % 32) * 16 + (m / 32 % 4) * 4 + c % 4, with Kt =
 * ceil(C / 4); rows padded to 128 and columns to 4, with zero: padding is part of the value.
 */
void arena_nvfp4_swizzle_twin(const void *args)
{
	const struct arena_nvfp4_swizzle_args *a = args;
	const uint8_t *sf = DERIVE_IN(uint8_t, a->sf);
	uint8_t *out = DERIVE_OUT(uint8_t, a->out);
	uint64_t tiles = DERIVE_CEIL(a->cols, 4), bytes = DERIVE_UP(a->rows, 128) * tiles * 4;

	memset(out, 0, a->batch * bytes);
	for (uint32_t b = 0; b < a->batch; b++, out += bytes)
		for (uint64_t m = 0; m < a->rows; m++)
			for (uint64_t c = 0; c < a->cols; c++)
				out[(m / 128 * tiles + c / 4) * 512 + m % 32 * 16 + m / 32 % 4 * 4 +
				    c % 4] = *sf++;
}

/*
 * Of 16 neighbours: sf = e4m3(g * (amax / 6)), each code e2m1(x * (g / sf)), 0 if sf is 0, the even
 * element in the low nibble. Every step is rounded once, to f32. Engines' kernels multiply by
 * rcp.approx instead of dividing, which is off by at most 3 units in the last place of f32: a
 * scale or a code differs by one step at most, and only where the exact value lies within that
 * distance of the middle between two steps.
 */
static void quant_block(const struct arena_nvfp4_quant_args *a, uint64_t block)
{
	const uint16_t *x = DERIVE_IN(uint16_t, a->x) + 16 * block;
	uint8_t *codes = DERIVE_OUT(uint8_t, a->codes) + 8 * block, sf;
	float g = *DERIVE_IN(float, a->gscale), amax = 0, d;

	for (int i = 0; i < 16; i++) {
		float size = number_from(a->type, x[i] & 0x7fff);

		amax = larger(size, amax);
	}
	amax /= 6.0f;
	sf = number_to_e4m3(g * amax);
	d = sf == 0 ? 0 : g / number_from_e4m3(sf);
	DERIVE_OUT(uint8_t, a->sf)[block] = sf;
	for (int i = 0; i < 8; i++)
		codes[i] = (uint8_t)(number_to_e2m1(number_from(a->type, x[2 * i]) * d) |
				     number_to_e2m1(number_from(a->type, x[2 * i + 1]) * d) << 4);
}

void arena_nvfp4_quant_twin(const void *args)
{
	const struct arena_nvfp4_quant_args *a = args;

	for (uint64_t block = 0; block < (uint64_t)a->rows * a->cols / 16; block++)
		quant_block(a, block);
}
