/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maintenance kernels of the shim (kernels/maintain.h) on simulated memory: what they read is
 * fetched, the C twins work on that, results are stored. Under sim_lock.
 */
#include "kernels/image.h"
#include "kernels/maintain.h"
#include "tests/sim/sim.h"

#include <stdlib.h>

#define BLOCKS 7

/* A table whose addresses are the host's; far is how much the device's are higher. */
struct fetched {
	struct publish_op *ops;
	uint64_t *far;
	uint32_t count;
	bool ok;
};

static uint64_t fetch_side(struct fetched *f, uint64_t addr, uint64_t bytes)
{
	void *copy = malloc(bytes);

	f->ok &= copy && twin_load(addr, copy, bytes);
	return (uint64_t)(uintptr_t)copy;
}

static struct fetched fetch(uint64_t ops, uint32_t count, bool both)
{
	struct fetched f = { calloc(count, sizeof(*f.ops)), calloc(count, sizeof(*f.far)), count,
			     true };

	f.ok = twin_load(ops, f.ops, count * sizeof(*f.ops));
	for (uint32_t i = 0; i < count && f.ok; i++) {
		struct publish_op *op = &f.ops[i];

		f.far[i] = op->src;
		op->src = fetch_side(&f, op->src, op->bytes);
		f.far[i] -= op->src;
		op->dst = both ? fetch_side(&f, op->dst, op->bytes) : 0;
	}
	return f;
}

static void fetched_free(struct fetched *f)
{
	for (uint32_t i = 0; i < f->count; i++) {
		/* Unless the fetch broke off: those are the device's, and leak. */
		if (f->ok) {
			free((void *)(uintptr_t)f->ops[i].src);
			free((void *)(uintptr_t)f->ops[i].dst);
		}
	}
	free(f->ops);
	free(f->far);
}

typedef void (*counting_fn)(const struct publish_grid *g, uint32_t block, uint32_t blocks,
			    uint64_t *out);

/* The kernels with a number for each slot; both have the same parameters. */
static void count_slots(const struct arena_compare_args *a, bool both, counting_fn twin)
{
	struct fetched f = fetch(a->ops, a->count, both);
	const struct publish_grid g = { f.ops, a->count, a->tiles };
	uint32_t blocks = (uint32_t)MIN(a->tiles, BLOCKS);
	uint64_t *out = calloc(a->count, sizeof(*out));

	if (f.ok && twin_load(a->out, out, a->count * sizeof(*out))) {
		for (uint32_t i = 0; i < blocks; i++)
			twin(&g, i, blocks, out);
		twin_store(a->out, out, a->count * sizeof(*out));
	}
	free(out);
	fetched_free(&f);
}

void arena_compare(const void *args)
{
	count_slots(args, true, compare_twin);
}

void arena_fingerprint(const void *args)
{
	count_slots(args, false, fingerprint_twin);
}

void arena_zero(const void *args)
{
	const struct arena_zero_args *a = args;
	static const char zeros[4096];
	struct publish_op op;

	for (uint32_t i = 0; i < a->count; i++) {
		if (!twin_load(a->ops + i * sizeof(op), &op, sizeof(op)))
			return;
		for (uint64_t n; op.bytes; op.bytes -= n, op.dst += n) {
			n = MIN(op.bytes, sizeof(zeros));
			if (!twin_store(op.dst, zeros, n))
				return;
		}
	}
}

static void scan_fetched(struct fetched *f, uint64_t tiles, uint64_t at)
{
	const struct publish_grid g = { f->ops, f->count, tiles };
	uint32_t blocks = (uint32_t)MIN(tiles, BLOCKS);
	struct scan_job job, mine;

	if (!f->ok || !twin_load(at, &job, sizeof(job)))
		return;
	mine = job;
	mine.ranges = fetch_side(f, job.ranges, job.ranges_count * sizeof(struct scan_range));
	mine.hits = (uint64_t)(uintptr_t)calloc(job.cap + 1u, sizeof(struct scan_hit));
	if (f->ok) {
		for (uint32_t i = 0; i < blocks; i++)
			scan_twin(&g, i, blocks, &mine, f->far);
		job.found = mine.found;
		twin_store(job.hits, (void *)(uintptr_t)mine.hits,
			   MIN(job.found, job.cap) * sizeof(struct scan_hit));
		twin_store(at, &job, sizeof(job));
	}
	free((void *)(uintptr_t)mine.ranges);
	free((void *)(uintptr_t)mine.hits);
}

void arena_scan(const void *args)
{
	const struct arena_scan_args *a = args;
	struct fetched f = fetch(a->ops, a->count, false);

	scan_fetched(&f, a->tiles, a->job);
	fetched_free(&f);
}
