/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: one publication: its copies in one launch of kernels/publish.cu, what it zeroes in one of
 * kernels/maintain.cu. Where a kernel cannot be had (no image for this device, a build without
 * nvcc, memory of another device), the driver is asked slot by slot.
 *
 * Threads: any. No lock.
 */
#include <errno.h>

#include "arena/device.h"
#include "shim/place.h"

/* Copies, or memory that is zeroed. */
struct work {
	const struct device_copy *copies;
	const struct device_span *zeros;
	uint32_t count;
};

static struct publish_op row(const struct work *w, uint32_t i)
{
	if (w->copies != NULL)
		return (struct publish_op){ .dst = w->copies[i].dst,
					    .src = w->copies[i].src,
					    .bytes = w->copies[i].bytes };
	return (struct publish_op){ .dst = w->zeros[i].addr, .bytes = w->zeros[i].bytes };
}

/* @return the number of rows; those of no bytes are left out. */
static uint32_t fill(struct publish_op *to, const struct work *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->count; i++) {
		to[n] = row(w, i);
		n += to[n].bytes != 0;
	}
	return n;
}

/* A block for each tile: measured faster on an H200 than blocks that stay and walk on. */
static uint32_t block_each(uint64_t tiles)
{
	return tiles < PUBLISH_BLOCKS_MAX ? (uint32_t)tiles : PUBLISH_BLOCKS_MAX;
}

static int at_once(struct place *p, CUfunction kernel, const struct work *w, CUstream s)
{
	struct table *t;
	CUresult rc = table_get(p, w->count, &t);
	uint32_t count;

	if (rc != CUDA_SUCCESS)
		return device_error(rc);
	count = fill(t->host, w);
	if (count != 0)
		rc = table_launch(t, count, kernel, block_each, s);
	table_put_behind(p, t, s);
	return device_error(rc);
}

static CUresult one(const struct work *w, const struct publish_op *op, CUstream s)
{
	if (w->copies != NULL)
		return REAL(cuMemcpyDtoDAsync_v2)(op->dst, op->src, op->bytes, s);
	return REAL(cuMemsetD8Async)(op->dst, 0, op->bytes, s);
}

static int each(const struct work *w, CUstream s)
{
	bool any = false;

	for (uint32_t i = 0; i < w->count; i++) {
		struct publish_op op = row(w, i);
		CUresult rc = op.bytes != 0 ? one(w, &op, s) : CUDA_SUCCESS;

		if (rc != CUDA_SUCCESS)
			return any ? -EREMOTEIO : device_error(rc);
		any |= op.bytes != 0;
	}
	return 0;
}

static int work(const struct work *w, const char *kernel, uint64_t stream)
{
	struct visit v;
	int err = device_error(visit_stream(&v, stream));
	struct place *p = err == 0 ? place_here() : NULL;
	CUfunction f = NULL;

	if (p != NULL && w->count != 0 && place_is_near(p, row(w, 0).dst))
		f = place_kernel(p, kernel);
	if (err == 0)
		err = f != NULL ? at_once(p, f, w, (CUstream)stream) : each(w, (CUstream)stream);
	visit_end(&v);
	return err;
}

int device_copy(const struct device_copy *ops, uint32_t count, uint64_t stream)
{
	return work(&(struct work){ .copies = ops, .count = count }, "arena_publish", stream);
}

int device_zero(const struct device_span *spans, uint32_t count, uint64_t stream)
{
	struct work w = { .zeros = spans, .count = count };
	struct visit v;
	int err;

	if (count != 1)
		return work(&w, "arena_zero", stream);
	/* The driver's own fill needs no table: what stands behind a value, a single lock. */
	err = device_error(visit_stream(&v, stream));
	err = err ? err : each(&w, (CUstream)stream);
	visit_end(&v);
	return err;
}
