/* SPDX-License-Identifier: Apache-2.0 */
/* Machete: a thread a word or a number; see machete.c. */
#include "kernels/derive.cuh"

DERIVE_KERNEL arena_machete_permute(const uint32_t *q, const int32_t *perm, uint32_t *out,
				    uint32_t k, uint32_t n, uint32_t bits)
{
	uint32_t f = 32 / bits;

	FOR_EACH (i, (uint64_t)(k / f) * n) {
		const int32_t *rows = perm + i / n * f;
		uint32_t word = 0;

		for (uint32_t j = 0; j < f; j++)
			if ((uint32_t)rows[j] < k) /* else it is none, and counts as 0 */
				word |= code_row(q, rows[j], i % n, n, bits) << (j * bits);
		out[i] = word;
	}
}

DERIVE_KERNEL arena_machete_zeros(const uint16_t *scales, const uint32_t *z, uint16_t *out,
				  uint32_t groups, uint32_t n, uint32_t bits, uint32_t type,
				  uint32_t awq)
{
	FOR_EACH (i, (uint64_t)groups * n) {
		float zero = (float)code_col(z, i / n, i % n, n, bits, awq);

		out[i] = to_word(type, __fmul_rn(-from_word(type, scales[i]), zero));
	}
}
