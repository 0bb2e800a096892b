/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the copies of one publication, in one launch of kernels/publish.cu.
 *
 * The kernel reads its table of copies from device memory. A table is a piece of pinned memory
 * and one of the device; it is filled on the host, sent along on the stream, and free again when
 * the event behind the launch is done. Where the kernel cannot be had (no image for this device, a
 * build without nvcc, memory of another device), the driver is asked slot by slot.
 *
 * Threads: any. The spin lock guards the lists; the driver is called without it.
 */
#include <errno.h>

#include "arena/device.h"
#include "arena/slab.h"
#include "kernels/image.h"
#include "kernels/publish.h"
#include "shim/device.h"

#define TABLE_MIN 1024u /* copies: 32 KiB */

struct table {
	struct table *next;
	struct publish_op *host;
	CUdeviceptr device;
	uint32_t cap;
	CUevent done; /* behind its newest use */
};

/* A context in which something was copied. */
struct place {
	struct place *next;   /* constant once linked */
	_Atomic uint64_t ctx; /* 0: the context is gone */
	CUdevice device;
	CUfunction publish;   /* NULL: not to be had */
	struct table *tables; /* not in use by a thread; guarded by lock */
};

static struct slab places_slab = SLAB_INIT(struct place);
static struct slab tables_slab = SLAB_INIT(struct table);
static struct spinlock lock = SPINLOCK_INIT;
static struct place *_Atomic places;

/* ---- places ---- */

static struct place *place_find(uint64_t ctx)
{
	/* Pairs with the swap in place_link(). */
	struct place *p = load_acquire(&places);

	/* Relaxed: who works in a context knows that it is there. */
	while (p != NULL && load_relaxed(&p->ctx) != ctx)
		p = p->next;
	return p;
}

/* One of @p and what another thread linked for the same context meanwhile. */
static struct place *place_link(struct place *p)
{
	struct place *other;

	spin_lock(&lock);
	other = place_find(load_relaxed(&p->ctx));
	if (other == NULL) {
		p->next = load_relaxed(&places);
		/* Pairs with the acquire in place_find(): the object is complete. */
		store_release(&places, p);
	}
	spin_unlock(&lock);
	if (other == NULL)
		return p;
	slab_put(&places_slab, p);
	return other;
}

static void place_load(struct place *p)
{
	CUmodule module;

	if (kernel_image == NULL || REAL(cuModuleLoadData)(&module, kernel_image) != CUDA_SUCCESS)
		return;
	if (REAL(cuModuleGetFunction)(&p->publish, module, "arena_publish") != CUDA_SUCCESS)
		p->publish = NULL;
}

/* Of the current context. @return NULL: no memory. */
static struct place *place_here(void)
{
	CUcontext ctx = NULL;
	struct place *p;

	if (REAL(cuCtxGetCurrent)(&ctx) != CUDA_SUCCESS || ctx == NULL)
		return NULL;
	p = place_find((uint64_t)(uintptr_t)ctx);
	if (p != NULL)
		return p;
	p = slab_get(&places_slab);
	if (p == NULL)
		return NULL;
	*p = (struct place){ .device = -1 };
	store_relaxed(&p->ctx, (uint64_t)(uintptr_t)ctx);
	REAL(cuCtxGetDevice)(&p->device);
	place_load(p);
	return place_link(p);
}

void device_forget(uint64_t ctx)
{
	struct place *p = ctx != 0 ? place_find(ctx) : NULL;

	/* The object stays, another thread may be walking by. Its tables went with the context. */
	if (p != NULL)
		store_relaxed(&p->ctx, 0);
}

/* ---- tables ---- */

static void table_free(struct table *t)
{
	if (t->host != NULL)
		REAL(cuMemFreeHost)(t->host);
	if (t->device != 0)
		REAL(cuMemFree_v2)(t->device);
	if (t->done != NULL)
		REAL(cuEventDestroy_v2)(t->done);
	slab_put(&tables_slab, t);
}

static CUresult table_new(uint32_t count, struct table **out)
{
	struct table *t = slab_get(&tables_slab);
	uint32_t cap = TABLE_MIN;
	CUresult rc;

	*out = NULL;
	if (t == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	while (cap < count)
		cap *= 2;
	*t = (struct table){ .cap = cap };
	rc = REAL(cuMemHostAlloc)((void **)&t->host, cap * sizeof(*t->host), 0);
	if (rc == CUDA_SUCCESS)
		rc = REAL(cuMemAlloc_v2)(&t->device, cap * sizeof(*t->host));
	if (rc == CUDA_SUCCESS)
		rc = REAL(cuEventCreate)(&t->done, CU_EVENT_DISABLE_TIMING);
	if (rc == CUDA_SUCCESS)
		*out = t;
	else
		table_free(t);
	return rc;
}

static void table_put(struct place *p, struct table *t)
{
	spin_lock(&lock);
	t->next = p->tables;
	p->tables = t;
	spin_unlock(&lock);
}

/* A table with room that the device is done with. */
static CUresult table_get(struct place *p, uint32_t count, struct table **out)
{
	struct table *all, *next;

	*out = NULL;
	/* Take them all, so that none is asked for under the lock. */
	spin_lock(&lock);
	all = p->tables;
	p->tables = NULL;
	spin_unlock(&lock);
	for (; all != NULL; all = next) {
		next = all->next;
		if (*out == NULL && all->cap >= count &&
		    REAL(cuEventQuery)(all->done) == CUDA_SUCCESS)
			*out = all;
		else
			table_put(p, all);
	}
	return *out != NULL ? CUDA_SUCCESS : table_new(count, out);
}

/* ---- copies ---- */

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

static CUresult launch(const struct place *p, const struct table *t, uint32_t count, CUstream s)
{
	struct arena_publish_args a = {
		.ops = t->device,
		.count = count,
		.tiles = publish_plan(t->host, count),
	};
	void *params[] = { &a.ops, &a.count, &a.tiles };
	/* A block for each tile: measured faster on an H200 than blocks that stay and walk on. */
	uint32_t blocks = a.tiles < PUBLISH_BLOCKS_MAX ? (uint32_t)a.tiles : PUBLISH_BLOCKS_MAX;
	CUresult rc = CUDA_SUCCESS;

	if (count == 0)
		return CUDA_SUCCESS;
	rc = REAL(cuMemcpyHtoDAsync_v2)(t->device, t->host, count * sizeof(*t->host), s);
	if (rc != CUDA_SUCCESS)
		return rc;
	return REAL(cuLaunchKernel)(p->publish, blocks, 1, 1, PUBLISH_THREADS, 1, 1, 0, s, params,
				    NULL);
}

static int copy_at_once(struct place *p, const struct device_copy *ops, uint32_t count, CUstream s)
{
	struct table *t;
	CUresult rc = table_get(p, count, &t);

	if (rc != CUDA_SUCCESS)
		return device_error(rc);
	rc = launch(p, t, fill(t, ops, count), s);
	if (REAL(cuEventRecord)(t->done, s) == CUDA_SUCCESS ||
	    REAL(cuStreamSynchronize)(s) == CUDA_SUCCESS)
		table_put(p, t);
	/* Else nobody knows when the device is done with it, and it is better lost. */
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

/* May a kernel of @p touch @addr? Peers may not have been introduced. */
static bool is_near(const struct place *p, uint64_t addr)
{
	int ordinal = -1;
	CUresult rc =
		REAL(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, addr);

	return rc == CUDA_SUCCESS && ordinal == p->device;
}

int device_copy_batch(const struct device_copy *ops, uint32_t count, uint64_t stream)
{
	struct visit v;
	CUresult rc = visit_stream(&v, stream);
	struct place *p = NULL;
	int err = device_error(rc);

	if (err == 0)
		p = place_here();
	if (err == 0 && count != 0) {
		if (p != NULL && p->publish != NULL && is_near(p, ops[0].dst))
			err = copy_at_once(p, ops, count, (CUstream)stream);
		else
			err = copy_each(ops, count, (CUstream)stream);
	}
	visit_end(&v);
	return err;
}
