/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena_publish: every slot of a layer, shadow to live storage, in one launch. Its C twin is
 * publish.c; how the work is cut is publish.h.
 *
 * A piece is copied in the widest unit that both addresses allow. Slots and shadows are aligned
 * to 256 bytes, so that is 16. One load of a thread is in flight, and many blocks are: measured
 * faster on an H200 than several, as is a cache that is told nothing.
 */
#include "kernels/publish.h"

#define THREADS PUBLISH_THREADS

/* Whole units; the rest of the piece is the caller's. */
template <typename T>
static __device__ __forceinline__ void copy_units(T *dst, const T *src, uint64_t count)
{
#pragma unroll 1
	for (uint64_t i = threadIdx.x; i < count; i += THREADS)
		dst[i] = src[i];
}

template <typename T> static __device__ __forceinline__ void copy_as(const struct publish_piece &p)
{
	uint64_t head = (sizeof(T) - p.dst % sizeof(T)) % sizeof(T);
	uint64_t count, tail;

	if (head > p.bytes)
		head = p.bytes;
	count = (p.bytes - head) / sizeof(T);
	tail = head + count * sizeof(T);
	copy_units((T *)(p.dst + head), (const T *)(p.src + head), count);
	/* Less than a unit at either end. */
	if (threadIdx.x < head)
		*((char *)p.dst + threadIdx.x) = *((const char *)p.src + threadIdx.x);
	if (threadIdx.x < p.bytes - tail)
		*((char *)p.dst + tail + threadIdx.x) = *((const char *)p.src + tail + threadIdx.x);
}

static __device__ __forceinline__ void copy_piece(const struct publish_piece &p)
{
	uint64_t apart = p.dst ^ p.src;

	if (apart % 16 == 0)
		copy_as<uint4>(p);
	else if (apart % 8 == 0)
		copy_as<uint2>(p);
	else if (apart % 4 == 0)
		copy_as<unsigned int>(p);
	else
		copy_as<unsigned char>(p);
}

extern "C" __global__ void __launch_bounds__(THREADS)
	arena_publish(const struct publish_op *ops, uint32_t count, uint64_t tiles)
{
	struct publish_run r = publish_run(tiles, blockIdx.x, gridDim.x);

	/* All threads look up the same: one load a step, broadcast. */
	for (uint32_t i = publish_find(ops, count, r.begin); r.begin < r.end; i++) {
		const struct publish_op op = ops[i];

		copy_piece(publish_piece(&op, &r));
	}
}
