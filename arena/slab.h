/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the core: mmap slabs, never the host's malloc. Any thread. */
#ifndef ARENA_SLAB_H
#define ARENA_SLAB_H

#include <stddef.h>
#include <stdint.h>

#include "atomics.h"

/*
 * A pool of equal objects. Objects are type-stable: memory that was once an object of the pool
 * stays an object of the pool (possibly free) and is never unmapped, so a lock-free reader may
 * look at a stale pointer and find out from a generation that it is stale.
 */
struct slab {
	size_t object_bytes;	/* set before first use, multiple of 8 */
	struct spinlock lock;	/* guards the rest */
	void *free_list;	/* linked through the last 8 bytes of a free object */
	char *bump, *bump_end;	/* unused rest of the newest mapping */
	counter_t objects_live;	/* written under the lock, read without */
};

#define SLAB_INIT(type)	{ .object_bytes = (sizeof(type) + 15) & ~(size_t)15, .lock = SPINLOCK_INIT }

/* @brief A zeroed object on first use; later uses keep the bytes the last owner left.
 * @return NULL when the system has no memory. */
void *slab_get(struct slab *s);
void slab_put(struct slab *s, void *object);

/* @brief Zeroed memory for an array; small ones share pages.
 * @return NULL when the system has no memory. */
void *pages_get(size_t size_bytes);
/* @param size_bytes as in pages_get(), or capacity * elem_bytes after pages_grow(). */
void pages_put(void *p, size_t size_bytes);

/* @brief Bytes that the core holds from the system now. */
uint64_t slab_bytes(void);

/* @brief Grow an array of @elem_bytes elements to hold @need; contents are kept.
 * @param array address of the pointer, @param cap address of the capacity in elements.
 * @return 0 or -ENOMEM, then nothing changed. Caller serialises. */
int pages_grow(void *array, uint32_t *cap, uint32_t need, size_t elem_bytes);

#endif
