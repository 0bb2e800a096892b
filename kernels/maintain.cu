/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena_zero, arena_fingerprint, arena_compare, arena_scan: see maintain.h; the C twins are in
 * maintain.c. PUBLISH_THREADS a block.
 *
 * Where addresses allow, a thread has MAINTAIN_DEPTH loads of 16 bytes in flight: 256 threads
 * and 8 blocks a multiprocessor make 128 KiB, some four times what latency times bandwidth of an
 * H200 asks for. Contents are read once and should not push others out of the cache.
 */
#include "kernels/maintain.h"

#define MAINTAIN_DEPTH 4

static __device__ __forceinline__ uint64_t word_of(unsigned int low, unsigned int high)
{
	return (uint64_t)high << 32 | low;
}

/* ---- zero ---- */

static __device__ void zero_piece(const struct publish_piece &p)
{
	uint64_t head = (16 - p.dst % 16) % 16, units, tail;
	uint4 *body;

	if (head > p.bytes)
		head = p.bytes;
	units = (p.bytes - head) / 16;
	tail = head + units * 16;
	body = (uint4 *)(p.dst + head);
	for (uint64_t i = threadIdx.x; i < units; i += PUBLISH_THREADS)
		__stcs(body + i, make_uint4(0, 0, 0, 0));
	if (threadIdx.x < head)
		((char *)p.dst)[threadIdx.x] = 0;
	if (threadIdx.x < p.bytes - tail)
		((char *)p.dst)[tail + threadIdx.x] = 0;
}

extern "C" __global__ void __launch_bounds__(PUBLISH_THREADS)
	arena_zero(const struct publish_op *ops, uint32_t count, uint64_t tiles)
{
	struct publish_run r = publish_run(tiles, blockIdx.x, gridDim.x);

	for (uint32_t i = publish_find(ops, count, r.begin); r.begin < r.end; i++) {
		const struct publish_op op = ops[i];

		zero_piece(publish_piece(&op, &r));
	}
}

/* ---- fingerprint ---- */

/* The two words of a unit; @key is that of the first. */
static __device__ __forceinline__ uint64_t unit_sum(const uint4 &v, uint64_t key)
{
	return fingerprint_mix(word_of(v.x, v.y) ^ key) +
	       fingerprint_mix(word_of(v.z, v.w) ^ (key + FINGERPRINT_STEP));
}

/* Of this thread; @position is that of the first word. */
static __device__ __forceinline__ uint64_t units_sum(const uint4 *src, uint64_t count,
						     uint64_t position)
{
	uint64_t sum = 0, i = threadIdx.x;

	for (; i + (MAINTAIN_DEPTH - 1) * PUBLISH_THREADS < count;
	     i += MAINTAIN_DEPTH * PUBLISH_THREADS) {
		uint64_t key = (position + 2 * i + 1) * FINGERPRINT_STEP;
		uint4 value[MAINTAIN_DEPTH];

#pragma unroll
		for (int k = 0; k < MAINTAIN_DEPTH; k++)
			value[k] = __ldcs(src + i + k * PUBLISH_THREADS);
#pragma unroll
		for (int k = 0; k < MAINTAIN_DEPTH; k++)
			sum += unit_sum(value[k],
					key + 2ull * k * PUBLISH_THREADS * FINGERPRINT_STEP);
	}
	for (; i < count; i += PUBLISH_THREADS)
		sum += unit_sum(__ldcs(src + i), (position + 2 * i + 1) * FINGERPRINT_STEP);
	return sum;
}

/* Word by word, of bytes: any alignment, and less than a word at the end. */
static __device__ uint64_t bytes_sum(const unsigned char *src, uint64_t bytes, uint64_t position)
{
	uint64_t sum = 0;

	for (uint64_t w = threadIdx.x; w * 8 < bytes; w += PUBLISH_THREADS) {
		uint64_t word = 0;

		for (int k = 0; k < 8; k++)
			if (w * 8 + k < bytes)
				word |= (uint64_t)src[w * 8 + k] << (8 * k);
		sum += fingerprint_word(word, position + w);
	}
	return sum;
}

static __device__ uint64_t piece_sum(const struct publish_piece &p, uint64_t position)
{
	uint64_t units = p.src % 16 == 0 ? p.bytes / 16 : 0;
	uint64_t sum = units_sum((const uint4 *)p.src, units, position);

	return sum + bytes_sum((const unsigned char *)p.src + units * 16, p.bytes - units * 16,
			       position + 2 * units);
}

/* The sum over the threads of a block, in thread 0; for all of them. */
static __device__ uint64_t block_sum(uint64_t sum)
{
	__shared__ uint64_t warps[PUBLISH_THREADS / 32];

	for (int down = 16; down > 0; down /= 2)
		sum += __shfl_down_sync(~0u, sum, down);
	__syncthreads(); /* the sums of the call before have been read */
	if (threadIdx.x % 32 == 0)
		warps[threadIdx.x / 32] = sum;
	__syncthreads();
	for (int w = 1; w < PUBLISH_THREADS / 32 && threadIdx.x == 0; w++)
		sum += warps[w];
	return sum;
}

extern "C" __global__ void __launch_bounds__(PUBLISH_THREADS)
	arena_fingerprint(const struct publish_op *ops, uint32_t count, uint64_t tiles,
			  unsigned long long *out)
{
	struct publish_run r = publish_run(tiles, blockIdx.x, gridDim.x);

	for (uint32_t i = publish_find(ops, count, r.begin); r.begin < r.end; i++) {
		const struct publish_op op = ops[i];
		const struct publish_piece p = publish_piece(&op, &r);
		uint64_t sum = block_sum(piece_sum(p, (p.src - op.src) / 8));

		if (threadIdx.x == 0)
			atomicAdd(&out[i], (unsigned long long)sum);
	}
}

/* ---- compare ---- */

/* Offset of the first byte in which two units differ, which they do. */
static __device__ uint64_t unit_differs(const uint4 &a, const uint4 &b)
{
	uint64_t low = word_of(a.x ^ b.x, a.y ^ b.y), high = word_of(a.z ^ b.z, a.w ^ b.w);

	return low != 0 ? (__ffsll((long long)low) - 1) / 8 :
			  8 + (__ffsll((long long)high) - 1) / 8;
}

static __device__ __forceinline__ bool unit_is(const uint4 &a, const uint4 &b)
{
	return ((a.x ^ b.x) | (a.y ^ b.y) | (a.z ^ b.z) | (a.w ^ b.w)) == 0;
}

/* The first byte that this thread found to differ, or COMPARE_EQUAL. */
static __device__ uint64_t units_differ(const uint4 *a, const uint4 *b, uint64_t count)
{
	uint64_t first = COMPARE_EQUAL, i = threadIdx.x;

	for (; i + (MAINTAIN_DEPTH - 1) * PUBLISH_THREADS < count;
	     i += MAINTAIN_DEPTH * PUBLISH_THREADS) {
		uint4 x[MAINTAIN_DEPTH], y[MAINTAIN_DEPTH];

#pragma unroll
		for (int k = 0; k < MAINTAIN_DEPTH; k++) {
			x[k] = __ldcs(a + i + k * PUBLISH_THREADS);
			y[k] = __ldcs(b + i + k * PUBLISH_THREADS);
		}
#pragma unroll
		for (int k = 0; k < MAINTAIN_DEPTH; k++)
			if (first == COMPARE_EQUAL && !unit_is(x[k], y[k]))
				first = (i + k * PUBLISH_THREADS) * 16 + unit_differs(x[k], y[k]);
	}
	for (; i < count && first == COMPARE_EQUAL; i += PUBLISH_THREADS)
		if (!unit_is(a[i], b[i]))
			first = i * 16 + unit_differs(a[i], b[i]);
	return first;
}

static __device__ uint64_t piece_differs(const struct publish_piece &p)
{
	uint64_t units = (p.dst | p.src) % 16 == 0 ? p.bytes / 16 : 0;
	uint64_t first = units_differ((const uint4 *)p.dst, (const uint4 *)p.src, units);
	const unsigned char *a = (const unsigned char *)p.dst, *b = (const unsigned char *)p.src;

	for (uint64_t i = units * 16 + threadIdx.x; i < p.bytes && first == COMPARE_EQUAL;
	     i += PUBLISH_THREADS)
		if (a[i] != b[i])
			first = i;
	return first;
}

extern "C" __global__ void __launch_bounds__(PUBLISH_THREADS)
	arena_compare(const struct publish_op *ops, uint32_t count, uint64_t tiles,
		      unsigned long long *out)
{
	struct publish_run r = publish_run(tiles, blockIdx.x, gridDim.x);

	for (uint32_t i = publish_find(ops, count, r.begin); r.begin < r.end; i++) {
		const struct publish_op op = ops[i];
		const struct publish_piece p = publish_piece(&op, &r);
		uint64_t first = piece_differs(p);

		if (first != COMPARE_EQUAL)
			atomicMin(&out[i], (unsigned long long)(p.src - op.src + first));
	}
}

/* ---- scan ---- */

static __device__ void scan_hit_add(struct scan_job *job, uint64_t address, uint64_t word)
{
	struct scan_hit *hits = (struct scan_hit *)job->hits;
	uint64_t n;

	if (!scan_points((const struct scan_range *)job->ranges, job->ranges_count, word))
		return;
	n = atomicAdd((unsigned long long *)&job->found, 1ull);
	if (n < job->cap) {
		hits[n].address = address;
		hits[n].word = word;
	}
}

/* Most words lie below the first range or above the last. */
struct scan_bounds { uint64_t lowest, span; };

static __device__ __forceinline__ bool unit_may_point(const struct scan_bounds &b, const uint4 &v)
{
	return word_of(v.x, v.y) - b.lowest < b.span || word_of(v.z, v.w) - b.lowest < b.span;
}

/* The two words of the unit at @address, which is rare: they are read again. */
static __device__ __noinline__ void scan_unit(struct scan_job *job, uint64_t address)
{
	const uint64_t *words = (const uint64_t *)address;

	for (int k = 0; k < 2; k++)
		scan_hit_add(job, address + 8 * k, words[k]);
}

static __device__ void scan_units(struct scan_job *job, const struct scan_bounds &b, uint64_t src,
				  uint64_t count)
{
	const uint4 *from = (const uint4 *)src;
	uint64_t i = threadIdx.x;

	for (; i + (MAINTAIN_DEPTH - 1) * PUBLISH_THREADS < count;
	     i += MAINTAIN_DEPTH * PUBLISH_THREADS) {
		uint4 value[MAINTAIN_DEPTH];

#pragma unroll
		for (int k = 0; k < MAINTAIN_DEPTH; k++)
			value[k] = __ldcs(from + i + k * PUBLISH_THREADS);
#pragma unroll
		for (int k = 0; k < MAINTAIN_DEPTH; k++)
			if (unit_may_point(b, value[k]))
				scan_unit(job, src + (i + k * PUBLISH_THREADS) * 16);
	}
	for (; i < count; i += PUBLISH_THREADS)
		if (unit_may_point(b, __ldcs(from + i)))
			scan_unit(job, src + i * 16);
}

/* src is a multiple of 8, as any place of a pointer. */
static __device__ void scan_piece(struct scan_job *job, const struct scan_bounds &b,
				  const struct publish_piece &p)
{
	uint64_t units = p.src % 16 == 0 ? p.bytes / 16 : 0;

	scan_units(job, b, p.src, units);
	for (uint64_t w = units * 2 + threadIdx.x; w < p.bytes / 8; w += PUBLISH_THREADS) {
		uint64_t word = ((const uint64_t *)p.src)[w];

		if (word - b.lowest < b.span)
			scan_hit_add(job, p.src + w * 8, word);
	}
}

extern "C" __global__ void __launch_bounds__(PUBLISH_THREADS)
	arena_scan(const struct publish_op *ops, uint32_t count, uint64_t tiles,
		   struct scan_job *job)
{
	struct publish_run r = publish_run(tiles, blockIdx.x, gridDim.x);
	const struct scan_bounds b = { job->lowest, job->highest - job->lowest };

	for (uint32_t i = publish_find(ops, count, r.begin); r.begin < r.end; i++) {
		const struct publish_op op = ops[i];

		scan_piece(job, b, publish_piece(&op, &r));
	}
}
