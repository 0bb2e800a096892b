/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caching allocator as PyTorch has one, in a few words: blocks carved out of segments, taken back
 * without a driver call, told to c10::reportMemoryUsageToProfiler() if somebody exports it. A freed
 * block is the next one of its size (rounded up to 512 bytes) that its pool hands out.
 */
#ifndef VICTIM_BLOCKS_H
#define VICTIM_BLOCKS_H

#include "victim.h"

#define SEGMENT	   (20 * MIB)
#define BLOCKS_MAX 512

/* A pool of segments: the ordinary one, or the private one of some graphs. Zeroed: empty. */
struct pool {
	bool is_quiet;	/* print no ranges */
	bool is_mapped; /* its segments are mapped, not allocated; each in a reservation */
	struct segment {
		CUdeviceptr base;
		size_t used;
		CUmemGenericAllocationHandle handle;
	} segments[16];
	struct block {
		CUdeviceptr base;
		size_t bytes;
		bool live;
	} blocks[BLOCKS_MAX];
	unsigned segments_count, blocks_count;
};

CUdeviceptr block_alloc(struct pool *p, const char *name, size_t bytes);
void block_free(struct pool *p, CUdeviceptr base);
void pool_empty(struct pool *p);	/* empty_cache(): every block is free */
void pool_pause(struct pool *p);	/* unmap every segment */
void pool_resume(struct pool *p);	/* map other memory at its place */

#endif
