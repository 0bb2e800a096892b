/* SPDX-License-Identifier: Apache-2.0 */
/* How decode_marlin_gemm cuts K into slices; kernel and twin have to agree. Pure. */
#ifndef KERNELS_DECODE_MARLIN_GEMM_H
#define KERNELS_DECODE_MARLIN_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#define MARLIN_SLICES_MAX 4

/* What a lock holds when it is the turn of any slice but the first: no value that memory is
 * likely to have, so that a lock that is dirty with a small number is not taken for a turn. */
#define MARLIN_TURN 0x5a000000

#ifdef __CUDACC__
#define MARLIN_HD __host__ __device__
#else
#define MARLIN_HD
#endif

static inline MARLIN_HD int32_t marlin_turn(uint32_t turn)
{
	return turn == 0 ? 0 : (int32_t)(MARLIN_TURN | turn);
}

/* Rows of a slice, in whole tiles of 16; small weights have more than one slice, too. */
static inline MARLIN_HD uint32_t marlin_slice_rows(uint32_t k, bool sliced)
{
	uint32_t tiles = k / 16, slices = tiles / 4;

	if (!sliced)
		return k;
	if (slices > MARLIN_SLICES_MAX)
		slices = MARLIN_SLICES_MAX;
	if (slices == 0)
		slices = 1;
	return (tiles + slices - 1) / slices * 16;
}

#endif
