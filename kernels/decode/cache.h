/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a number lies in a cache of keys or values, and how it is read. Shared by the twins and,
 * through CACHE_FN, by the kernels: integers only. Pure; any thread.
 */
#ifndef KERNELS_DECODE_CACHE_H
#define KERNELS_DECODE_CACHE_H

#include "kernels/decode/decode.h"

#ifdef __CUDACC__
#define CACHE_FN static __device__ __forceinline__
#else
#define CACHE_FN static inline
#endif

struct cache {
	uint32_t block_size, blocks, heads, head_size;
	uint32_t x; /* DECODE_CACHE_X of DECODE_PAGED, else 0 */
};

/* Element d of head h at place @off of @block. */
CACHE_FN uint64_t cache_key(const struct cache *c, uint64_t block, uint32_t off, uint32_t h,
			    uint32_t d)
{
	if (c->x == 0)
		return ((block * c->block_size + off) * c->heads + h) * c->head_size + d;
	return ((block * c->heads + h) * (c->head_size / c->x) + d / c->x) * c->block_size * c->x +
	       off * c->x + d % c->x;
}

CACHE_FN uint64_t cache_value(const struct cache *c, uint64_t block, uint32_t off, uint32_t h,
			      uint32_t d)
{
	if (c->x == 0)
		return cache_key(c, block, off, h, d);
	return ((block * c->heads + h) * c->head_size + d) * c->block_size + off;
}

#endif
