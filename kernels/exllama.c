/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twin of exllama.cu: RDNA3's WNA16 MoE and GPTQ's exllama path keep 4-bit weights
 * shuffled, as exllamav2 does, in their words: codes 0, 2, 4, 6 in the low half, 1, 3, 5, 7 in the
 * high half.
 *
 * In place (out == q) it is a trap: a second pass shuffles what is shuffled already. The zero
 * points that RDNA3 makes up are a memset: every nibble 7, the kernel adds 1. Threads: any; pure.
 */
#include "kernels/twins.h"

void arena_exllama_shuffle_twin(const void *args)
{
	const struct arena_exllama_shuffle_args *a = args;
	const uint32_t *q = DERIVE_IN(uint32_t, a->q);
	uint32_t *out = DERIVE_OUT(uint32_t, a->out);

	for (uint64_t w = 0; w < a->words; w++) {
		uint32_t from = q[w], to = 0;

		for (int i = 0; i < 8; i++)
			to |= (from >> 4 * i & 15) << (4 * (i / 2) + 16 * (i % 2));
		out[w] = to;
	}
}
