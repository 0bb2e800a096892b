/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of cutlass_moe.cu: what vLLM's grouped GEMMs of CUTLASS read besides weights.
 * H hidden, I intermediate; the first GEMM gives 2I columns from H, the second H from I.
 *
 * The strides depend on the configuration only, but each pass makes them anew, and a captured graph
 * has their addresses. W4A8 uses the same three for a and c, and s_strides besides; its b_strides
 * are layout structs of CUTLASS, and its reordered weights its own: opaque here.
 * Threads: any; pure.
 */
#include "kernels/twins.h"

void arena_cutlass_strides_twin(const void *args)
{
	const struct arena_cutlass_strides_args *a = args;
	int64_t *ab1 = DERIVE_OUT(int64_t, a->ab1), *ab2 = DERIVE_OUT(int64_t, a->ab2);
	int64_t *c1 = DERIVE_OUT(int64_t, a->c1);

	for (uint32_t e = 0; e < a->experts; e++) {
		ab1[e] = a->hidden;
		ab2[e] = a->inter;
		c1[e] = 2 * (int64_t)a->inter;
	}
}

void arena_cutlass_s_strides_twin(const void *args)
{
	const struct arena_cutlass_s_strides_args *a = args;
	int64_t *s1 = DERIVE_OUT(int64_t, a->s1), *s2 = DERIVE_OUT(int64_t, a->s2);

	for (uint32_t e = 0; e < a->experts; e++) {
		s1[2 * e] = 2 * (int64_t)a->inter;
		s2[2 * e] = a->hidden;
		s1[2 * e + 1] = s2[2 * e + 1] = 0;
	}
}

/* (m, 2I, H) and (m, H, I); swapped, as small batches are run, (2I, m, H) and (H, m, I). */
void arena_cutlass_problems_twin(const void *args)
{
	const struct arena_cutlass_problems_args *a = args;
	const int64_t *offset = DERIVE_IN(int64_t, a->offsets);
	int32_t *size1 = DERIVE_OUT(int32_t, a->sizes1), *size2 = DERIVE_OUT(int32_t, a->sizes2);
	int m_at = a->swap ? 1 : 0, n_at = 1 - m_at;

	for (uint32_t e = 0; e < a->experts; e++, size1 += 3, size2 += 3) {
		size1[m_at] = size2[m_at] = (int32_t)(offset[e + 1] - offset[e]);
		size1[n_at] = (int32_t)(2 * a->inter);
		size1[2] = size2[n_at] = (int32_t)a->hidden;
		size2[2] = (int32_t)a->inter;
	}
}

/*
 * get_group_gemm_starts: a and b are fp8, out 2-byte numbers, scales f32. The five arrays lie one
 * after the other.
 */
void arena_cutlass_starts_twin(const void *args)
{
	const struct arena_cutlass_starts_args *a = args;
	const int64_t *offset = DERIVE_IN(int64_t, a->offsets);
	uint64_t *table = DERIVE_OUT(uint64_t, a->table);
	uint64_t n = a->n, k = a->k, experts = a->experts;

	for (uint64_t e = 0; e < experts; e++) {
		uint64_t row = (uint64_t)offset[e];
		uint64_t sa = a->flags & CUTLASS_PER_TOKEN ? row : 0;
		uint64_t sb = a->flags & CUTLASS_PER_CHANNEL ? n * e : e;

		table[0 * experts + e] = a->a + row * k;
		table[1 * experts + e] = a->b + e * k * n;
		table[2 * experts + e] = a->out + row * n * 2;
		table[3 * experts + e] = a->sa + sa * 4;
		table[4 * experts + e] = a->sb + sb * 4;
	}
}
