/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: kernels that compute and compare values of slots: derivations (kernels/derive.h),
 * fingerprints and comparisons (kernels/maintain.h).
 *
 * Threads: any. No lock.
 */
#include <errno.h>
#include <string.h>

#include "arena/device.h"
#include "kernels/derive.h"
#include "kernels/maintain.h"
#include "shim/place.h"

/* ---- derivations ---- */

/* 0 also: the driver does not know what is asked. */
static uint32_t attribute(CUdevice dev, CUdevice_attribute which)
{
	int value = 0;

	return REAL(cuDeviceGetAttribute)(&value, which, dev) == CUDA_SUCCESS ? (uint32_t)value : 0;
}

static struct derive_chip chip_here(void)
{
	struct derive_chip chip = { .multiprocessors = 0 };
	CUdevice dev;

	if (REAL(cuCtxGetDevice)(&dev) != CUDA_SUCCESS)
		return chip;
	chip.multiprocessors = attribute(dev, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	chip.shared = attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	if (attribute(dev, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH))
		chip.cluster = DERIVE_CLUSTER_MAX;
	return chip;
}

struct launch {
	struct derive_launch how;
	CUfunction f;
	CUlaunchAttribute cluster;
	CUlaunchConfig config;
};

static CUresult launch_prepare(struct launch *l, const struct derive_chip *chip, CUstream s)
{
	CUresult rc = CUDA_SUCCESS;

	l->cluster = (CUlaunchAttribute){
		.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
		.value.clusterDim = { l->how.cluster, 1, 1 },
	};
	l->config = (CUlaunchConfig){
		.gridDimX = l->how.blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = l->how.threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = l->how.shared,
		.hStream = s,
		.attrs = &l->cluster,
		.numAttrs = 1,
	};
	/* The most, not this launch's share: another thread may be between the same calls. */
	if (l->how.shared != 0)
		rc = REAL(cuFuncSetAttribute)(l->f,
					      CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
					      (int)chip->shared);
	if (rc == CUDA_SUCCESS && l->how.cluster > 1)
		rc = REAL(cuFuncSetAttribute)(
			l->f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
	return rc;
}

/* No more clusters than run at a time: of the work, each has a share. @return false: none does */
static bool launch_fits(struct launch *l)
{
	uint32_t most;
	int n = 0;

	if (REAL(cuOccupancyMaxActiveClusters)(&n, l->f, &l->config) != CUDA_SUCCESS || n <= 0)
		return false;
	most = (uint32_t)n * l->how.cluster;
	if (l->config.gridDimX > most)
		l->config.gridDimX = most;
	return true;
}

static CUresult launch(struct launch *l, void **params)
{
	const CUlaunchConfig *c = &l->config;

	/* Only a driver that knows clusters has the other one. */
	if (l->how.cluster == 1)
		return REAL(cuLaunchKernel)(l->f, c->gridDimX, 1, 1, c->blockDimX, 1, 1,
					    c->sharedMemBytes, c->hStream, params, NULL);
	return REAL(cuLaunchKernelEx)(c, l->f, params, NULL);
}

static CUresult derive(const struct place *p, const struct derive *row,
		       const struct device_derivation *d, CUstream s)
{
	struct derive_chip chip = chip_here();
	void *params[DERIVE_PARAMS_MAX];
	struct launch l;
	CUresult rc;

	for (uint32_t i = 0; i < row->params_count; i++)
		params[i] = (char *)(uintptr_t)d->args + row->params[i].offset;
	/* A part of a device (MIG, MPS) may have room for smaller clusters only, or for none. */
	do {
		derive_launch(row, d->args, &chip, &l.how);
		chip.cluster = l.how.cluster / 2;
		l.f = place_kernel(p, l.how.kernel);
		if (l.f == NULL)
			return CUDA_ERROR_NOT_FOUND;
		rc = launch_prepare(&l, &chip, s);
	} while (l.how.cluster > 1 && (rc != CUDA_SUCCESS || !launch_fits(&l)));
	return rc == CUDA_SUCCESS ? launch(&l, params) : rc;
}

int device_derive(const struct device_derivation *d, uint64_t stream)
{
	const struct derive *row = derive_find(d->name);
	struct visit v;
	int err = device_error(visit_stream(&v, stream));
	const struct place *p = err == 0 ? place_here() : NULL;
	bool can = p != NULL && row != NULL && place_kernel(p, d->name) != NULL;

	if (err == 0)
		err = can ? device_error(derive(p, row, d, (CUstream)stream)) : -ENOSYS;
	visit_end(&v);
	return err;
}

/* ---- a number for each row ---- */

struct look {
	const char *kernel;
	unsigned char start; /* each byte of a number, before */
	uint32_t count;
	uint64_t *out;
};

/* The rows are in the table. On return @s is done. */
static CUresult look_through(const struct look *l, const struct table *t, CUfunction f, CUstream s)
{
	CUdeviceptr numbers = table_numbers_device(t);
	size_t bytes = l->count * sizeof(*l->out);
	CUresult rc = REAL(cuMemsetD8Async)(numbers, l->start, bytes, s);

	if (rc == CUDA_SUCCESS)
		rc = table_launch(t, l->count, f, maintain_blocks, s);
	if (rc == CUDA_SUCCESS)
		rc = REAL(cuMemcpyDtoHAsync_v2)(table_numbers(t), numbers, bytes, s);
	if (rc == CUDA_SUCCESS)
		rc = REAL(cuStreamSynchronize)(s);
	if (rc == CUDA_SUCCESS)
		memcpy(l->out, table_numbers(t), bytes);
	return rc;
}

/* @fill the rows of a table from @from. @return 0 or -errno. */
static int look(const struct look *l,
		void (*fill)(struct publish_op *ops, const void *from, uint32_t count),
		const void *from, CUstream s)
{
	struct place *p = place_here();
	CUfunction f = p != NULL ? place_kernel(p, l->kernel) : NULL;
	struct table *t;
	CUresult rc;

	if (f == NULL)
		return -ENOSYS;
	rc = table_get(p, l->count, &t);
	if (rc != CUDA_SUCCESS)
		return device_error(rc);
	fill(t->host, from, l->count);
	rc = look_through(l, t, f, s);
	table_put_behind(p, t, s);
	return device_error(rc);
}

static void fill_spans(struct publish_op *ops, const void *from, uint32_t count)
{
	const struct device_span *spans = from;

	for (uint32_t i = 0; i < count; i++)
		ops[i] = (struct publish_op){ .src = spans[i].addr, .bytes = spans[i].bytes };
}

static void fill_pairs(struct publish_op *ops, const void *from, uint32_t count)
{
	const struct device_copy *pairs = from;

	for (uint32_t i = 0; i < count; i++)
		ops[i] = (struct publish_op){ .dst = pairs[i].dst,
					      .src = pairs[i].src,
					      .bytes = pairs[i].bytes };
}

int device_fingerprint(const struct device_span *spans, uint32_t count, uint64_t stream,
		       uint64_t *out)
{
	const struct look l = { "arena_fingerprint", 0, count, out };
	struct visit v;
	int err = device_error(visit_stream(&v, stream));

	if (err == 0 && count != 0)
		err = look(&l, fill_spans, spans, (CUstream)stream);
	visit_end(&v);
	return err;
}

int device_compare(const struct device_copy *pairs, uint32_t count, uint64_t stream,
		   uint64_t *first)
{
	const struct look l = { "arena_compare", 0xff, count, first };
	struct visit v;
	int err = device_error(visit_stream(&v, stream));

	if (err == 0 && count != 0)
		err = look(&l, fill_pairs, pairs, (CUstream)stream);
	visit_end(&v);
	return err;
}
