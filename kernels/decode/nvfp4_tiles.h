/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block scales in tiles of 128 rows by 4 columns (kernels/nvfp4.c has the order), and the experts'
 * rows in them. For kernels and twins. Any thread; pure.
 */
#ifndef KERNELS_DECODE_NVFP4_TILES_H
#define KERNELS_DECODE_NVFP4_TILES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define NVFP4_HD __host__ __device__
#else
#define NVFP4_HD
#endif

/* Tiles side by side for rows of @k numbers. */
static inline NVFP4_HD uint64_t nvfp4_across(uint32_t k)
{
	return (k + 63ull) / 64;
}

/* Bytes of @rows rows, which are rounded up to whole tiles. */
static inline NVFP4_HD uint64_t nvfp4_bytes(uint64_t rows, uint32_t k)
{
	return (rows + 127) / 128 * nvfp4_across(k) * 512;
}

static inline NVFP4_HD uint64_t nvfp4_place(uint64_t row, uint32_t block, uint32_t k)
{
	uint64_t tile = row / 128 * nvfp4_across(k) + block / 4;

	return tile * 512 + row % 32 * 16 + row / 32 % 4 * 4 + block % 4;
}

/* Rows [offset[0], offset[1]) of @rows, whose tiles start at row @sf_offset of @sf_rows. */
static inline NVFP4_HD bool nvfp4_group_fits(const int64_t *offset, int32_t sf_offset,
					     uint32_t rows, uint32_t sf_rows)
{
	uint64_t end = (sf_rows + 127ull) / 128 * 128;

	return offset[0] >= 0 && offset[1] > offset[0] && offset[1] <= (int64_t)rows &&
	       sf_offset >= 0 && sf_offset % 128 == 0 && (uint64_t)sf_offset <= end &&
	       (uint64_t)(offset[1] - offset[0]) <= end - (uint64_t)sf_offset;
}

#endif
