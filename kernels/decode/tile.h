/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sums of the GEMMs on packed weights, in the order in which the kernels add (tile.cuh), so
 * that twin and kernel are equal bit for bit.
 *
 * Both operands are numbers of bf16, so that a product is exact in f32 (unless it lies below
 * 2^-126) and only additions round. Of a sum from begin on, 16 neighbours along K go to each of 8
 * parts in turn, which are added in their order at the end. Any thread; pure.
 */
#ifndef KERNELS_DECODE_TILE_H
#define KERNELS_DECODE_TILE_H

#include <stdint.h>

#define TILE_ROWS  16  /* of x, at a time */
#define TILE_K	   128 /* TILE_PARTS runs of TILE_RUN */
#define TILE_RUN   16
#define TILE_PARTS 8

struct tile_job {
	const void *args; /* of the twin */
	uint64_t expert;  /* the caller's, as are the next two */
	uint64_t first;
	const int32_t *rows;
	uint32_t begin, end; /* along K */
	float (*x)(const struct tile_job *job, uint64_t row, uint32_t k);
	float (*w)(const struct tile_job *job, uint64_t col, uint32_t k);
	void (*out)(const struct tile_job *job, uint64_t row, uint64_t col, float sum);
};

/* @brief Give out() the sum over begin <= k < end of x(row, k) * w(col, k) for each row and col. */
void tile_sums(const struct tile_job *job, uint64_t rows, uint64_t cols);

#endif
