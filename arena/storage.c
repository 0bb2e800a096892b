/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device storage of arenas: chunks that only grow, bump pointers, extents given back.
 *
 * Whatever is free has never been handed out, so it still has the zeros it came with. Two threads
 * that miss at the same time each bring a chunk; both are used.
 *
 * Threads: any. The lock of a storage is a leaf, and no device call is made under it.
 */
#include "arena/storage.h"

#include <inttypes.h>

#include "arena/device.h"
#include "arena/ledger.h"
#include "arena/registry.h"
#include "arena/slab.h"

#define ALIGN_BYTES	256u
#define CHUNK_MIN_BYTES ((uint64_t)64 << 10)
#define CHUNK_MAX_BYTES ((uint64_t)2 << 20) /* a large page of the device */
#define LARGE_BYTES	((uint64_t)1 << 20) /* from here on an allocation of its own */

/* A chunk, or a free piece of one: its rest, or what was given back. */
struct extent {
	struct extent *next;
	uint64_t addr, bytes;
	int32_t device;
};

struct storage {
	struct spinlock lock; /* guards the rest */
	struct extent *free, *chunks;
	uint64_t chunk_bytes; /* size of the newest chunk, 0: none yet */
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

/* Device memory that is a range of the ledger. */
static int device_get(int32_t device_ordinal, uint64_t bytes, uint64_t *addr)
{
	int err = device.alloc != NULL ? device.alloc(bytes, device_ordinal, addr) : -1;

	if (err)
		return arena_fail(ARENA_E_DEVICE,
				  "device %" PRId32 ": no %" PRIu64 " bytes for an arena (%d); "
				  "free device memory, %" PRIu64 " bytes are held by arenas",
				  device_ordinal, bytes, err, storage_bytes());
	if (ledger_open(&(struct range_desc){ .base = *addr,
					      .size_bytes = bytes,
					      .kind = RANGE_DEVICE,
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

static struct extent *extent_new(int32_t device_ordinal, uint64_t addr, uint64_t bytes)
{
	struct extent *e = slab_get(&extents);

	if (e != NULL)
		*e = (struct extent){ NULL, addr, bytes, device_ordinal };
	return e;
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

/* Cut @bytes off the first extent that has them. Lock held. @return false: none has. */
static bool cut(struct storage *s, int32_t device_ordinal, uint64_t bytes, uint64_t *addr)
{
	for (struct extent **at = &s->free, *e; (e = *at) != NULL; at = &e->next) {
		if (e->device != device_ordinal || e->bytes < bytes)
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

static uint64_t next_chunk_bytes(const struct storage *s, uint64_t bytes)
{
	uint64_t size = s->chunk_bytes ? 2 * s->chunk_bytes : CHUNK_MIN_BYTES;

	while (size < bytes)
		size *= 2;
	return size < CHUNK_MAX_BYTES ? size : CHUNK_MAX_BYTES;
}

/* A new chunk, of which the caller gets the first @bytes. Lock not held. */
static int chunk_take(const struct arena *a, int32_t device_ordinal, uint64_t bytes, uint64_t *addr)
{
	struct extent *chunk = extent_new(device_ordinal, 0, 0);
	struct extent *rest = extent_new(device_ordinal, 0, 0);
	struct storage *s = a->storage;
	uint64_t size;
	bool whole;
	int err = ARENA_E_NOMEM;

	spin_lock(&s->lock);
	size = next_chunk_bytes(s, bytes);
	spin_unlock(&s->lock);
	if (chunk != NULL && rest != NULL)
		err = device_get(device_ordinal, size, addr);
	else
		arena_fail(err, "no host memory for device storage");
	if (err) {
		extent_free(chunk);
		extent_free(rest);
		return err;
	}
	whole = size == bytes;
	chunk->addr = *addr;
	chunk->bytes = size;
	rest->addr = *addr + bytes;
	rest->bytes = size - bytes;
	spin_lock(&s->lock);
	s->chunk_bytes = size;
	extent_push(&s->chunks, chunk);
	if (!whole)
		extent_push(&s->free, rest);
	spin_unlock(&s->lock);
	if (whole)
		extent_free(rest);
	return ARENA_OK;
}

int storage_take(struct arena *a, int32_t device_ordinal, uint64_t bytes, uint64_t *addr)
{
	bool found;

	if (bytes >= LARGE_BYTES)
		return device_get(device_ordinal, bytes, addr);
	bytes = aligned(bytes);
	spin_lock(&a->storage->lock);
	found = cut(a->storage, device_ordinal, bytes, addr);
	spin_unlock(&a->storage->lock);
	return found ? ARENA_OK : chunk_take(a, device_ordinal, bytes, addr);
}

static const struct extent *chunk_of(const struct storage *s, uint64_t addr)
{
	const struct extent *c = s->chunks;

	while (c != NULL && addr - c->addr >= c->bytes)
		c = c->next;
	return c;
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
	*e = (struct extent){ NULL, addr, bytes, c->device };
	extent_push(&s->free, e);
	return true;
}

void storage_untake(struct arena *a, uint64_t addr, uint64_t bytes)
{
	const struct extent *c;
	struct extent *e;
	bool used;

	if (bytes >= LARGE_BYTES) {
		device_put(addr, bytes);
		return;
	}
	/* Without host memory for the note it stays unused. */
	e = extent_new(0, 0, 0);
	spin_lock(&a->storage->lock);
	c = chunk_of(a->storage, addr);
	used = c != NULL && give_back(a->storage, c, e, addr, aligned(bytes));
	spin_unlock(&a->storage->lock);
	if (!used)
		extent_free(e);
}
