/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of fp8_gemm.cu: e4m3 times e4m3, dense and grouped by expert.
 *
 * Scales are applied to the sum, first that of x, then that of w, then the bias is added.
 * The grouped one reads what CUTLASS's reads: offsets, sizes, strides, all in memory that a reload
 * may have taken away. Where CUTLASS would follow whatever stands there, an expert that would reach
 * out of its tensors is skipped. Threads: any; pure.
 */
#include "kernels/decode/decode.h"
#include "kernels/decode/fp8_groups.h"
#include "kernels/decode/tile.h"
#include "kernels/number.h"

static float dense_x(const struct tile_job *job, uint64_t row, uint32_t k)
{
	const struct decode_fp8_gemm_args *a = job->args;

	return number_from_e4m3(DERIVE_IN(uint8_t, a->x)[row * a->k + k]);
}

static float dense_w(const struct tile_job *job, uint64_t col, uint32_t k)
{
	const struct decode_fp8_gemm_args *a = job->args;

	return number_from_e4m3(DERIVE_IN(uint8_t, a->w)[col * a->k + k]);
}

static void dense_out(const struct tile_job *job, uint64_t row, uint64_t col, float sum)
{
	const struct decode_fp8_gemm_args *a = job->args;

	sum *= DERIVE_IN(float, a->x_scales)[a->flags & DECODE_PER_TOKEN ? row : 0];
	sum *= DERIVE_IN(float, a->w_scales)[a->flags & DECODE_PER_CHANNEL ? col : 0];
	if (a->bias != 0)
		sum += number_from_bf16(DERIVE_IN(uint16_t, a->bias)[col]);
	DERIVE_OUT(uint16_t, a->out)[row * a->n + col] = number_to_bf16(sum);
}

void decode_fp8_gemm_twin(const void *args)
{
	const struct decode_fp8_gemm_args *a = args;
	struct tile_job job = {
		.args = args,
		.end = a->k,
		.x = dense_x,
		.w = dense_w,
		.out = dense_out,
	};

	tile_sums(&job, a->tokens, a->n);
}

/* Row r of an expert is element first + r * its stride. */
static float grouped_x(const struct tile_job *job, uint64_t row, uint32_t k)
{
	const struct decode_moe_gemm_fp8_args *a = job->args;
	uint64_t stride = (uint64_t)DERIVE_IN(int64_t, a->ab_strides)[job->expert];

	return number_from_e4m3(DERIVE_IN(uint8_t, a->x)[job->first * a->k + row * stride + k]);
}

static float grouped_w(const struct tile_job *job, uint64_t col, uint32_t k)
{
	const struct decode_moe_gemm_fp8_args *a = job->args;
	uint64_t stride = (uint64_t)DERIVE_IN(int64_t, a->ab_strides)[job->expert];
	uint64_t base = job->expert * a->n * a->k;

	return number_from_e4m3(DERIVE_IN(uint8_t, a->w)[base + col * stride + k]);
}

static void grouped_out(const struct tile_job *job, uint64_t row, uint64_t col, float sum)
{
	const struct decode_moe_gemm_fp8_args *a = job->args;
	uint64_t stride = (uint64_t)DERIVE_IN(int64_t, a->c_strides)[job->expert];
	uint64_t e = job->expert, scale = a->flags & DECODE_PER_CHANNEL ? e * a->n + col : e;

	sum *= DERIVE_IN(float, a->x_scales)[a->flags & DECODE_PER_TOKEN ? job->first + row : 0];
	sum *= DERIVE_IN(float, a->w_scales)[scale];
	DERIVE_OUT(uint16_t, a->out)[job->first * a->n + row * stride + col] = number_to_bf16(sum);
}

void decode_moe_gemm_fp8_twin(const void *args)
{
	const struct decode_moe_gemm_fp8_args *a = args;
	const struct fp8_groups groups = {
		.offsets = DERIVE_IN(int64_t, a->offsets),
		.ab_strides = DERIVE_IN(int64_t, a->ab_strides),
		.c_strides = DERIVE_IN(int64_t, a->c_strides),
		.sizes = DERIVE_IN(int32_t, a->sizes),
		.rows = a->rows,
		.experts = a->experts,
		.n = a->n,
		.k = a->k,
	};
	struct tile_job job = {
		.args = args,
		.end = a->k,
		.x = grouped_x,
		.w = grouped_w,
		.out = grouped_out,
	};

	for (job.expert = 0; job.expert < a->experts; job.expert++) {
		job.first = (uint64_t)groups.offsets[job.expert];
		tile_sums(&job, fp8_group_rows(&groups, job.expert), a->n);
	}
}
