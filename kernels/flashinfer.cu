/* SPDX-License-Identifier: Apache-2.0 */
/* Attention sinks in f32; see flashinfer.c. */
#include "kernels/derive.cuh"

DERIVE_KERNEL arena_sinks_f32(const uint16_t *in, float *out, uint32_t count, uint32_t type)
{
	FOR_EACH (h, count)
		out[h] = from_word(type, in[h]);
}
