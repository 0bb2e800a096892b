/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the copies of one publication, in one launch of kernels/publish.cu. Where the kernel cannot
 * be had (no image for this device, a build without nvcc, memory of another device), the driver is
 * asked slot by slot.
 *
 * Threads: any. No lock.
 */
#include <errno.h>

#include "arena/device.h"
#include "shim/place.h"

/* @return the number of copies; those of no bytes are left out. */
static uint32_t fill(struct table *t, const struct device_copy *ops, uint32_t count)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++)
		if (ops[i].bytes != 0)
			t->host[n++] = (struct publish_op){ .dst = ops[i].dst,
							    .src = ops[i].src,
							    .bytes = ops[i].bytes };
	return n;
}

/* A block for each tile: measured faster on an H200 than blocks that stay and walk on. */
static uint32_t block_each(uint64_t tiles)
{
	return tiles < PUBLISH_BLOCKS_MAX ? (uint32_t)tiles : PUBLISH_BLOCKS_MAX;
}

static int copy_at_once(struct place *p, CUfunction publish, const struct device_copy *ops,
			uint32_t count, CUstream s)
{
	struct table *t;
	CUresult rc = table_get(p, count, &t);

	if (rc != CUDA_SUCCESS)
		return device_error(rc);
	count = fill(t, ops, count);
	if (count != 0)
		rc = table_launch(t, count, publish, block_each, s);
	table_put_behind(p, t, s);
	return device_error(rc);
}

static int copy_each(const struct device_copy *ops, uint32_t count, CUstream s)
{
	bool any = false;

	for (uint32_t i = 0; i < count; i++) {
		CUresult rc = CUDA_SUCCESS;

		if (ops[i].bytes != 0)
			rc = REAL(cuMemcpyDtoDAsync_v2)(ops[i].dst, ops[i].src, ops[i].bytes, s);
		if (rc != CUDA_SUCCESS)
			return any ? -EREMOTEIO : device_error(rc);
		any |= ops[i].bytes != 0;
	}
	return 0;
}

int device_copy_batch(const struct device_copy *ops, uint32_t count, uint64_t stream)
{
	struct visit v;
	CUresult rc = visit_stream(&v, stream);
	struct place *p = NULL;
	CUfunction publish = NULL;
	int err = device_error(rc);

	if (err == 0)
		p = place_here();
	if (err == 0 && count != 0) {
		if (p != NULL && place_is_near(p, ops[0].dst))
			publish = place_kernel(p, "arena_publish");
		if (publish != NULL)
			err = copy_at_once(p, publish, ops, count, (CUstream)stream);
		else
			err = copy_each(ops, count, (CUstream)stream);
	}
	visit_end(&v);
	return err;
}
