/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels over many slots at once that look at contents: zero, fingerprint, compare, scan. What
 * the kernels (maintain.cu), their C twins and the host share. All work by tables and tiles as
 * publish.h cuts them, MAINTAIN_RUN_TILES a block. Constant; the twins may run in any thread.
 *
 *   zero         dst[0..bytes) = 0
 *   fingerprint  out[i] += the sum of fingerprint_word() over the 8-byte words of src; what is left
 *                behind the last whole word is one more, filled up with zero. A sum, so that
 *                neither the grid nor the order of blocks shows. The words are counted from src: a
 *                copy has the fingerprint of what it was copied from. Of equal sizes only
 *   compare      out[i] = min(out[i], offset of the first byte in which dst and src differ)
 *   scan         words of src, at multiples of 8, that point into one of the ranges
 *
 * Before the launch: out[] is 0 for fingerprints and COMPARE_EQUAL for comparisons; a scan has
 * found nothing.
 */
#ifndef KERNELS_MAINTAIN_H
#define KERNELS_MAINTAIN_H

#include <stdbool.h>

#include "kernels/publish.h"

/* 64 KiB: what a block sums up, or looks up, at its begin and end is little against it. */
#define MAINTAIN_RUN_TILES 8ull

#define COMPARE_EQUAL UINT64_MAX

/* One word of a scan that points into a range. */
struct scan_hit { uint64_t address, word; };

/* [base, end) */
struct scan_range { uint64_t base, end; };

/* In device memory. Hits beyond cap are only counted; their order means nothing. */
struct scan_job {
	uint64_t ranges;	/* of struct scan_range, sorted, no overlap */
	uint64_t hits;		/* of struct scan_hit */
	uint64_t found;
	uint64_t lowest, highest;	/* begin of the first range, end of the last */
	uint32_t ranges_count, cap;
};

/*
 * Constants of the finalizer of MurmurHash3. Two rounds: what two words differ in must not cancel
 * out in the sum, also when it is one high bit in each, as the sign of a number. For one position
 * it is one to one: a change of one word always shows.
 */
PUBLISH_FN uint64_t fingerprint_mix(uint64_t x)
{
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 32;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 32;
}

#define FINGERPRINT_STEP 0x9e3779b97f4a7c15ull /* 2^64 / golden ratio, odd */

/* Of word @position: its key is (position + 1) steps. */
PUBLISH_FN uint64_t fingerprint_word(uint64_t word, uint64_t position)
{
	return fingerprint_mix(word ^ (position + 1) * FINGERPRINT_STEP);
}

/* Is @word in one of the ranges of a scan? */
PUBLISH_FN bool scan_points(const struct scan_range *ranges, uint32_t count, uint64_t word)
{
	uint32_t low = 0, high = count;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (ranges[middle].base <= word)
			low = middle;
		else
			high = middle;
	}
	return count != 0 && word >= ranges[low].base && word < ranges[low].end;
}

#ifndef __CUDACC__
/* Blocks for so many tiles. */
static inline uint32_t maintain_blocks(uint64_t tiles)
{
	uint64_t blocks = (tiles + MAINTAIN_RUN_TILES - 1) / MAINTAIN_RUN_TILES;

	return blocks < PUBLISH_BLOCKS_MAX ? (uint32_t)blocks : PUBLISH_BLOCKS_MAX;
}

/* The twins: block @block of a grid of @blocks, over memory of the host. */
void zero_twin(const struct publish_grid *g, uint32_t block, uint32_t blocks);
void fingerprint_twin(const struct publish_grid *g, uint32_t block, uint32_t blocks, uint64_t *out);
void compare_twin(const struct publish_grid *g, uint32_t block, uint32_t blocks, uint64_t *out);
/* @param far what to add to a host address for that which a hit tells. */
void scan_twin(const struct publish_grid *g, uint32_t block, uint32_t blocks, struct scan_job *job,
	       const uint64_t *far);
#endif

#endif
