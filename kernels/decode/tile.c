/* SPDX-License-Identifier: Apache-2.0 */
/* Job: sums in the order of the kernels; see tile.h. Threads: any; pure. */
#include "kernels/decode/tile.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

static void column(const struct tile_job *job, uint64_t row, uint64_t rows, uint64_t col)
{
	float part[TILE_ROWS][TILE_PARTS] = { { 0 } }, w[TILE_K];

	for (uint32_t from = job->begin; from < job->end; from += TILE_K) {
		uint32_t count = MIN(job->end - from, (uint32_t)TILE_K);

		for (uint32_t i = 0; i < count; i++)
			w[i] = job->w(job, col, from + i);
		for (uint64_t r = 0; r < rows; r++)
			for (uint32_t i = 0; i < count; i++)
				part[r][i / TILE_RUN] += job->x(job, row + r, from + i) * w[i];
	}
	for (uint64_t r = 0; r < rows; r++) {
		float sum = part[r][0];

		for (int p = 1; p < TILE_PARTS; p++)
			sum += part[r][p];
		job->out(job, row + r, col, sum);
	}
}

void tile_sums(const struct tile_job *job, uint64_t rows, uint64_t cols)
{
	for (uint64_t row = 0; row < rows; row += TILE_ROWS)
		for (uint64_t col = 0; col < cols; col++)
			column(job, row, MIN(rows - row, (uint64_t)TILE_ROWS), col);
}
