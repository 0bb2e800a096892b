/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: device memory as an engine on PyTorch has it: blocks of a caching allocator, in segments
 * that never go back to the driver. So what is freed can still be read, and is, by a graph that
 * nobody told. Blocks are told to c10::reportMemoryUsageToProfiler(), as stock PyTorch does. All
 * memory has poison in it when it is handed out, and again when it is freed. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/engine.h"

#define POISON	1u
#define ROUND	512
#define SEGMENT ((uint64_t)2 << 20)

struct c10_device {
	int8_t type, index;
};
enum { C10_CUDA = 1 };

/* Without the library nobody is there. */
void c10_report(
	void *ptr, int64_t bytes, size_t allocated, size_t reserved,
	struct c10_device where) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
	__attribute__((weak));

static struct block {
	CUdeviceptr base;
	uint64_t bytes;
	enum { FREE, LIVE, OTHERS } state;
} * blocks;
static uint32_t blocks_count, blocks_room;
static CUdeviceptr segment;
static uint64_t segment_bytes, segment_used;

static void report(CUdeviceptr base, int64_t bytes)
{
	const struct c10_device where = { C10_CUDA, 0 };

	if (c10_report != NULL)
		c10_report((void *)(uintptr_t)base, bytes, 0, 0, where);
}

static void poison(struct engine *e, const struct block *b)
{
	CK(cuMemsetD32Async(b->base, POISON, b->bytes / 4, e->stream));
	settle(e);
}

/* Behind the last one; what is left of a segment that is too full stays unused. */
static struct block *carve(uint64_t bytes)
{
	if (segment_used + bytes > segment_bytes) {
		segment_bytes = bytes > SEGMENT ? bytes : SEGMENT;
		CK(cuMemAlloc(&segment, segment_bytes));
		segment_used = 0;
	}
	if (blocks_count == blocks_room) {
		blocks_room = blocks_room ? 2 * blocks_room : 256;
		blocks = realloc(blocks, blocks_room * sizeof(*blocks));
		if (!blocks)
			engine_die(1, "no host memory for %u blocks", blocks_room);
	}
	blocks[blocks_count] = (struct block){ .base = segment + segment_used, .bytes = bytes };
	segment_used += bytes;
	return &blocks[blocks_count++];
}

CUdeviceptr memory_new(struct engine *e, uint64_t bytes)
{
	uint64_t size = (bytes + ROUND - 1) / ROUND * ROUND;
	struct block *b = NULL;

	for (uint32_t i = blocks_count; i-- > 0 && !b;)
		if (blocks[i].state == FREE && blocks[i].bytes == size)
			b = &blocks[i];
	if (!b)
		b = carve(size);
	b->state = LIVE;
	report(b->base, (int64_t)b->bytes);
	poison(e, b);
	return b->base;
}

static void put_back(struct engine *e, struct block *b)
{
	poison(e, b);
	b->state = FREE;
	report(b->base, -(int64_t)b->bytes);
}

void memory_free(struct engine *e, CUdeviceptr p)
{
	for (uint32_t i = 0; i < blocks_count; i++)
		if (blocks[i].state == LIVE && blocks[i].base == p) {
			put_back(e, &blocks[i]);
			return;
		}
	engine_die(1, "nothing is allocated at 0x%llx", (unsigned long long)p);
}

void memory_release(struct engine *e)
{
	for (uint32_t i = 0; i < blocks_count; i++)
		if (blocks[i].state == OTHERS)
			put_back(e, &blocks[i]);
}

void memory_pressure(struct engine *e)
{
	for (uint32_t i = 0; i < blocks_count; i++) {
		if (blocks[i].state != FREE)
			continue;
		blocks[i].state = OTHERS;
		report(blocks[i].base, (int64_t)blocks[i].bytes);
		poison(e, &blocks[i]);
	}
}

static bool is_harmed(const struct block *b)
{
	uint32_t *copy = malloc(b->bytes);
	bool harmed = false;

	if (!copy)
		engine_die(1, "no host memory to look at a block");
	CK(cuMemcpyDtoH(copy, b->base, b->bytes));
	for (uint64_t w = 0; w < b->bytes / 4; w++)
		harmed |= copy[w] != POISON;
	free(copy);
	return harmed;
}

unsigned memory_harmed(struct engine *e)
{
	unsigned n = 0;

	settle(e);
	for (uint32_t i = 0; i < blocks_count; i++)
		n += blocks[i].state == OTHERS && is_harmed(&blocks[i]);
	return n;
}

CUdeviceptr buffer(struct engine *e, const char *name, uint64_t bytes)
{
	uint32_t i;

	for (i = 0; i < e->buffers_count; i++)
		if (!strcmp(e->buffers[i].name, name))
			break;
	if (i == e->buffers_count) {
		e->buffers = realloc(e->buffers, (i + 1) * sizeof(*e->buffers));
		if (!e->buffers)
			engine_die(1, "no host memory for buffer %s", name);
		snprintf(e->buffers[i].name, NAME_BYTES, "%s", name);
		e->buffers[i].at = memory_new(e, bytes);
		e->buffers[i].bytes = bytes;
		e->buffers_count++;
	}
	if (e->buffers[i].bytes != bytes)
		engine_die(1, "buffer %s has %llu bytes, not %llu", name,
			   (unsigned long long)e->buffers[i].bytes, (unsigned long long)bytes);
	return e->buffers[i].at;
}

CUdeviceptr layer_buffer(struct layer *l, const char *name, uint64_t bytes)
{
	char full[NAME_BYTES];

	snprintf(full, sizeof(full), "%s.%u", name, l->index);
	return buffer(l->engine, full, bytes);
}
