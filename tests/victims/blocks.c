/* SPDX-License-Identifier: Apache-2.0 */
/* The words of blocks.h. One thread at a time may use a pool. */
#include "blocks.h"

#define ROUND 512

struct c10_device {
	int8_t type, index;
};
enum { C10_CUDA = 1 };

/* What PyTorch's allocator calls; without the library nobody is there. */
void c10_report(
	void *ptr, int64_t bytes, size_t allocated, size_t reserved,
	struct c10_device where) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
	__attribute__((weak));

static void report(CUdeviceptr base, int64_t bytes)
{
	const struct c10_device where = { C10_CUDA, (int8_t)victim_device };

	if (c10_report != NULL)
		c10_report((void *)(uintptr_t)base, bytes, 0, 0, where);
}

/* As PyTorch does it: legal while a stream of this thread captures. */
static struct segment *segment_new(struct pool *p)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct segment *s = &p->segments[p->segments_count++];

	MUST(p->segments_count <= sizeof(p->segments) / sizeof(p->segments[0]));
	*s = (struct segment){ .base = 0 };
	CK(cuThreadExchangeStreamCaptureMode(&mode));
	if (p->is_mapped) {
		CK(cuMemAddressReserve(&s->base, SEGMENT, 0, 0, 0));
		s->handle = vmm_create(SEGMENT, false);
		vmm_map(s->base, s->handle, SEGMENT);
	} else {
		CK(cuMemAlloc(&s->base, SEGMENT));
	}
	CK(cuThreadExchangeStreamCaptureMode(&mode));
	return s;
}

/* A free block of this size, or a new one. */
static struct block *find(struct pool *p, size_t bytes)
{
	struct segment *s = p->segments_count ? &p->segments[p->segments_count - 1] : NULL;
	struct block *b;

	for (unsigned i = p->blocks_count; i-- > 0;)
		if (!p->blocks[i].live && p->blocks[i].bytes == bytes)
			return &p->blocks[i];
	MUST(p->blocks_count < BLOCKS_MAX && bytes <= SEGMENT);
	if (s == NULL || s->used + bytes > SEGMENT)
		s = segment_new(p);
	b = &p->blocks[p->blocks_count++];
	*b = (struct block){ .base = s->base + s->used, .bytes = bytes };
	s->used += bytes;
	return b;
}

CUdeviceptr block_alloc(struct pool *p, const char *name, size_t bytes)
{
	struct block *b = find(p, (bytes + ROUND - 1) / ROUND * ROUND);

	b->live = true;
	report(b->base, (int64_t)b->bytes);
	if (!p->is_quiet)
		name_range(name, b->base, b->bytes);
	return b->base;
}

void block_free(struct pool *p, CUdeviceptr base)
{
	unsigned i = 0;

	while (i < p->blocks_count && !(p->blocks[i].live && p->blocks[i].base == base))
		i++;
	MUST(i < p->blocks_count);
	p->blocks[i].live = false;
	report(base, -(int64_t)p->blocks[i].bytes);
}

void pool_empty(struct pool *p)
{
	for (unsigned i = 0; i < p->blocks_count; i++)
		MUST(!p->blocks[i].live);
	for (unsigned i = 0; i < p->segments_count; i++) {
		struct segment *s = &p->segments[i];

		if (!p->is_mapped) {
			CK(cuMemFree(s->base));
			continue;
		}
		vmm_unmap(s->base, SEGMENT);
		vmm_release(s->handle);
		vmm_address_free(s->base, SEGMENT);
	}
	p->segments_count = p->blocks_count = 0;
}

void pool_pause(struct pool *p)
{
	for (unsigned i = 0; i < p->segments_count; i++) {
		vmm_unmap(p->segments[i].base, SEGMENT);
		vmm_release(p->segments[i].handle);
	}
}

void pool_resume(struct pool *p)
{
	for (unsigned i = 0; i < p->segments_count; i++) {
		p->segments[i].handle = vmm_create(SEGMENT, false);
		vmm_map(p->segments[i].base, p->segments[i].handle, SEGMENT);
	}
}
