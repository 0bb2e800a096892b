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

#define SHARED_RESERVED 1024 /* bytes of a block, beside what it asks for */

/*
 * As few blocks as can hold all rows; if more than two, as many that two are on a multiprocessor,
 * of which one reads while the other one looks up. Where too few are a cluster, the kernel of the
 * row stays. No more than run at a time, as each takes stripe after stripe.
 */
static void launch_order(const struct arena_marlin_repack_args *a, const struct derive_chip *chip,
			 struct derive_launch *out)
{
	uint64_t spare = chip->shared < SHARED_RESERVED ? 0 : chip->shared - SHARED_RESERVED;
	bool a8 = (a->flags & MARLIN_A8) != 0, two;
	uint32_t blocks = 1, stripes = a->n / (a8 ? 16 : 64), most;

	while (marlin_order_bytes(a->k, a->bits, a8, blocks) > chip->shared)
		if ((blocks *= 2) > chip->cluster)
			return;
	while (blocks > 2 && 2 * blocks <= chip->cluster &&
	       marlin_order_bytes(a->k, a->bits, a8, blocks) > spare / 2)
		blocks *= 2;
	out->shared = (uint32_t)marlin_order_bytes(a->k, a->bits, a8, blocks);
	two = out->shared <= spare / 2;
	most = chip->multiprocessors * (two ? 2 : 1) / blocks;
	out->kernel = "arena_marlin_order";
	out->blocks = (stripes < most || most == 0 ? stripes : most) * blocks;
	out->threads = two ? MARLIN_ORDER_THREADS / 2 : MARLIN_ORDER_THREADS;
	out->cluster = blocks;
}

static void launch_marlin(const struct arena_marlin_repack_args *a, const struct derive_chip *chip,
			  struct derive_launch *out)
{
	if (a->k == 0 || a->n == 0 || a->q % 16 != 0)
		return;
	if (a->flags & MARLIN_AWQ)
		out->kernel = "arena_marlin_awq";
	else if (a->perm != 0 && a->perm % 16 == 0)
		launch_order(a, chip, out);
}

void derive_launch(const struct derive *d, const void *args, const struct derive_chip *chip,
		   struct derive_launch *out)
{
	*out = (struct derive_launch){
		.kernel = d->name,
		.blocks = blocks_for(d, args, BLOCKS_EACH * chip->multiprocessors),
		.threads = DERIVE_THREADS,
		.cluster = 1,
	};
	if (!strcmp(d->name, "arena_marlin_repack"))
		launch_marlin(args, chip, out);
}
