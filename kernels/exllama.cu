/* SPDX-License-Identifier: Apache-2.0 */
/* The exllama order: even codes to the low half, odd ones to the high half; see exllama.c. */
#include "kernels/derive.cuh"

/* The four nibbles at bits 0, 8, 16 and 24 of @x, side by side. */
static __device__ __forceinline__ uint32_t every_other(uint32_t x)
{
	x &= 0x0f0f0f0f;
	x = (x | x >> 4) & 0x00ff00ff;
	return (x | x >> 8) & 0xffff;
}

static __device__ __forceinline__ uint32_t shuffled(uint32_t x)
{
	return every_other(x) | every_other(x >> 4) << 16;
}

DERIVE_KERNEL arena_exllama_shuffle(const uint32_t *q, uint32_t *out, uint64_t words)
{
	uint64_t wide = ((uint64_t)q | (uint64_t)out) % 16 ? 0 : words / 4;

	FOR_EACH (i, wide) {
		uint4 x = ((const uint4 *)q)[i];

		((uint4 *)out)[i] =
			make_uint4(shuffled(x.x), shuffled(x.y), shuffled(x.z), shuffled(x.w));
	}
	FOR_EACH (i, words - 4 * wide)
		out[4 * wide + i] = shuffled(q[4 * wide + i]);
}
