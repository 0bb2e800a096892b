/* SPDX-License-Identifier: Apache-2.0 */
/* CUTLASS MoE: a thread an expert; see cutlass_moe.c, the twins. */
#include "kernels/derive.cuh"

DERIVE_KERNEL arena_cutlass_strides(int64_t *ab1, int64_t *ab2, int64_t *c1, uint32_t experts,
				    uint32_t hidden, uint32_t inter)
{
	FOR_EACH (e, experts) {
		ab1[e] = hidden;
		ab2[e] = inter;
		c1[e] = 2 * (int64_t)inter;
	}
}

DERIVE_KERNEL arena_cutlass_s_strides(longlong2 *s1, longlong2 *s2, uint32_t experts,
				      uint32_t hidden, uint32_t inter)
{
	FOR_EACH (e, experts) {
		s1[e] = make_longlong2(2 * (int64_t)inter, 0);
		s2[e] = make_longlong2(hidden, 0);
	}
}

static __device__ __forceinline__ void problem(int32_t *to, int32_t m, int32_t n, int32_t k)
{
	to[0] = m;
	to[1] = n;
	to[2] = k;
}

DERIVE_KERNEL arena_cutlass_problems(const int64_t *offsets, int32_t *sizes1, int32_t *sizes2,
				     uint32_t experts, uint32_t hidden, uint32_t inter,
				     uint32_t swap)
{
	int32_t h = hidden, i = inter;

	FOR_EACH (e, experts) {
		int32_t m = (int32_t)(offsets[e + 1] - offsets[e]);

		if (swap) {
			problem(sizes1 + 3 * e, 2 * i, m, h);
			problem(sizes2 + 3 * e, h, m, i);
		} else {
			problem(sizes1 + 3 * e, m, 2 * i, h);
			problem(sizes2 + 3 * e, m, h, i);
		}
	}
}

DERIVE_KERNEL arena_cutlass_starts(const int64_t *offsets, uint64_t *table, uint64_t a, uint64_t b,
				   uint64_t out, uint64_t sa, uint64_t sb, uint32_t experts,
				   uint32_t n, uint32_t k, uint32_t flags)
{
	FOR_EACH (e, experts) {
		uint64_t row = offsets[e];

		table[e] = a + row * k;
		table[experts + e] = b + e * k * n;
		table[2 * (uint64_t)experts + e] = out + row * n * sizeof(__half);
		table[3 * (uint64_t)experts + e] =
			sa + (flags & CUTLASS_PER_TOKEN ? row : 0) * sizeof(float);
		table[4 * (uint64_t)experts + e] =
			sb + (flags & CUTLASS_PER_CHANNEL ? n * e : e) * sizeof(float);
	}
}
