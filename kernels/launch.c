/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: how a derivation is launched: with which kernel, grid and shared memory. Threads: any; pure.
 */
#include <string.h>

#include "kernels/derive.h"
#include "kernels/image.h"

/* Of a multiprocessor: more have work to deal out evenly, fewer leave less to start and to end. */
#define BLOCKS_EACH 16

static uint32_t blocks_for(const struct derive *d, const void *args, uint32_t most)
{
	struct derive_range range[DERIVE_PARAMS_MAX];
	uint32_t n = d->ranges(args, range);
	uint64_t bytes = 0, blocks;

	for (uint32_t i = 0; i < n; i++)
		bytes += range[i].result ? range[i].bytes : 0;
	blocks = DERIVE_CEIL(bytes, 16 * DERIVE_THREADS);
	if (blocks > most)
		blocks = most;
	return blocks == 0 ? 1 : (uint32_t)blocks;
}

/* Where not even the smallest part of a tile's columns fits, the kernel of the row stays. */
static void launch_order(const struct arena_marlin_repack_args *a, uint32_t shared,
			 struct derive_launch *out)
{
	bool a8 = (a->flags & MARLIN_A8) != 0;
	uint32_t parts = marlin_order_parts(a->k, a->bits, a8, shared);

	if (parts == 0)
		return;
	out->kernel = "arena_marlin_order";
	out->blocks = a->n / (a8 ? 32 : 64) * parts;
	out->threads = MARLIN_ORDER_THREADS;
	out->shared = (uint32_t)marlin_order_bytes(a->k, a->bits, a8, parts);
}

static void launch_marlin(const struct arena_marlin_repack_args *a, const struct derive_chip *chip,
			  struct derive_launch *out)
{
	if (a->k == 0 || a->n == 0 || a->q % 16 != 0)
		return;
	if (a->flags & MARLIN_AWQ)
		out->kernel = "arena_marlin_awq";
	else if (a->perm != 0 && a->perm % 16 == 0)
		launch_order(a, chip->shared, out);
}

void derive_launch(const struct derive *d, const void *args, const struct derive_chip *chip,
		   struct derive_launch *out)
{
	*out = (struct derive_launch){
		.kernel = d->name,
		.blocks = blocks_for(d, args, BLOCKS_EACH * chip->multiprocessors),
		.threads = DERIVE_THREADS,
	};
	if (!strcmp(d->name, "arena_marlin_repack"))
		launch_marlin(args, chip, out);
}
