/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of marlin.cu: weights, scales and zero points in the order in which Marlin's
 * warps want them in registers.
 *
 * A tile is 16 rows by 64 columns (8-bit activations: 32 by 32), tiles row by row. Lane t of warp w
 * gets 8 codes: 4 rows of column t / 4, the same rows of a second column (for 8-bit activations: 4
 * more rows of the same), in an order which the conversion to numbers undoes for free. Without
 * perm, the experts of a MoE that lie one behind the other are one weight of E * K rows.
 * As vLLM's gptq_marlin_repack, awq_marlin_repack, marlin_permute_scales, marlin_zero_points.
 * Threads: any; pure.
 */
#include "kernels/marlin.h"

#include "kernels/codes.h"
#include "kernels/twins.h"

static const uint8_t order4[8] = { 0, 2, 4, 6, 1, 3, 5, 7 }, order8[4] = { 0, 2, 1, 3 };

/* Code (k, n) of the source, rows already in act-order; a row that is none counts as 0. */
static uint32_t code(const struct arena_marlin_repack_args *a, uint64_t k, uint64_t n)
{
	const uint32_t *q = DERIVE_IN(uint32_t, a->q), shape[2] = { a->n, a->bits };

	if (a->perm)
		k = (uint64_t)DERIVE_IN(int32_t, a->perm)[k];
	if (k >= a->k)
		return 0;
	return a->flags & MARLIN_AWQ ? codes_col(q, k, n, shape, true) : codes_row(q, k, n, shape);
}

/* The 8 codes of lane @t, warp @w in the tile at (@k, @n). */
static void fragment(const struct arena_marlin_repack_args *a, uint64_t k, uint64_t n,
		     const uint32_t tw[2], uint32_t v[8])
{
	static const uint8_t rows[4] = { 0, 1, 8, 9 };
	uint32_t t = tw[0], w = tw[1];

	for (uint32_t i = 0; i < 4; i++) {
		uint64_t row = k + 2 * (t % 4) + rows[i], row8 = k + 4 * (t % 4) + i;
		uint64_t col = n + 16 * w + t / 4, col8 = n + 16 * (w / 2) + 8 * (w % 2) + t / 4;

		if (a->flags & MARLIN_A8) {
			v[i] = code(a, row8, col8);
			v[4 + i] = code(a, row8 + 16, col8);
		} else {
			v[i] = code(a, row, col);
			v[4 + i] = code(a, row, col + 8);
		}
	}
}

static void pack(const struct arena_marlin_repack_args *a, const uint32_t v[8], uint32_t *word)
{
	static const uint8_t order4_a8[8] = { 0, 4, 1, 5, 2, 6, 3, 7 },
			     order8_a8[4] = { 0, 1, 2, 3 };
	const uint8_t *four = a->flags & MARLIN_A8 ? order4_a8 : order4;
	const uint8_t *eight = a->flags & MARLIN_A8 ? order8_a8 : order8;

	word[0] = 0;
	for (uint32_t i = 0; a->bits == 4 && i < 8; i++)
		word[0] |= v[four[i]] << 4 * i;
	for (uint32_t h = 0; a->bits == 8 && h < 2; h++) {
		word[h] = 0;
		for (uint32_t i = 0; i < 4; i++)
			word[h] |= v[4 * h + eight[i]] << 8 * i;
	}
}

void arena_marlin_repack_twin(const void *args)
{
	const struct arena_marlin_repack_args *a = args;
	uint32_t *out = DERIVE_OUT(uint32_t, a->out), v[8];
	uint32_t tile_k = a->flags & MARLIN_A8 ? 32 : 16, tile_n = 1024 / tile_k;

	for (uint64_t k = 0; k < a->k; k += tile_k)
		for (uint64_t n = 0; n < a->n; n += tile_n)
			for (uint32_t t = 0; t < 32; t++)
				for (uint32_t w = 0; w < 4; w++) {
					fragment(a, k, n, (uint32_t[]){ t, w }, v);
					pack(a, v, out);
					out += a->bits / 4;
				}
}

/*
 * Grouped, for 16-bit activations: out[64b + 8i + j] = s[64b + i + 8j]. One scale a channel, 8-bit
 * activations, and the bias: out[32b + 8i + j] = s[32b + 2i + c[j]].
 */
void arena_marlin_scales_twin(const void *args)
{
	static const uint8_t c[8] = { 0, 1, 8, 9, 16, 17, 24, 25 };
	const struct arena_marlin_scales_args *a = args;
	const uint16_t *s = DERIVE_IN(uint16_t, a->s);
	uint16_t *out = DERIVE_OUT(uint16_t, a->out);

	for (uint32_t g = 0; g < a->groups; g++, s += a->n, out += a->n)
		for (uint32_t n = 0; n < a->n; n++) {
			uint32_t block = n / (a->channel ? 32 : 64) * (a->channel ? 32 : 64);
			uint32_t i = (n - block) / 8, j = n % 8;

			out[n] = s[block + (a->channel ? 2 * i + c[j] : i + 8 * j)];
		}
}

/* Column of the code at place @i of word @w of a row. */
static uint32_t zero_column(uint32_t bits, uint32_t w, uint32_t i)
{
	if (bits == 4)
		return w / 8 * 64 + w % 8 + 8u * order4[i];
	return w / 16 * 64 + w % 16 / 2 + 8 * (4 * (w % 2) + order8[i]);
}

void arena_marlin_zeros_twin(const void *args)
{
	const struct arena_marlin_zeros_args *a = args;
	const uint32_t *z = DERIVE_IN(uint32_t, a->z), shape[2] = { a->n, a->bits };
	uint32_t *out = DERIVE_OUT(uint32_t, a->out), f = 32 / a->bits;

	for (uint32_t g = 0; g < a->groups; g++)
		for (uint32_t w = 0; w < a->n / f; w++, out++) {
			*out = 0;
			for (uint32_t i = 0; i < f; i++)
				*out |= codes_col(z, g, zero_column(a->bits, w, i), shape, a->awq)
					<< i * a->bits;
		}
}

static uint64_t common_multiple(uint64_t x, uint64_t y)
{
	uint64_t a = x, b = y;

	while (b != 0) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return x / a * y;
}

void marlin_pad(uint32_t *k, uint32_t *n, int32_t group_size)
{
	uint64_t group = group_size > 0 ? (uint64_t)group_size : 1;
	uint64_t n1 = DERIVE_UP(*n, 64), k1 = DERIVE_UP(*k, common_multiple(128, group));
	uint64_t n2 = DERIVE_UP(*n, 128), k2 = DERIVE_UP(*k, common_multiple(64, group));

	if ((*n % 64 == 0 && *k % 128 == 0) || (*n % 128 == 0 && *k % 64 == 0))
		return;
	if (n1 * k1 != n2 * k2 ? n2 * k2 < n1 * k1 : n2 + k2 < n1 + k1) {
		n1 = n2;
		k1 = k2;
	}
	*n = (uint32_t)n1;
	*k = (uint32_t)k1;
}
