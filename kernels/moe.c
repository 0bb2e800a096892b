/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of moe.cu: which rows go to which expert, as vLLM's moe_align_block_size and
 * moe_permute say. A flat index is token * topk + slot.
 *
 * The order inside an expert is ours: by flat index. Engines' kernels leave it open for large
 * batches (atomics), so whoever compares theirs compares sets.
 * Threads: any; pure.
 */
#include <string.h>

#include "kernels/number.h"
#include "kernels/twins.h"

void arena_moe_align_twin(const void *args)
{
	const struct arena_moe_align_args *a = args;
	const int32_t *ids = DERIVE_IN(int32_t, a->ids), *map = DERIVE_IN(int32_t, a->map);
	int32_t *sorted = DERIVE_OUT(int32_t, a->sorted), *blocks = DERIVE_OUT(int32_t, a->blocks);
	uint32_t at = 0, block = 0;

	/* What is not filled with an index says so by one that is none. */
	for (uint32_t i = 0; i < a->capacity; i++)
		sorted[i] = (int32_t)a->count;
	for (uint32_t e = 0; e < a->experts; e++) {
		for (uint32_t i = 0; i < a->count; i++)
			if (ids[i] == (int32_t)e)
				sorted[at++] = (int32_t)i;
		at = (uint32_t)DERIVE_UP(at, a->block);
		for (; block < at / a->block; block++)
			blocks[block] = map != NULL ? map[e] : (int32_t)e;
	}
	for (; block < DERIVE_CEIL(a->capacity, a->block); block++)
		blocks[block] = a->tail;
	*DERIVE_OUT(int32_t, a->total) = (int32_t)at;
}

/* Experts of other ranks sort behind the local ones, ids that are none in front of those. */
static uint32_t permute_key(const struct arena_moe_permute_index_args *a, uint32_t i)
{
	const int32_t *map = DERIVE_IN(int32_t, a->map);
	int32_t id = DERIVE_IN(int32_t, a->ids)[i];

	if (id < 0 || (uint32_t)id >= a->experts)
		return a->experts;
	if (map == NULL)
		return (uint32_t)id;
	return map[id] < 0 ? (uint32_t)id + a->experts : (uint32_t)map[id];
}

void arena_moe_permute_index_twin(const void *args)
{
	const struct arena_moe_permute_index_args *a = args;
	int32_t *sorted = DERIVE_OUT(int32_t, a->sorted),
		*inverse = DERIVE_OUT(int32_t, a->inverse);
	int64_t *offset = DERIVE_OUT(int64_t, a->offsets);
	int32_t at = 0;

	for (uint32_t key = 0; key < 2 * a->experts; key++) {
		if (key <= a->local)
			offset[key] = at;
		for (uint32_t i = 0; i < a->count; i++)
			if (permute_key(a, i) == key) {
				inverse[i] = at;
				sorted[at++] = (int32_t)i;
			}
	}
}

void arena_moe_permute_rows_twin(const void *args)
{
	const struct arena_moe_permute_rows_args *a = args;
	const int32_t *sorted = DERIVE_IN(int32_t, a->sorted);
	const char *x = DERIVE_IN(char, a->x);
	char *out = DERIVE_OUT(char, a->out);
	int64_t end = DERIVE_IN(int64_t, a->offsets)[a->local];

	for (int64_t d = 0; d < end; d++)
		memcpy(out + (uint64_t)d * a->row_bytes,
		       x + (uint64_t)((uint32_t)sorted[d] / a->topk) * a->row_bytes, a->row_bytes);
}

void arena_moe_unpermute_twin(const void *args)
{
	const struct arena_moe_unpermute_args *a = args;
	const uint16_t *rows = DERIVE_IN(uint16_t, a->rows);
	const int32_t *inverse = DERIVE_IN(int32_t, a->inverse);
	const float *weight = DERIVE_IN(float, a->weights);
	uint16_t *out = DERIVE_OUT(uint16_t, a->out);
	int64_t end = DERIVE_IN(int64_t, a->offsets)[a->local];

	for (uint64_t t = 0; t < a->tokens; t++)
		for (uint64_t h = 0; h < a->hidden; h++) {
			float sum = 0;

			for (uint64_t i = t * a->topk; i < (t + 1) * a->topk; i++) {
				float part;

				if (inverse[i] >= end)
					continue;
				/* Two roundings, on every machine. */
				part = number_from(a->type,
						   rows[(uint64_t)inverse[i] * a->hidden + h]);
				part *= weight[i];
				sum += part;
			}
			*out++ = number_to(a->type, sum);
		}
}
