/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Size classes 2^k and 1.5 * 2^k from 32 bytes to 8 KiB over one slab each, so that at most a
 * third of a chunk is unused; larger ones are whole pages. Any thread; the slabs lock themselves.
 */
#include "arena/chunk.h"

#include <errno.h>
#include <string.h>

#include "arena/exec.h"
#include "arena/slab.h"

#define CLASS_MIN_LOG2	5
#define CLASS_COUNT	17
#define CLASS_MAX_BYTES 8192
#define PAGE_BYTES	4096
#define GROW_MIN	8 /* elements; smaller arrays would only be copied again */

#define CLASS(bytes)                                           \
	{                                                      \
		.object_bytes = (bytes), .lock = SPINLOCK_INIT \
	}

static struct slab classes[CLASS_COUNT] = {
	CLASS(32),   CLASS(48),	  CLASS(64),   CLASS(96),   CLASS(128),	 CLASS(192),
	CLASS(256),  CLASS(384),  CLASS(512),  CLASS(768),  CLASS(1024), CLASS(1536),
	CLASS(2048), CLASS(3072), CLASS(4096), CLASS(6144), CLASS(8192),
};

uint64_t exec_limit_bytes;

static _Atomic uint64_t bytes_out;

/* The smallest class that holds @size_bytes, which is at most CLASS_MAX_BYTES. */
static unsigned class_of(size_t size_bytes)
{
	unsigned log2;

	if (size_bytes <= 32)
		return 0;
	log2 = 63 - (unsigned)__builtin_clzl(size_bytes - 1);
	/* In (2^log2, 2^(log2 + 1)]: the lower half is served by 1.5 * 2^log2. */
	return 2 * (log2 - CLASS_MIN_LOG2) + (size_bytes <= (size_t)3 << (log2 - 1) ? 1 : 2);
}

static size_t stored_bytes(size_t size_bytes)
{
	if (size_bytes <= CLASS_MAX_BYTES)
		return classes[class_of(size_bytes)].object_bytes;
	return (size_bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
}

void *chunk_get(size_t size_bytes)
{
	size_t stored = stored_bytes(size_bytes);
	void *p;

	/* Relaxed: a limit, exact only as far as threads do not race for the last bytes. */
	if (exec_limit_bytes && load_relaxed(&bytes_out) + stored > exec_limit_bytes)
		return NULL;
	p = size_bytes <= CLASS_MAX_BYTES ? slab_get(&classes[class_of(size_bytes)])
					  : pages_get(stored);
	if (p)
		add_relaxed(&bytes_out, stored);
	return p;
}

void chunk_put(void *p, size_t size_bytes)
{
	size_t stored = stored_bytes(size_bytes);

	if (!p)
		return;
	if (size_bytes <= CLASS_MAX_BYTES)
		slab_put(&classes[class_of(size_bytes)], p);
	else
		pages_put(p, stored);
	add_relaxed(&bytes_out, -(uint64_t)stored);
}

int chunk_grow(void *array, uint32_t *cap, uint32_t need, size_t elem_bytes)
{
	uint32_t want = *cap + *cap / 2;
	void *old, *bigger;

	if (need <= *cap)
		return 0;
	if (want < need)
		want = need;
	if (want < GROW_MIN)
		want = GROW_MIN;
	bigger = chunk_get(want * elem_bytes);
	if (!bigger)
		return -ENOMEM;
	memcpy(&old, array, sizeof(old));
	if (old)
		memcpy(bigger, old, *cap * elem_bytes);
	chunk_put(old, *cap * elem_bytes);
	memcpy(array, &bigger, sizeof(bigger));
	*cap = want;
	return 0;
}

uint64_t chunk_bytes(void)
{
	return load_relaxed(&bytes_out);
}
