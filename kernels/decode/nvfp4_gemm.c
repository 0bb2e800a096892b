/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of nvfp4_gemm.cu: e2m1 codes times their block scales on both sides, dense and
 * grouped by expert; alpha is applied to the sum. Threads: any; pure.
 */
#include "kernels/decode/decode.h"
#include "kernels/decode/nvfp4_tiles.h"
#include "kernels/decode/tile.h"
#include "kernels/number.h"

/* Element (@row, @k) of a tensor whose row 0 has its codes and block scales at these addresses. */
static float number_at(const uint8_t *codes, const uint8_t *sf, uint64_t row,
		       const uint32_t k_of[2])
{
	uint32_t k = k_of[0], width = k_of[1];
	uint8_t code = codes[(row * width + k) / 2] >> k % 2 * 4 & 15;

	return number_from_e2m1(code) * number_from_e4m3(sf[nvfp4_place(row, k / 16, width)]);
}

static float dense_x(const struct tile_job *job, uint64_t row, uint32_t k)
{
	const struct decode_nvfp4_gemm_args *a = job->args;

	return number_at(DERIVE_IN(uint8_t, a->x), DERIVE_IN(uint8_t, a->x_sf), row,
			 (uint32_t[]){ k, a->k });
}

static float dense_w(const struct tile_job *job, uint64_t col, uint32_t k)
{
	const struct decode_nvfp4_gemm_args *a = job->args;

	return number_at(DERIVE_IN(uint8_t, a->w), DERIVE_IN(uint8_t, a->w_sf), col,
			 (uint32_t[]){ k, a->k });
}

static void dense_out(const struct tile_job *job, uint64_t row, uint64_t col, float sum)
{
	const struct decode_nvfp4_gemm_args *a = job->args;

	DERIVE_OUT(uint16_t, a->out)
	[row * a->n + col] = number_to_bf16(*DERIVE_IN(float, a->alpha) * sum);
}

void decode_nvfp4_gemm_twin(const void *args)
{
	const struct decode_nvfp4_gemm_args *a = args;
	struct tile_job job = {
		.args = args,
		.end = a->k,
		.x = dense_x,
		.w = dense_w,
		.out = dense_out,
	};

	if (a->k % 16 == 0)
		tile_sums(&job, a->tokens, a->n);
}

static float grouped_x(const struct tile_job *job, uint64_t row, uint32_t k)
{
	const struct decode_moe_gemm_nvfp4_args *a = job->args;
	uint64_t tile_row = (uint64_t)DERIVE_IN(int32_t, a->sf_offsets)[job->expert];

	return number_at(DERIVE_IN(uint8_t, a->x) + job->first * a->k / 2,
			 DERIVE_IN(uint8_t, a->x_sf) + nvfp4_bytes(tile_row, a->k), row,
			 (uint32_t[]){ k, a->k });
}

static float grouped_w(const struct tile_job *job, uint64_t col, uint32_t k)
{
	const struct decode_moe_gemm_nvfp4_args *a = job->args;
	uint64_t e = job->expert;

	return number_at(DERIVE_IN(uint8_t, a->w) + e * a->n * a->k / 2,
			 DERIVE_IN(uint8_t, a->w_sf) + e * nvfp4_bytes(a->n, a->k), col,
			 (uint32_t[]){ k, a->k });
}

static void grouped_out(const struct tile_job *job, uint64_t row, uint64_t col, float sum)
{
	const struct decode_moe_gemm_nvfp4_args *a = job->args;
	float alpha = DERIVE_IN(float, a->alphas)[job->expert];

	DERIVE_OUT(uint16_t, a->out)
	[(job->first + row) * a->n + col] = number_to_bf16(alpha * sum);
}

void decode_moe_gemm_nvfp4_twin(const void *args)
{
	const struct decode_moe_gemm_nvfp4_args *a = args;
	const int64_t *offset = DERIVE_IN(int64_t, a->offsets);
	const int32_t *sf_offset = DERIVE_IN(int32_t, a->sf_offsets);
	struct tile_job job = {
		.args = args,
		.end = a->k,
		.x = grouped_x,
		.w = grouped_w,
		.out = grouped_out,
	};

	if (a->k % 16 != 0)
		return;
	for (uint64_t e = 0; e < a->experts; e++) {
		if (!nvfp4_group_fits(offset + e, sf_offset[e], a->rows, a->sf_rows))
			continue;
		job.expert = e;
		job.first = (uint64_t)offset[e];
		tile_sums(&job, (uint64_t)(offset[e + 1] - offset[e]), a->n);
	}
}
