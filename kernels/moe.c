/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of moe.cu: which rows go to which expert, as vLLM's moe_align_block_size and
 * moe_permute say. A flat index is token * topk + slot.
 *
 * The order inside an expert is ours: by flat index. Engines' kernels leave it open for large
 * batches (atomics), so whoever compares theirs compares sets. No index is trusted, nor offset, nor
 * that the capacity is enough: nothing outside of a range is read or written.
 * Threads: any; pure.
 */
#include <string.h>

#include "kernels/number.h"
#include "kernels/twins.h"

/* @return the place behind the last index of expert @e. */
static uint32_t align_expert(const struct arena_moe_align_args *a, uint32_t e, uint32_t at)
{
	const int32_t *ids = DERIVE_IN(int32_t, a->ids);

	for (uint32_t i = 0; i < a->count; i++)
		if (ids[i] == (int32_t)e) {
			if (at < a->capacity)
				DERIVE_OUT(int32_t, a->sorted)[at] = (int32_t)i;
			at++;
		}
	return (uint32_t)DERIVE_UP(at, a->block);
}

void arena_moe_align_twin(const void *args)
{
	const struct arena_moe_align_args *a = args;
	const int32_t *map = DERIVE_IN(int32_t, a->map);
	int32_t *sorted = DERIVE_OUT(int32_t, a->sorted), *blocks = DERIVE_OUT(int32_t, a->blocks);
	uint64_t block = 0, places = DERIVE_CEIL(a->capacity, a->block);
	uint32_t at = 0;

	if (a->block == 0 || a->experts > MOE_EXPERTS_MAX)
		return;
	/* What is not filled with an index says so by one that is none. */
	for (uint32_t i = 0; i < a->capacity; i++)
		sorted[i] = (int32_t)a->count;
	for (uint32_t e = 0; e < a->experts; e++) {
		at = align_expert(a, e, at);
		for (; block < at / a->block && block < places; block++)
			blocks[block] = map != NULL ? map[e] : (int32_t)e;
	}
	for (; block < places; block++)
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

	if (a->experts == 0 || a->experts > MOE_EXPERTS_MAX || a->local > a->experts)
		return;
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

/* How many rows are of local experts, of @count in all. */
static uint64_t local_rows(uint64_t offsets, uint32_t local, uint64_t count)
{
	int64_t rows = DERIVE_IN(int64_t, offsets)[local];

	return rows < 0 ? 0 : (uint64_t)rows < count ? (uint64_t)rows : count;
}

/* An index that is none gives a row of zeros. */
void arena_moe_permute_rows_twin(const void *args)
{
	const struct arena_moe_permute_rows_args *a = args;
	const uint32_t *sorted = DERIVE_IN(uint32_t, a->sorted);
	const char *x = DERIVE_IN(char, a->x);
	char *out = DERIVE_OUT(char, a->out);
	uint64_t end = local_rows(a->offsets, a->local, a->count);

	for (uint64_t d = 0; d < end && a->topk != 0; d++, out += a->row_bytes)
		if (sorted[d] < a->count)
			memcpy(out, x + (uint64_t)(sorted[d] / a->topk) * a->row_bytes,
			       a->row_bytes);
		else
			memset(out, 0, a->row_bytes);
}

void arena_moe_unpermute_twin(const void *args)
{
	const struct arena_moe_unpermute_args *a = args;
	const uint16_t *rows = DERIVE_IN(uint16_t, a->rows);
	const uint32_t *inverse = DERIVE_IN(uint32_t, a->inverse);
	const float *weight = DERIVE_IN(float, a->weights);
	uint16_t *out = DERIVE_OUT(uint16_t, a->out);
	uint64_t end = local_rows(a->offsets, a->local, (uint64_t)a->tokens * a->topk);

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
