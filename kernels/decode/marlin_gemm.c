/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twin of marlin_gemm.cu: a GEMM on weights as arena_marlin_repack, _scales and _zeros
 * leave them.
 *
 * A weight is bf16((code - zero) * scale). Marlin itself applies the scale of a channel to the sum,
 * which differs by what rounding each weight costs. Slices of K are added in their order, through
 * tmp; the lock of 64 columns says whose turn it is (marlin_turn()) and is 0 again at the end. Here
 * all slices come in turn, so that any other value at the start is a dirty lock. (A kernel cannot
 * tell one that is the turn of a later slice, MARLIN_TURN and its number: that slice goes first.)
 * Threads: any; pure.
 */
#include "kernels/decode/marlin_gemm.h"

#include "kernels/decode/decode.h"
#include "kernels/decode/tile.h"
#include "kernels/number.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* The inverses of the orders in marlin.c. */
static uint32_t code_at(const struct decode_marlin_gemm_args *a, uint64_t n, uint32_t k)
{
	static const uint8_t four[8] = { 0, 4, 1, 5, 2, 6, 3, 7 }, eight[4] = { 0, 2, 1, 3 };
	const uint32_t *q = DERIVE_IN(uint32_t, a->q);
	uint32_t row = k % 16, col = n % 64, half = col % 16 / 8;
	uint32_t lane = col % 8 * 4 + row % 8 / 2, i = row % 2 + 2 * (row / 8);
	uint64_t tile = (uint64_t)(k / 16) * (a->n / 64) + n / 64;

	if (a->bits == 4)
		return q[tile * 128 + 4 * lane + col / 16] >> 4 * four[4 * half + i] & 15;
	return q[tile * 256 + 8 * lane + 2 * (col / 16) + half] >> 8 * eight[i] & 255;
}

static float scale_at(const struct decode_marlin_gemm_args *a, uint32_t group, uint64_t n)
{
	uint64_t row = (uint64_t)group * a->n, place;

	if (a->groups > 1)
		place = n / 64 * 64 + n % 8 * 8 + n % 64 / 8;
	else
		place = n / 32 * 32 + n % 8 / 2 * 8 + n % 32 / 8 * 2 + n % 2;
	return number_from_bf16(DERIVE_IN(uint16_t, a->scales)[row + place]);
}

static int32_t zero_at(const struct decode_marlin_gemm_args *a, uint32_t group, uint64_t n)
{
	static const uint8_t four[8] = { 0, 4, 1, 5, 2, 6, 3, 7 }, eight[4] = { 0, 2, 1, 3 };
	const uint32_t *z = DERIVE_IN(uint32_t, a->zeros);
	uint32_t of_eight = n % 64 / 8;

	if (z == NULL)
		return a->bits == 4 ? 8 : 128;
	z += (uint64_t)group * (a->n * a->bits / 32) + n / 64 * (2 * a->bits);
	if (a->bits == 4)
		return z[n % 8] >> 4 * four[of_eight] & 15;
	return z[n % 8 * 2 + of_eight / 4] >> 8 * eight[of_eight % 4] & 255;
}

static float x_at(const struct tile_job *job, uint64_t row, uint32_t k)
{
	const struct decode_marlin_gemm_args *a = job->args;
	const int32_t *perm = DERIVE_IN(int32_t, a->perm);
	uint32_t col = perm != NULL ? (uint32_t)perm[k] : k;

	return col < a->k ? number_from_bf16(DERIVE_IN(uint16_t, a->x)[row * a->k + col]) : 0;
}

static float w_at(const struct tile_job *job, uint64_t col, uint32_t k)
{
	const struct decode_marlin_gemm_args *a = job->args;
	const int32_t *g_idx = DERIVE_IN(int32_t, a->g_idx);
	uint32_t group = g_idx != NULL ? (uint32_t)g_idx[k] : k / (a->k / a->groups);
	uint64_t n = job->first + col;

	if (group >= a->groups)
		return 0;
	return number_from_bf16(number_to_bf16(
		(float)((int32_t)code_at(a, n, k) - zero_at(a, group, n)) * scale_at(a, group, n)));
}

static void out(const struct tile_job *job, uint64_t row, uint64_t col, float sum)
{
	const struct decode_marlin_gemm_args *a = job->args;
	uint64_t n = job->first + col, at = row * a->n + n;

	if (job->begin != 0)
		sum = DERIVE_IN(float, a->tmp)[at] + sum;
	if (job->end != a->k) {
		DERIVE_OUT(float, a->tmp)[at] = sum;
		return;
	}
	if (a->bias != 0)
		sum += number_from_bf16(DERIVE_IN(uint16_t, a->bias)[n]);
	DERIVE_OUT(uint16_t, a->out)[at] = number_to_bf16(sum);
}

static bool taken(const struct decode_marlin_gemm_args *a)
{
	return (a->bits == 4 || a->bits == 8) && a->k % 16 == 0 && a->n % 64 == 0 &&
	       a->groups != 0 && a->k % a->groups == 0 && a->k != 0 && a->tokens != 0 &&
	       a->locks >= a->n / 64;
}

void decode_marlin_gemm_twin(const void *args)
{
	const struct decode_marlin_gemm_args *a = args;
	struct tile_job job = { .args = args, .x = x_at, .w = w_at, .out = out };
	uint32_t rows = marlin_slice_rows(a->k, a->tmp != 0);

	if (!taken(a))
		return;
	for (job.first = 0; job.first < a->n; job.first += 64) {
		if (DERIVE_IN(int32_t, a->workspace)[job.first / 64] != 0) {
			*DERIVE_OUT(int32_t, a->status) |= DECODE_STATUS_DIRTY;
			continue;
		}
		for (job.begin = 0; job.begin < a->k; job.begin += rows) {
			job.end = MIN(a->k, job.begin + rows);
			tile_sums(&job, a->tokens, 64);
		}
	}
}
