/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The batched copy of a publication: how its work is cut. Shared by the kernel (publish.cu), its
 * C twin and the host.
 *
 * Every copy is cut into tiles; the tiles of all copies are numbered through, and each block of
 * the grid gets a run of neighbours, of equal length but for one. So one slot of 1 GiB and
 * 10,000 of 4 KiB both fill the chip, and a block looks its first copy up once and walks on.
 */
#ifndef KERNELS_PUBLISH_H
#define KERNELS_PUBLISH_H

#include <stdint.h>

#ifdef __CUDACC__
#define PUBLISH_FN static __device__ __forceinline__
#else
#define PUBLISH_FN static inline
#endif

#define PUBLISH_THREADS 256
/* Of a grid in x, by the CUDA programming guide. */
#define PUBLISH_BLOCKS_MAX 0x7fffffffu

/* What a block has in flight, twice: smaller ones are as quick, larger ones slower. */
#define PUBLISH_TILE_BYTES 8192ull

/* One copy; no overlap, neither with itself nor with another one. */
struct publish_op {
	uint64_t dst, src, bytes;	/* bytes > 0 */
	uint64_t first_tile;		/* sum of the tiles before it */
};

struct publish_run { uint64_t begin, end; };	/* tiles */

/* The tiles of block @block of @blocks. */
PUBLISH_FN struct publish_run publish_run(uint64_t tiles, uint32_t block, uint32_t blocks)
{
	uint64_t each = tiles / blocks, more = tiles % blocks;
	struct publish_run r;

	r.begin = block * each + (block < more ? block : more);
	r.end = r.begin + each + (block < more);
	return r;
}

/* The copy that has tile @tile. */
PUBLISH_FN uint32_t publish_find(const struct publish_op *ops, uint32_t count, uint64_t tile)
{
	uint32_t low = 0, high = count;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (ops[middle].first_tile <= tile)
			low = middle;
		else
			high = middle;
	}
	return low;
}

struct publish_piece { uint64_t dst, src, bytes; };

/* What of @op lies in @r, which begins in it; moves r.begin behind it. */
PUBLISH_FN struct publish_piece publish_piece(const struct publish_op *op, struct publish_run *r)
{
	uint64_t tiles = (op->bytes + PUBLISH_TILE_BYTES - 1) / PUBLISH_TILE_BYTES;
	uint64_t from = (r->begin - op->first_tile) * PUBLISH_TILE_BYTES;
	uint64_t end = op->first_tile + tiles, to = op->bytes;
	struct publish_piece p;

	if (end > r->end) {
		end = r->end;
		to = (end - op->first_tile) * PUBLISH_TILE_BYTES;
	}
	r->begin = end;
	p.dst = op->dst + from;
	p.src = op->src + from;
	p.bytes = to - from;
	return p;
}

#ifndef __CUDACC__
/* @brief Fill in first_tile. @return the number of tiles, the kernel's third parameter. */
uint64_t publish_plan(struct publish_op *ops, uint32_t count);

/*
 * @brief The twin: block @block of a grid of @blocks, over ops in host memory.
 * @param copy moves bytes between device addresses.
 */
struct publish_grid { const struct publish_op *ops; uint32_t count; uint64_t tiles; };
void publish_twin(const struct publish_grid *g, uint32_t block, uint32_t blocks,
		  void (*copy)(uint64_t dst, uint64_t src, uint64_t bytes));
#endif

#endif
