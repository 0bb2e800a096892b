/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory by blocks, each larger than the one before up to a limit, given back together.
 * The tool cannot go on without memory and says so; nothing else would be a true report.
 *
 * Threads: a pool belongs to one.
 */
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_MIN ((size_t)64 << 10)
#define BLOCK_MAX ((size_t)4 << 20)

struct pool_block {
	struct pool_block *before;
	size_t room, used;
	_Alignas(16) char bytes[];
};

static _Noreturn void no_memory(size_t size_bytes)
{
	fprintf(stderr, "arenactl: no memory for %zu bytes: read fewer or smaller reports\n",
		size_bytes);
	exit(3);
}

static void add_block(struct pool *p, size_t size_bytes)
{
	size_t room = p->block ? p->block->room * 2 : BLOCK_MIN;
	struct pool_block *b;

	if (room > BLOCK_MAX)
		room = BLOCK_MAX;
	if (room < size_bytes)
		room = size_bytes;
	b = malloc(sizeof(*b) + room);
	if (!b)
		no_memory(room);
	b->before = p->block;
	b->room = room;
	b->used = 0;
	p->block = b;
}

void *pool_take(struct pool *p, size_t size_bytes)
{
	size_t need;
	void *at;

	if (size_bytes > SIZE_MAX / 2)
		no_memory(size_bytes);
	need = (size_bytes + 15) & ~(size_t)15;
	if (!p->block || p->block->room - p->block->used < need)
		add_block(p, need);
	at = p->block->bytes + p->block->used;
	p->block->used += need;
	p->used_bytes += need;
	return memset(at, 0, need);
}

void *pool_copy(struct pool *p, const void *from, size_t size_bytes)
{
	void *at = pool_take(p, size_bytes);

	return size_bytes ? memcpy(at, from, size_bytes) : at;
}

char *pool_text(struct pool *p, const char *s)
{
	return s ? pool_copy(p, s, strlen(s) + 1) : NULL;
}

/* The first block stays: what is usual needs no malloc. */
void pool_reset(struct pool *p)
{
	while (p->block && p->block->before) {
		struct pool_block *b = p->block;

		p->block = b->before;
		free(b);
	}
	if (p->block)
		p->block->used = 0;
	p->used_bytes = 0;
}

void pool_free(struct pool *p)
{
	pool_reset(p);
	free(p->block);
	p->block = NULL;
}

void *pool_grow(struct pool *p, void *v, size_t *room, size_t count, size_t size_bytes)
{
	void *larger;

	if (count < *room)
		return v;
	*room = *room ? *room * 2 : 8;
	larger = pool_take(p, *room * size_bytes);
	return count ? memcpy(larger, v, count * size_bytes) : larger;
}
