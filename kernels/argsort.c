/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twin of argsort.cu: a stable sort of small keys. Marlin's g_idx_sort_indices and
 * Machete's act_perm in vLLM: perm = argsort(g_idx), g_idx[perm]. torch.argsort may order equal
 * keys in any way; any order is right if the same one permutes activations, so ours is the stable
 * one. Threads: any; pure.
 */
#include "kernels/twins.h"

void arena_argsort_twin(const void *args)
{
	const struct arena_argsort_args *a = args;
	const int32_t *key = DERIVE_IN(int32_t, a->keys);
	int32_t *order = DERIVE_OUT(int32_t, a->order), *sorted = DERIVE_OUT(int32_t, a->sorted);

	/* Insertion, from behind: equal keys stay as they came. Nearly sorted is the usual case. */
	for (uint32_t i = 0; i < a->count; i++) {
		uint32_t at = i;

		for (; at > 0 && key[order[at - 1]] > key[i]; at--)
			order[at] = order[at - 1];
		order[at] = (int32_t)i;
	}
	for (uint32_t i = 0; sorted != NULL && i < a->count; i++)
		sorted[i] = key[order[i]];
}
