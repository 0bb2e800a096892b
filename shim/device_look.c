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
	return chip;
}

static CUresult derive(const struct place *p, const struct derive *row,
		       const struct device_derivation *d, CUstream s)
{
	struct derive_chip chip = chip_here();
	void *params[DERIVE_PARAMS_MAX];
	CUresult rc = CUDA_SUCCESS;
	struct derive_launch l;
	CUfunction f;

	derive_launch(row, d->args, &chip, &l);
	f = place_kernel(p, l.kernel);
	for (uint32_t i = 0; i < row->params_count; i++)
		params[i] = (char *)(uintptr_t)d->args + row->params[i].offset;
	if (f == NULL)
		return CUDA_ERROR_NOT_FOUND;
	/* The most, not this launch's share: another thread may be between the same two calls. */
	if (l.shared != 0)
		rc = REAL(cuFuncSetAttribute)(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
					      (int)chip.shared);
	if (rc == CUDA_SUCCESS)
		rc = REAL(cuLaunchKernel)(f, l.blocks, 1, 1, l.threads, 1, 1, l.shared, s, params,
					  NULL);
	return rc;
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
