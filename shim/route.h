/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing: allocations under a tag are served from slots, and frees of what was served are absorbed
 * (arena/tag.h, arena/keep.h). A wrapper asks here before it asks the driver; without tags and
 * slots that is one load.
 *
 * Not routed, as it never belongs to a slot: managed memory, allocations on a stream that captures
 * (they are nodes of the graph), the 32-bit calls (a slot's address does not fit).
 *
 * Any thread. errno is kept.
 */
#ifndef SHIM_ROUTE_H
#define SHIM_ROUTE_H

#include "arena/keep.h"
#include "arena/storage.h"
#include "arena/tag.h"
#include "shim/hooks.h"

bool route_alloc_slow(CUdeviceptr *out, uint64_t size_bytes, uint64_t align, uint64_t stream);
bool route_free_slow(uint64_t addr, CUresult *rc);

/* @brief The thread is under a tag: serve @size_bytes. @return false: ask the driver. */
static inline bool route_alloc(CUdeviceptr *out, uint64_t size_bytes)
{
	return __builtin_expect(tag_depth != 0, 0) &&
	       route_alloc_slow(out, size_bytes, 1, STREAM_LEGACY(NULL));
}

/* @brief The same for use on @stream; of a pool, if not NULL. */
bool route_async(CUdeviceptr *out, uint64_t size_bytes, CUmemoryPool pool, uint64_t stream);

bool route_pitch_slow(CUdeviceptr *out, size_t *pitch, size_t width_bytes, size_t height,
		      unsigned element_bytes);
static inline bool route_pitch(CUdeviceptr *out, size_t *pitch, size_t width_bytes, size_t height,
			       unsigned element_bytes)
{
	return __builtin_expect(tag_depth != 0, 0) &&
	       route_pitch_slow(out, pitch, width_bytes, height, element_bytes);
}

/* @brief Is @addr a slot's memory? Then *rc is the answer; else the driver is to be asked. */
static inline bool route_free(uint64_t addr, CUresult *rc)
{
	return __builtin_expect(storage_bytes() != 0, 0) && route_free_slow(addr, rc);
}

/* ---- virtual memory ---- */

/* Does a wrapper of virtual memory have to ask keep.h at all? */
static inline bool route_keeps(void)
{
	/* Pairs with nothing: who frees an address was handed it, after it was counted. */
	return __builtin_expect(load_relaxed(&keep_count) != 0 || tag_depth != 0, 0);
}

/* @brief keep.h says @a. @return false: ask the driver, after making room. */
bool route_answered(enum keep_answer a, CUresult *rc);

bool route_reserve(CUdeviceptr *out, uint64_t size_bytes, uint64_t align, uint64_t flags,
		   struct keep_ticket *t);
bool route_create(CUmemGenericAllocationHandle *out, const struct keep_physical *p,
		  struct keep_ticket *t);
/* @brief What cuMemCreate() is asked for, for comparison. */
struct keep_physical route_physical(uint64_t size_bytes, const CUmemAllocationProp *prop,
				    uint64_t flags);
/* @brief Map over what was kept: answered, or the driver is to be asked, and has room. */
bool route_map(const struct keep_mapping *m, CUresult *rc);

#endif
