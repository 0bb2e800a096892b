/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena_argsort: each thread counts what comes before its key. That is quadratic, and fast enough
 * for the rows of a weight (28,672 keys: 0.8e9 comparisons), has no order of its own to get
 * wrong, and needs no memory.
 */
#include "kernels/derive.cuh"

DERIVE_KERNEL arena_argsort(const int32_t *keys, int32_t *sorted, int32_t *order, uint32_t count)
{
	FOR_EACH (i, count) {
		int32_t key = keys[i];
		uint32_t place = 0;

#pragma unroll 8
		for (uint32_t j = 0; j < count; j++) {
			int32_t other = __ldg(keys + j); /* all threads the same: broadcast */

			place += other < key || (other == key && j < i);
		}
		order[place] = (int32_t)i;
		if (sorted)
			sorted[place] = key;
	}
}
