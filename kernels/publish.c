/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the C twin of publish.cu, which is its specification, and the plan that both work by.
 * Threads: any; pure functions.
 */
#include "kernels/publish.h"

uint64_t publish_plan(struct publish_op *ops, uint32_t count)
{
	uint64_t tiles = 0;

	for (uint32_t i = 0; i < count; i++) {
		ops[i].first_tile = tiles;
		tiles += (ops[i].bytes + PUBLISH_TILE_BYTES - 1) / PUBLISH_TILE_BYTES;
	}
	return tiles;
}

void publish_twin(const struct publish_grid *g, uint32_t block, uint32_t blocks,
		  void (*copy)(uint64_t dst, uint64_t src, uint64_t bytes))
{
	struct publish_run r = publish_run(g->tiles, block, blocks);
	uint32_t i = publish_find(g->ops, g->count, r.begin);

	for (; r.begin < r.end; i++) {
		struct publish_piece p = publish_piece(&g->ops[i], &r);

		copy(p.dst, p.src, p.bytes);
	}
}
