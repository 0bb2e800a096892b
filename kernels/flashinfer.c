/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twin of flashinfer.cu: attention sinks, a number a head, which the backend wants in f32.
 *
 * Engines convert them in place once: the second pass sees f32, does nothing, and the kernel goes
 * on with the old values. As a derivation they start from the parameter each time.
 * Threads: any; pure.
 */
#include "kernels/number.h"
#include "kernels/twins.h"

void arena_sinks_f32_twin(const void *args)
{
	const struct arena_sinks_f32_args *a = args;
	const uint16_t *in = DERIVE_IN(uint16_t, a->in);
	float *out = DERIVE_OUT(float, a->out);

	for (uint32_t h = 0; h < a->count; h++)
		out[h] = number_from(a->type, in[h]);
}
