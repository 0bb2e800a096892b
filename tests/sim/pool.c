/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered allocation: pools keep freed blocks and hand them out again, newest first. Under
 * sim_lock.
 *
 * An allocation is usable at once. A free happens when its stream gets there; only then is the
 * block reused, or given back when the pool holds more than its release threshold at a
 * synchronisation (here: kept until trimmed). In a capture both become nodes.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct cached {
	uint64_t base, size;	/* size: as it was asked for, rounded */
	char *host;
	bool small;
	struct cached *next;
};

static struct pool *default_pools[DEVICES], *current_pools[DEVICES];

static struct pool *pool_new(CUdevice device)
{
	struct pool *p = obj_new(OBJ_POOL, sizeof(*p));

	p->device = device;
	p->props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	p->props.location = (CUmemLocation){ CU_MEM_LOCATION_TYPE_DEVICE, device };
	for (size_t i = 0; i < ARRAY_SIZE(p->reuse); i++)
		p->reuse[i] = 1;
	return p;
}

static struct pool *default_pool(CUdevice device)
{
	if (!default_pools[device]) {
		default_pools[device] = pool_new(device);
		default_pools[device]->is_default = true;
	}
	return default_pools[device];
}

static struct pool *current_pool(CUdevice device)
{
	struct pool *p = obj_get(current_pools[device], OBJ_POOL);

	return p ? p : default_pool(device);
}

static uint64_t rounded(uint64_t size)
{
	return size <= 1ull << 20 ? ROUND_UP(size, SMALL_GRANULE) : ROUND_UP(size, GRANULE);
}

/* The newest cached block of this size becomes a range again. */
static struct range *from_cache(struct pool *pool, uint64_t size)
{
	struct cached *c;
	struct range *r;

	for (struct cached **at = &pool->cache; (c = *at); at = &c->next) {
		if (c->size != rounded(size))
			continue;
		*at = c->next;
		r = range_new(c->base, size, c->host, RANGE_ASYNC);
		r->small = c->small;
		free(c);
		return r;
	}
	return NULL;
}

void pool_free_block(struct range *r)
{
	struct pool *pool = r->pool;
	struct cached *c;

	/* Memory of cuMemAlloc() may be freed in stream order, too; it has no pool. */
	if (!pool) {
		device_free(r);
		return;
	}
	pool->used -= r->size;
	alias_orphan(r);
	c = malloc(sizeof(*c));
	*c = (struct cached){ r->base, rounded(r->size), r->host, r->small, pool->cache };
	pool->cache = c;
	range_end(r);
}

/* Cached blocks go back to the allocator until at most @keep bytes are held. */
static void trim(struct pool *pool, uint64_t keep)
{
	uint64_t held = pool->used;
	struct cached *c, **at;

	for (c = pool->cache; c; c = c->next)
		held += c->size;
	for (at = &pool->cache; *at;) {
		c = *at;
		if (held <= keep)
			return;
		*at = c->next;
		held -= c->size;
		range_new(c->base, c->size, c->host, RANGE_ASYNC)->small = c->small;
		device_free(range_exact(c->base));
		free(c);
	}
}

/* ---- allocate and free ---- */

static CUresult alloc_node(CUdeviceptr *out, size_t size, const struct pool *pool, struct stream *s)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
	CUgraphNode node;
	struct op *op;
	CUresult rc;

	p.alloc.poolProps = pool->props;
	p.alloc.bytesize = size;
	rc = op_new(&p, &op);
	if (!rc)
		rc = capture_add(s, op, &node);
	if (!rc)
		*out = ((struct node *)node)->op->p.alloc.dptr;
	return rc;
}

CUresult do_cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool h, CUstream stream)
{
	struct pool *pool = obj_get(h, OBJ_POOL);
	struct stream *s = stream_get(stream);
	struct range *r;
	CUresult rc;
	int capture;

	if (!pool || !s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!out || !size || pool->imported)
		return CUDA_ERROR_INVALID_VALUE;
	capture = capture_check(s);
	if (capture)
		return capture < 0 ? (CUresult)-capture : alloc_node(out, size, pool, s);
	stream_run(s, s->submitted, false);	/* frees that are due, so that they are reused */
	r = from_cache(pool, size);
	if (!r) {
		rc = device_new(size, RANGE_ASYNC, &r);
		if (rc)
			return rc;
	}
	r->pool = pool;
	pool->used += size;
	pool->used_high = MAX(pool->used_high, pool->used);
	*out = r->base;
	return CUDA_SUCCESS;
}

CUresult do_cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream)
{
	struct stream *s = stream_get(stream);

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	return do_cuMemAllocFromPoolAsync(out, size,
					  (CUmemoryPool)current_pool(s->ctx->device), stream);
}

CUresult do_cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = { ptr } };
	struct stream *s = stream_get(stream);
	struct range *r = range_exact(ptr);
	CUresult rc;
	int capture;

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	capture = capture_check(s);
	if (capture)
		return capture < 0 ? (CUresult)-capture : stream_launch(stream, &p);
	/* Memory that a launched graph allocates may not exist yet: its launch is queued. */
	if (!r && graph_memory(ptr)) {
		stream_run(s, s->submitted, true);
		r = range_exact(ptr);
	}
	if (!r || r->freeing || (r->kind != RANGE_ASYNC && r->kind != RANGE_DEVICE &&
				 r->kind != RANGE_GRAPH && r->kind != RANGE_IMPORT))
		return CUDA_ERROR_INVALID_VALUE;
	rc = stream_launch(stream, &p);
	if (!rc)
		r->freeing = true;
	return rc;
}

/* ---- pools ---- */

CUresult do_cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	struct pool *p;

	if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (props->location.id < 0 || props->location.id >= DEVICES)
		return CUDA_ERROR_INVALID_DEVICE;
	p = pool_new(props->location.id);
	p->props = *props;
	*out = (CUmemoryPool)p;
	return CUDA_SUCCESS;
}

/* "If there are outstanding allocations ... the pool is destroyed when they are freed": here they
 * outlive it and go back to the allocator. */
CUresult do_cuMemPoolDestroy(CUmemoryPool h)
{
	struct pool *p = obj_get(h, OBJ_POOL);

	if (!p || p->is_default)
		return CUDA_ERROR_INVALID_VALUE;
	stream_finish_all();
	trim(p, 0);
	for (struct range *r = range_next(0); r; r = range_next(r->base + r->size))
		if (r->pool == p)
			r->pool = NULL;
	obj_drop(p);
	return CUDA_SUCCESS;
}

CUresult do_cuMemPoolTrimTo(CUmemoryPool h, size_t keep)
{
	struct pool *p = obj_get(h, OBJ_POOL);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	trim(p, keep);
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice dev)
{
	if (dev < 0 || dev >= DEVICES)
		return CUDA_ERROR_INVALID_DEVICE;
	*out = (CUmemoryPool)default_pool(dev);
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetMemPool(CUmemoryPool *out, CUdevice dev)
{
	if (dev < 0 || dev >= DEVICES)
		return CUDA_ERROR_INVALID_DEVICE;
	*out = (CUmemoryPool)current_pool(dev);
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool h)
{
	struct pool *p = obj_get(h, OBJ_POOL);

	if (dev < 0 || dev >= DEVICES || !p || p->device != dev)
		return CUDA_ERROR_INVALID_VALUE;
	current_pools[dev] = p;
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *at, CUmemAllocationType type)
{
	return do_cuDeviceGetDefaultMemPool(out, at->id);
}

CUresult do_cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *at, CUmemAllocationType type)
{
	return do_cuDeviceGetMemPool(out, at->id);
}

CUresult do_cuMemSetMemPool(CUmemLocation *at, CUmemAllocationType type, CUmemoryPool h)
{
	return do_cuDeviceSetMemPool(at->id, h);
}

CUresult do_cuMemPoolSetAccess(CUmemoryPool h, const CUmemAccessDesc *map, size_t n)
{
	return obj_get(h, OBJ_POOL) && map ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool h, CUmemLocation *at)
{
	*flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return obj_get(h, OBJ_POOL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The attribute's storage: 32 bits for the reuse flags, 64 for the rest. */
static CUresult attribute(struct pool *p, CUmemPool_attribute which, void *value, bool set)
{
	uint64_t held = 0;

	if (which >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
	    which <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
		int *at = &p->reuse[which - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];

		memcpy(set ? (void *)at : value, set ? value : at, sizeof(*at));
		return CUDA_SUCCESS;
	}
	for (const struct cached *c = p->cache; c; c = c->next)
		held += c->size;
	switch (which) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		memcpy(set ? (void *)&p->threshold : value, set ? value : &p->threshold, 8);
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		if (!set)
			*(uint64_t *)value = p->used + held;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		if (!set)
			*(uint64_t *)value = p->used;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		if (set)
			p->used_high = p->used;
		else
			*(uint64_t *)value = p->used_high;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult do_cuMemPoolGetAttribute(CUmemoryPool h, CUmemPool_attribute which, void *value)
{
	struct pool *p = obj_get(h, OBJ_POOL);

	return p && value ? attribute(p, which, value, false) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemPoolSetAttribute(CUmemoryPool h, CUmemPool_attribute which, void *value)
{
	struct pool *p = obj_get(h, OBJ_POOL);

	return p && value ? attribute(p, which, value, true) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- sharing: exporter and importer live in this process ---- */

struct pool_export { uint64_t base, id; };

CUresult do_cuMemPoolExportToShareableHandle(void *out, CUmemoryPool h,
					     CUmemAllocationHandleType type,
					     unsigned long long flags)
{
	struct pool *p = obj_get(h, OBJ_POOL);

	if (!p || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !(p->props.handleTypes & type))
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)out = dup(STDERR_FILENO);	/* any descriptor that the importer may close */
	return CUDA_SUCCESS;
}

CUresult do_cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle,
					       CUmemAllocationHandleType type,
					       unsigned long long flags)
{
	struct pool *p;

	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	p = pool_new(0);
	p->imported = true;
	*out = (CUmemoryPool)p;
	return CUDA_SUCCESS;
}

CUresult do_cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr ptr)
{
	struct range *r = range_exact(ptr);
	struct pool_export e;

	if (!r || r->kind != RANGE_ASYNC)
		return CUDA_ERROR_INVALID_VALUE;
	e = (struct pool_export){ r->base, r->id };
	memset(out, 0, sizeof(*out));
	memcpy(out, &e, sizeof(e));
	return CUDA_SUCCESS;
}

CUresult do_cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool h, CUmemPoolPtrExportData *data)
{
	struct pool *p = obj_get(h, OBJ_POOL);
	struct pool_export e;
	struct range *r;
	CUresult rc;

	memcpy(&e, data, sizeof(e));
	r = range_exact(e.base);
	if (!p || !r || r->id != e.id)
		return CUDA_ERROR_INVALID_VALUE;
	rc = alias_new(r->size, r->host, RANGE_IMPORT, &r);
	if (!rc)
		*out = r->base;
	return rc;
}

/* ---- memory of graphs ---- */

CUresult do_cuDeviceGraphMemTrim(CUdevice dev)
{
	return dev < 0 || dev >= DEVICES ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult do_cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute which, void *value)
{
	uint64_t used = 0;

	for (struct range *r = range_next(0); r; r = range_next(r->base + r->size))
		used += r->kind == RANGE_GRAPH ? r->size : 0;
	*(uint64_t *)value = used;
	return CUDA_SUCCESS;
}
