/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: contexts with their kernels and tables (place.h).
 *
 * Threads: any. The spin lock guards the lists; the driver is called without it.
 */
#include "arena/slab.h"
#include "kernels/image.h"
#include "shim/place.h"

#define TABLE_MIN 1024u /* rows: 40 KiB */
#define ROW_BYTES (sizeof(struct publish_op) + sizeof(uint64_t))

struct place {
	struct place *next;   /* constant once linked */
	_Atomic uint64_t ctx; /* 0: the context is gone */
	CUdevice device;
	CUmodule module;      /* NULL: not to be had */
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

CUfunction place_kernel(const struct place *p, const char *name)
{
	CUfunction f;

	if (p->module == NULL || REAL(cuModuleGetFunction)(&f, p->module, name) != CUDA_SUCCESS)
		return NULL;
	return f;
}

static void place_load(struct place *p)
{
	if (kernel_image == NULL ||
	    REAL(cuModuleLoadData)(&p->module, kernel_image) != CUDA_SUCCESS)
		p->module = NULL;
	/* Where kernels are loaded at their first use, those of a commit are loaded now. */
	place_kernel(p, "arena_publish");
	place_kernel(p, "arena_zero");
}

bool place_is_near(const struct place *p, uint64_t addr)
{
	int ordinal = -1;
	CUresult rc =
		REAL(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, addr);

	return rc == CUDA_SUCCESS && ordinal == p->device;
}

struct place *place_here(void)
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

bool place_is_gone(const struct place *p)
{
	/* Relaxed: who destroys a context in which another thread works races with that. */
	return load_relaxed(&p->ctx) == 0;
}

void place_forget(uint64_t ctx)
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
	rc = REAL(cuMemHostAlloc)((void **)&t->host, cap * ROW_BYTES, 0);
	if (rc == CUDA_SUCCESS)
		rc = REAL(cuMemAlloc_v2)(&t->device, cap * ROW_BYTES);
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

CUresult table_get(struct place *p, uint32_t count, struct table **out)
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

void table_put_behind(struct place *p, struct table *t, CUstream s)
{
	if (REAL(cuEventRecord)(t->done, s) == CUDA_SUCCESS ||
	    REAL(cuStreamSynchronize)(s) == CUDA_SUCCESS)
		table_put(p, t);
	/* Else nobody knows when the device is done with it, and it is better lost. */
}

CUresult table_launch(const struct table *t, uint32_t count, CUfunction kernel,
		      uint32_t (*blocks)(uint64_t tiles), CUstream s)
{
	uint64_t ops = t->device, tiles = publish_plan(t->host, count);
	CUdeviceptr numbers = table_numbers_device(t);
	void *params[] = { &ops, &count, &tiles, &numbers };
	CUresult rc = REAL(cuMemcpyHtoDAsync_v2)(t->device, t->host, count * sizeof(*t->host), s);

	if (rc != CUDA_SUCCESS)
		return rc;
	return REAL(cuLaunchKernel)(kernel, blocks(tiles), 1, 1, PUBLISH_THREADS, 1, 1, 0, s,
				    params, NULL);
}
