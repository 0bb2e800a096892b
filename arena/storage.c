/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device storage of arenas: chunks that only grow, bump pointers, extents given back.
 *
 * Whatever is free has never been handed out, so it still has the zeros it came with. Two threads
 * that miss at the same time each bring a chunk; both are used.
 *
 * A chunk belongs to a context, is cut up only for threads that work in it, and dies with it:
 * then the driver has freed it, and slots that lay in it are bound to nothing.
 *
 * Threads: any. The lock of a storage is a leaf, and no device call is made under it; it may be
 * taken under the registry lock.
 */
#include "arena/storage.h"

#include <errno.h>
#include <inttypes.h>

#include "arena/binding.h"
#include "arena/device.h"
#include "arena/ledger.h"
#include "arena/registry.h"
#include "arena/slab.h"

#define ALIGN_BYTES	256u
#define CHUNK_MIN_BYTES ((uint64_t)64 << 10)
#define CHUNK_MAX_BYTES ((uint64_t)2 << 20) /* a large page of the device */
#define LARGE_BYTES	((uint64_t)1 << 20) /* from here on an allocation of its own */

/* What the driver gave, or a free piece of it: its rest, or what was given back. */
struct extent {
	struct extent *next;
	uint64_t addr, bytes;
	struct device_place at;
};

struct storage {
	struct spinlock lock; /* guards the rest */
	struct extent *free;
	struct extent *chunks; /* allocations of a large slot too */
	uint64_t chunk_bytes;  /* size of the newest chunk, 0: none yet */
};

static struct slab storages = SLAB_INIT(struct storage);
static struct slab extents = SLAB_INIT(struct extent);
static counter_t bytes_held;

struct storage *storage_new(void)
{
	struct storage *s = slab_get(&storages);

	if (s != NULL)
		*s = (struct storage){ .lock = SPINLOCK_INIT };
	return s;
}

void storage_free(struct storage *s)
{
	if (s != NULL)
		slab_put(&storages, s);
}

uint64_t storage_bytes(void)
{
	return load_relaxed(&bytes_held);
}

static uint64_t aligned(uint64_t bytes)
{
	return (bytes + ALIGN_BYTES - 1) & ~(uint64_t)(ALIGN_BYTES - 1);
}

static int fail_device(const struct device_place *at, uint64_t bytes, int err)
{
	int32_t count = err == -ENODEV && device.devices != NULL ? device.devices() : 0;

	if (count > 0)
		return arena_fail(ARENA_E_DEVICE,
				  "spec.device: there is no device %d, the process sees %d; pass 0 "
				  "to %d",
				  at->device, count, count - 1);
	return arena_fail(ARENA_E_DEVICE,
			  "device %" PRId32 ": no %" PRIu64 " bytes for an arena (%d); "
			  "free device memory, %" PRIu64 " bytes are held by arenas",
			  at->device, bytes, err, storage_bytes());
}

/* Device memory that is a range of the ledger. */
static int device_get(const struct device_place *at, uint64_t bytes, uint64_t *addr)
{
	int err = device.alloc != NULL ? device.alloc(bytes, at->device, addr) : -1;

	if (err)
		return fail_device(at, bytes, err);
	if (ledger_open(&(struct range_desc){ .base = *addr,
					      .size_bytes = bytes,
					      .kind = RANGE_DEVICE,
					      .context = at->context,
					      .scope = STORAGE_SCOPE }) == NULL) {
		device.free(*addr);
		return arena_fail(ARENA_E_NOMEM,
				  "no host memory to note %" PRIu64 " bytes of device memory",
				  bytes);
	}
	add_relaxed(&bytes_held, bytes);
	return ARENA_OK;
}

static void device_put(uint64_t addr, uint64_t bytes)
{
	struct range *r = ledger_close_begin(addr, 0);

	device.free(addr);
	ledger_close_end(r, true);
	add_relaxed(&bytes_held, -bytes);
}

static struct extent *extent_new(void)
{
	return slab_get(&extents);
}

static void extent_free(struct extent *e)
{
	if (e != NULL)
		slab_put(&extents, e);
}

static void extent_push(struct extent **list, struct extent *e)
{
	e->next = *list;
	*list = e;
}

/* Take out of @list the extents of @context, all of them. Lock held. @return their list. */
static struct extent *extents_of(struct extent **list, uint64_t context)
{
	struct extent *taken = NULL, *e;

	while ((e = *list) != NULL) {
		if (e->at.context != context) {
			list = &e->next;
			continue;
		}
		*list = e->next;
		extent_push(&taken, e);
	}
	return taken;
}

/* Cut @bytes off the first extent that has them. Lock held. @return false: none has. */
static bool cut(struct storage *s, const struct device_place *here, uint64_t bytes, uint64_t *addr)
{
	for (struct extent **at = &s->free, *e; (e = *at) != NULL; at = &e->next) {
		if (!device_place_same(&e->at, here) || e->bytes < bytes)
			continue;
		*addr = e->addr;
		e->addr += bytes;
		e->bytes -= bytes;
		if (e->bytes == 0) {
			*at = e->next;
			extent_free(e);
		}
		return true;
	}
	return false;
}

/* Lock not held. */
static uint64_t next_chunk_bytes(struct storage *s, uint64_t bytes)
{
	uint64_t size;

	spin_lock(&s->lock);
	size = s->chunk_bytes ? 2 * s->chunk_bytes : CHUNK_MIN_BYTES;
	spin_unlock(&s->lock);
	while (size < bytes)
		size *= 2;
	return size < CHUNK_MAX_BYTES ? size : CHUNK_MAX_BYTES;
}

/* The first @bytes of the new @chunk are taken, the @rest is free. Lock not held. */
static void chunk_enter(struct storage *s, struct extent *chunk, struct extent *rest,
			uint64_t bytes)
{
	bool whole = chunk->bytes == bytes;

	*rest = (struct extent){ .addr = chunk->addr + bytes,
				 .bytes = chunk->bytes - bytes,
				 .at = chunk->at };
	spin_lock(&s->lock);
	if (bytes < LARGE_BYTES)
		s->chunk_bytes = chunk->bytes;
	extent_push(&s->chunks, chunk);
	if (!whole)
		extent_push(&s->free, rest);
	spin_unlock(&s->lock);
	if (whole)
		extent_free(rest);
}

/* A new chunk of @size, of which the caller gets the first @bytes. Lock not held. */
static int chunk_take(struct storage *s, const struct device_place *at, uint64_t size,
		      uint64_t bytes, uint64_t *addr)
{
	struct extent *chunk = extent_new(), *rest = extent_new();
	int err = ARENA_E_NOMEM;

	if (chunk != NULL && rest != NULL)
		err = device_get(at, size, addr);
	else
		arena_fail(err, "no host memory for device storage");
	if (err) {
		extent_free(chunk);
		extent_free(rest);
		return err;
	}
	*chunk = (struct extent){ .addr = *addr, .bytes = size, .at = *at };
	chunk_enter(s, chunk, rest, bytes);
	return ARENA_OK;
}

int storage_take(struct arena *a, int32_t device_ordinal, uint64_t bytes, uint64_t *addr)
{
	struct device_place here = device_place(device_ordinal);
	struct storage *s = a->storage;
	bool found;

	if (bytes >= LARGE_BYTES)
		return chunk_take(s, &here, bytes, bytes, addr);
	bytes = aligned(bytes);
	spin_lock(&s->lock);
	found = cut(s, &here, bytes, addr);
	spin_unlock(&s->lock);
	return found ? ARENA_OK : chunk_take(s, &here, next_chunk_bytes(s, bytes), bytes, addr);
}

/* ---- giving back ---- */

/* The chunk that @addr lies in; NULL: its context is gone. Lock held. */
static struct extent **chunk_of(struct storage *s, uint64_t addr)
{
	struct extent **at = &s->chunks;

	while (*at != NULL && addr - (*at)->addr >= (*at)->bytes)
		at = &(*at)->next;
	return at;
}

/* [@addr, @addr + @bytes) of chunk @c is free again. Lock held. @param e becomes it, or is left.
 * @return was it used? */
static bool give_back(struct storage *s, const struct extent *c, struct extent *e, uint64_t addr,
		      uint64_t bytes)
{
	/* The piece behind it, if that is not the start of a neighbouring chunk. */
	for (struct extent *f = s->free; f != NULL; f = f->next)
		if (f->addr == addr + bytes && f->addr - c->addr < c->bytes) {
			f->addr = addr;
			f->bytes += bytes;
			return false;
		}
	if (e == NULL)
		return false;
	*e = (struct extent){ .addr = addr, .bytes = bytes, .at = c->at };
	extent_push(&s->free, e);
	return true;
}

static void give_back_large(struct storage *s, uint64_t addr)
{
	struct extent **at, *c;

	spin_lock(&s->lock);
	at = chunk_of(s, addr);
	c = *at;
	if (c != NULL)
		*at = c->next;
	spin_unlock(&s->lock);
	if (c != NULL)
		device_put(c->addr, c->bytes);
	extent_free(c);
}

void storage_untake(struct arena *a, uint64_t addr, uint64_t bytes)
{
	const struct extent *c;
	struct extent *e;
	bool used;

	if (bytes >= LARGE_BYTES) {
		give_back_large(a->storage, addr);
		return;
	}
	/* Without host memory for the note it stays unused. */
	e = extent_new();
	spin_lock(&a->storage->lock);
	c = *chunk_of(a->storage, addr);
	used = c != NULL && give_back(a->storage, c, e, addr, aligned(bytes));
	spin_unlock(&a->storage->lock);
	if (!used)
		extent_free(e);
}

/* ---- contexts that are gone ---- */

/* Slots of @a that lie in the dead chunk @c are bound to nothing. Registry lock held. */
static void unbind(struct arena *a, const struct extent *c)
{
	for (struct slot *s = a->slots; s != NULL; s = s->next)
		if ((s->kind == ARENA_VALUE || s->kind == ARENA_SCRATCH) && s->base != 0 &&
		    s->base - c->addr < c->bytes)
			binding_clear(s);
}

/* Registry lock held. */
static void context_gone(struct arena *a, uint64_t context)
{
	struct extent *free, *dead, *e;

	spin_lock(&a->storage->lock);
	free = extents_of(&a->storage->free, context);
	dead = extents_of(&a->storage->chunks, context);
	spin_unlock(&a->storage->lock);
	while ((e = free) != NULL) {
		free = e->next;
		extent_free(e);
	}
	while ((e = dead) != NULL) {
		dead = e->next;
		unbind(a, e);
		add_relaxed(&bytes_held, -e->bytes);
		extent_free(e);
	}
}

void storage_context_gone(uint64_t context)
{
	registry_lock();
	for (struct arena *a = registry_first(); context != 0 && a != NULL; a = a->next)
		context_gone(a, context);
	registry_unlock();
}
