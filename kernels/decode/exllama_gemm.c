/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twin of exllama_gemm.cu: 4-bit weights in exllama order (kernels/exllama.c), dense or
 * those of a row's expert. A weight is bf16((code - (zero + 1)) * scale). Threads: any; pure.
 */
#include "kernels/decode/decode.h"
#include "kernels/decode/tile.h"
#include "kernels/number.h"

static float x_at(const struct tile_job *job, uint64_t row, uint32_t k)
{
	const struct decode_exllama_gemm_args *a = job->args;
	uint64_t token = (job->first + row) / a->topk;

	return number_from_bf16(DERIVE_IN(uint16_t, a->x)[token * a->k + k]);
}

static float w_at(const struct tile_job *job, uint64_t col, uint32_t k)
{
	const struct decode_exllama_gemm_args *a = job->args;
	uint64_t group = job->expert * a->groups + k / (a->k / a->groups);
	uint64_t word = (job->expert * (a->k / 8) + k / 8) * a->n + col;
	uint32_t place = k % 8 / 2 + k % 2 * 4; /* even codes in the low half */
	int32_t code = DERIVE_IN(uint32_t, a->q)[word] >> 4 * place & 15;
	int32_t zero = DERIVE_IN(uint32_t, a->zeros)[group * (a->n / 8) + col / 8] >> col % 8 * 4;
	float scale = number_from_bf16(DERIVE_IN(uint16_t, a->scales)[group * a->n + col]);

	return number_from_bf16(number_to_bf16((float)(code - (zero & 15) - 1) * scale));
}

static void out(const struct tile_job *job, uint64_t row, uint64_t col, float sum)
{
	const struct decode_exllama_gemm_args *a = job->args;

	row += job->first;
	if (a->weights != 0)
		sum *= DERIVE_IN(float, a->weights)[row];
	DERIVE_OUT(uint16_t, a->out)[row * a->n + col] = number_to_bf16(sum);
}

/* A row without an expert. */
static void clear(const struct decode_exllama_gemm_args *a, uint64_t row)
{
	for (uint32_t n = 0; n < a->n; n++)
		DERIVE_OUT(uint16_t, a->out)[row * a->n + n] = 0;
}

void decode_exllama_gemm_twin(const void *args)
{
	const struct decode_exllama_gemm_args *a = args;
	const int32_t *ids = DERIVE_IN(int32_t, a->ids);
	struct tile_job job = { .args = args, .end = a->k, .x = x_at, .w = w_at, .out = out };

	if (a->groups == 0 || a->topk == 0 || a->k % (8ull * a->groups) != 0 || a->n % 8 != 0)
		return;
	if (ids == NULL) {
		tile_sums(&job, a->rows, a->n);
		return;
	}
	for (job.first = 0; job.first < a->rows; job.first++) {
		job.expert = (uint32_t)ids[job.first];
		if (job.expert < a->experts)
			tile_sums(&job, 1, a->n);
		else
			clear(a, job.first);
	}
}
