/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twin of moe_gemm.cu: bf16 experts over the blocks that moe_align made. In a block all
 * rows have one expert; places that are padding hold an index that is none. Threads: any; pure.
 */
#include "kernels/decode/decode.h"
#include "kernels/decode/tile.h"
#include "kernels/number.h"

/* The flat index of a row of the job. */
static uint32_t index_of(const struct tile_job *job, uint64_t row)
{
	return (uint32_t)job->rows[row];
}

static float x_at(const struct tile_job *job, uint64_t row, uint32_t k)
{
	const struct decode_moe_gemm_args *a = job->args;
	uint64_t token = index_of(job, row) / a->topk;

	return number_from_bf16(DERIVE_IN(uint16_t, a->x)[token * a->k + k]);
}

static float w_at(const struct tile_job *job, uint64_t col, uint32_t k)
{
	const struct decode_moe_gemm_args *a = job->args;

	return number_from_bf16(DERIVE_IN(uint16_t, a->w)[(job->expert * a->n + col) * a->k + k]);
}

static void out(const struct tile_job *job, uint64_t row, uint64_t col, float sum)
{
	const struct decode_moe_gemm_args *a = job->args;
	uint64_t i = index_of(job, row);

	if (a->bias != 0)
		sum += number_from_bf16(DERIVE_IN(uint16_t, a->bias)[job->expert * a->n + col]);
	if (a->weights != 0)
		sum *= DERIVE_IN(float, a->weights)[i];
	DERIVE_OUT(uint16_t, a->out)[i * a->n + col] = number_to_bf16(sum);
}

void decode_moe_gemm_twin(const void *args)
{
	const struct decode_moe_gemm_args *a = args;
	const int32_t *sorted = DERIVE_IN(int32_t, a->sorted);
	struct tile_job job = { .args = args, .end = a->k, .x = x_at, .w = w_at, .out = out };
	int64_t total = *DERIVE_IN(int32_t, a->total);

	if (a->topk == 0 || a->block == 0)
		return;
	for (int64_t p = 0; p < total && p < (int64_t)a->capacity; p++) {
		job.expert = (uint32_t)DERIVE_IN(int32_t, a->experts_of)[p / a->block];
		job.rows = &sorted[p];
		if (job.expert < a->experts && (uint32_t)sorted[p] < a->count)
			tile_sums(&job, 1, a->n);
	}
}
