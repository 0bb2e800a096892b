/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of machete.cu: what vLLM derives for Machete (Hopper W4A16, W8A16) before the
 * prepack: the rows in the order of the groups (argsort.c), and zero points as numbers.
 *
 * The prepack itself is opaque: its order inside a block is that of CuTe's register layout. Its
 * result has the bytes of its source.
 * Threads: any; pure.
 */
#include "kernels/codes.h"
#include "kernels/number.h"
#include "kernels/twins.h"

/* Row @k; one that is none counts as 0. */
static uint32_t code(const struct arena_machete_permute_args *a, uint64_t k, uint64_t n)
{
	return k < a->k ? codes_row(DERIVE_IN(uint32_t, a->q), k, n,
				    (const uint32_t[]){ a->n, a->bits })
			: 0;
}

void arena_machete_permute_twin(const void *args)
{
	const struct arena_machete_permute_args *a = args;
	const int32_t *perm = DERIVE_IN(int32_t, a->perm);
	uint32_t *out = DERIVE_OUT(uint32_t, a->out), f = 32 / a->bits;

	for (uint64_t row = 0; row < a->k / f; row++)
		for (uint64_t n = 0; n < a->n; n++) {
			uint32_t word = 0;

			for (uint32_t i = 0; i < f; i++)
				word |= code(a, (uint64_t)perm[row * f + i], n) << i * a->bits;
			out[row * a->n + n] = word;
		}
}

/* zp' = -1 * s * z in the type of the scales: it depends on two tensors of the checkpoint. */
void arena_machete_zeros_twin(const void *args)
{
	const struct arena_machete_zeros_args *a = args;
	const uint16_t *s = DERIVE_IN(uint16_t, a->scales);
	const uint32_t *z = DERIVE_IN(uint32_t, a->z), shape[2] = { a->n, a->bits };
	uint16_t *out = DERIVE_OUT(uint16_t, a->out);

	for (uint64_t g = 0; g < a->groups; g++)
		for (uint64_t n = 0; n < a->n; n++) {
			float zero = (float)codes_col(z, g, n, shape, a->awq);

			out[g * a->n + n] =
				number_to(a->type, -number_from(a->type, s[g * a->n + n]) * zero);
		}
}
