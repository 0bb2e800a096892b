/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows decode_moe_gemm_fp8 gives an expert: what stands in memory, if it fits in the tensors.
 * For kernel and twin. Any thread; pure.
 */
#ifndef KERNELS_DECODE_FP8_GROUPS_H
#define KERNELS_DECODE_FP8_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define FP8_HD __host__ __device__
#else
#define FP8_HD
#endif

struct fp8_groups {
	const int64_t *offsets, *ab_strides, *c_strides;
	const int32_t *sizes;
	uint64_t rows, experts, n, k;
};

/* One row or more of @width elements, @stride apart, from element @first of @all: inside, and not
 * overlapping. */
static inline FP8_HD bool fp8_inside(uint64_t first, uint64_t rows, uint64_t stride, uint64_t width,
				     uint64_t all)
{
	return width != 0 && stride >= width && first <= all && width <= all - first &&
	       rows - 1 <= (all - first - width) / stride;
}

/* @return rows of expert @e, from row offsets[e] on; 0: it has none, or something does not fit. */
static inline FP8_HD uint64_t fp8_group_rows(const struct fp8_groups *g, uint64_t e)
{
	const int32_t *size = g->sizes + 3 * e;
	int64_t n = (int64_t)g->n, first = g->offsets[e], m = size[1] == n ? size[0] : size[1];
	uint64_t ab = (uint64_t)g->ab_strides[e], c = (uint64_t)g->c_strides[e];
	uint64_t at = (uint64_t)first, rows = (uint64_t)m;

	if (size[2] != (int64_t)g->k || (size[0] != n && size[1] != n))
		return 0;
	if (m <= 0 || rows > g->rows || first < 0 || at > g->rows - rows)
		return 0;
	if (!fp8_inside(at * g->k, rows, ab, g->k, g->rows * g->k) ||
	    !fp8_inside(e * g->n * g->k, g->n, ab, g->k, g->experts * g->n * g->k) ||
	    !fp8_inside(at * g->n, rows, c, g->n, g->rows * g->n))
		return 0;
	return rows;
}

#endif
