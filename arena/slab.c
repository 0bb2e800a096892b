/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the core.
 *
 * Equal objects come from slabs: a free list and a bump pointer under one spin lock; the lock is
 * never held across mmap. What a slab mapped stays a slab's for ever, which is what lock-free
 * readers of its objects rely on. Arrays come from size classes (slabs as well) up to half a
 * page, above it from mmap.
 *
 * Any thread. Fails only by returning NULL; never calls the host's malloc.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "arena/slab.h"

#define PAGE_BYTES ((size_t)4096)
/* Small pools map little; a pool that grows doubles up to the size of a huge page. */
#define CHUNK_MIN_BYTES ((size_t)64 << 10)
#define CHUNK_MAX_BYTES ((size_t)2 << 20)

static counter_t bytes_mapped;

static size_t round_up(size_t n, size_t unit)
{
	return (n + unit - 1) & ~(unit - 1);
}

static void unmap(void *p, size_t size_bytes)
{
	if (size_bytes == 0)
		return;
	munmap(p, size_bytes);
	add_relaxed(&bytes_mapped, -(uint64_t)size_bytes);
}

static void *map(size_t size_bytes)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	int saved = errno;
	void *p = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);

	errno = saved;
	if (p == MAP_FAILED)
		return NULL;
	add_relaxed(&bytes_mapped, size_bytes);
	return p;
}

/* Memory that can be huge pages: a million ranges are few TLB entries then.
 * @param size_bytes a multiple of CHUNK_MAX_BYTES. */
static char *map_huge(size_t size_bytes)
{
	char *p = map(size_bytes + CHUNK_MAX_BYTES), *start;
	int saved = errno;

	if (p == NULL)
		return NULL;
	start = p + (-(uintptr_t)p & (CHUNK_MAX_BYTES - 1));
	unmap(p, (size_t)(start - p));
	unmap(start + size_bytes, (size_t)(p + CHUNK_MAX_BYTES - start));
	madvise(start, size_bytes, MADV_HUGEPAGE);
	errno = saved;
	return start;
}

static size_t chunk_bytes(const struct slab *s)
{
	size_t want = load_relaxed(&s->objects_live) * s->object_bytes / 2;

	if (want < s->object_bytes)
		want = s->object_bytes;
	return want >= CHUNK_MAX_BYTES	 ? CHUNK_MAX_BYTES
	       : want <= CHUNK_MIN_BYTES ? CHUNK_MIN_BYTES
					 : round_up(want, PAGE_BYTES);
}

/* A free object's link lies in its last 8 bytes, which no reader of a stale pointer looks at. */
static void **link_of(const struct slab *s, void *object)
{
	return (void **)((char *)object + s->object_bytes - sizeof(void *));
}

/* An object, or NULL when there is none without more memory. Lock held. */
static void *take(struct slab *s)
{
	void *object = s->free_list;

	if (object != NULL) {
		s->free_list = *link_of(s, object);
	} else if ((size_t)(s->bump_end - s->bump) >= s->object_bytes) {
		object = s->bump;
		s->bump += s->object_bytes;
	}
	if (object != NULL)
		store_relaxed(&s->objects_live, load_relaxed(&s->objects_live) + 1);
	return object;
}

static __attribute__((cold, noinline)) void *slab_get_slow(struct slab *s)
{
	size_t size_bytes = chunk_bytes(s);
	char *chunk = size_bytes == CHUNK_MAX_BYTES ? map_huge(size_bytes) : map(size_bytes);
	void *object;

	if (chunk == NULL)
		return NULL;
	spin_lock(&s->lock);
	object = take(s);
	if (object == NULL) {
		s->bump = chunk;
		s->bump_end = chunk + size_bytes;
		object = take(s);
		chunk = NULL;
	}
	spin_unlock(&s->lock);
	/* Another thread was faster: nothing of this chunk has been an object yet. */
	if (chunk != NULL)
		unmap(chunk, size_bytes);
	return object;
}

void *slab_get(struct slab *s)
{
	void *object;

	spin_lock(&s->lock);
	object = take(s);
	spin_unlock(&s->lock);
	if (__builtin_expect(object == NULL, 0))
		object = slab_get_slow(s);
	return object;
}

void slab_put(struct slab *s, void *object)
{
	spin_lock(&s->lock);
	*link_of(s, object) = s->free_list;
	s->free_list = object;
	store_relaxed(&s->objects_live, load_relaxed(&s->objects_live) - 1);
	spin_unlock(&s->lock);
}

/* Size classes of small arrays: 64 << class bytes. */
#define CLASS_COUNT	6
#define CLASS_MAX_BYTES ((size_t)64 << (CLASS_COUNT - 1))

static struct slab classes[CLASS_COUNT] = {
	{ .object_bytes = 64 },	 { .object_bytes = 128 },  { .object_bytes = 256 },
	{ .object_bytes = 512 }, { .object_bytes = 1024 }, { .object_bytes = 2048 },
};

/* What an array of @size_bytes takes: a class or whole pages. */
static size_t room(size_t size_bytes)
{
	size_t class_bytes = classes[0].object_bytes;

	if (size_bytes > CLASS_MAX_BYTES)
		return round_up(size_bytes, PAGE_BYTES);
	while (class_bytes < size_bytes)
		class_bytes *= 2;
	return class_bytes;
}

static struct slab *class_of(size_t room_bytes)
{
	return &classes[__builtin_ctzll(room_bytes / classes[0].object_bytes)];
}

void *pages_get(size_t size_bytes)
{
	size_t room_bytes = room(size_bytes);
	void *p;

	if (size_bytes > PTRDIFF_MAX)
		return NULL;
	if (room_bytes > CLASS_MAX_BYTES)
		return room_bytes % CHUNK_MAX_BYTES == 0 ? map_huge(room_bytes) : map(room_bytes);
	p = slab_get(class_of(room_bytes));
	return p != NULL ? memset(p, 0, room_bytes) : NULL;
}

void pages_put(void *p, size_t size_bytes)
{
	size_t room_bytes = room(size_bytes);

	if (p == NULL)
		return;
	if (room_bytes > CLASS_MAX_BYTES)
		unmap(p, room_bytes);
	else
		slab_put(class_of(room_bytes), p);
}

uint64_t slab_bytes(void)
{
	return load_relaxed(&bytes_mapped);
}

/*
 * The capacity is what fits the room of @need elements, so that cap * elem_bytes leads back to
 * the same room in pages_put(): it is above half a class, or within the last page.
 */
int pages_grow(void *array, uint32_t *cap, uint32_t need, size_t elem_bytes)
{
	size_t used_bytes = *cap * elem_bytes, want_bytes, room_bytes;
	uint64_t want = need;
	void *old, *p;

	if (need <= *cap)
		return 0;
	if (want < (uint64_t)*cap * 2)
		want = (uint64_t)*cap * 2;
	if (__builtin_mul_overflow(want, elem_bytes, &want_bytes) || want_bytes > PTRDIFF_MAX)
		return -ENOMEM;
	room_bytes = room(want_bytes);
	if (room_bytes / elem_bytes > UINT32_MAX)
		return -ENOMEM;
	p = pages_get(room_bytes);
	if (p == NULL)
		return -ENOMEM;
	memcpy(&old, array, sizeof(old));
	if (used_bytes != 0)
		memcpy(p, old, used_bytes);
	memcpy(array, &p, sizeof(p));
	*cap = (uint32_t)(room_bytes / elem_bytes);
	pages_put(old, used_bytes);
	return 0;
}
