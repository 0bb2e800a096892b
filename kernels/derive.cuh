/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the derivations' kernels share: how work is dealt out, codes in words, small numbers.
 * The twins have these a second time, written another way (codes.h, number.h).
 */
#ifndef KERNELS_DERIVE_CUH
#define KERNELS_DERIVE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/derive.h"

#define DERIVE_KERNEL extern "C" __global__ void __launch_bounds__(DERIVE_THREADS)

/* for (uint64_t i = this thread's first; i < count; i += threads of the grid) */
#define FOR_EACH(i, count)                                                                  \
	for (uint64_t i = (uint64_t)blockIdx.x * DERIVE_THREADS + threadIdx.x; i < (count); \
	     i += (uint64_t)gridDim.x * DERIVE_THREADS)

/* Rows for the blocks, columns for the threads of one: no division an element. */
#define FOR_ROWS(r, count)    for (uint64_t r = blockIdx.x; r < (count); r += gridDim.x)
#define FOR_COLUMNS(c, count) for (uint32_t c = threadIdx.x; c < (count); c += DERIVE_THREADS)

/* Shared memory that the launch gave, of any size: a kernel works with what it gets. */
static __device__ __forceinline__ void *shared_memory(void)
{
	extern __shared__ uint4 shared_by_launch[];

	return shared_by_launch;
}

static __device__ __forceinline__ uint32_t shared_bytes(void)
{
	uint32_t bytes;

	asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
	return bytes;
}

/*
 * A cluster of blocks: they run at the same time and reach each other's shared memory, once all
 * have started and until they have met for the last time. A launch without one: of one block.
 */
static __device__ __forceinline__ uint32_t cluster_blocks(void)
{
	uint32_t blocks = 1;

#if __CUDA_ARCH__ >= 900
	asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
#endif
	return blocks;
}

static __device__ __forceinline__ uint32_t cluster_rank(void)
{
	uint32_t rank = 0;

#if __CUDA_ARCH__ >= 900
	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
	return rank;
}

/*
 * All threads of all its blocks come by, each in turn. After the wait, what any of them wrote to
 * shared memory before it arrived is there; or only, if @relaxed: has used what it read there (no
 * fence, so that no store is waited for).
 */
static __device__ __forceinline__ void cluster_arrive(bool relaxed)
{
#if __CUDA_ARCH__ >= 900
	if (relaxed)
		asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
	else
		asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
#endif
}

static __device__ __forceinline__ void cluster_wait(void)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#else
	__syncthreads();
#endif
}

/* Where @p, in shared memory, is in block @rank, if there are clusters. */
static __device__ __forceinline__ uint32_t cluster_at(const void *p, uint32_t rank)
{
	uint32_t at = (uint32_t)__cvta_generic_to_shared(p);

#if __CUDA_ARCH__ >= 900
	asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(rank));
#endif
	return at;
}

#if __CUDA_ARCH__ >= 900
#define CLUSTER_LOAD "ld.shared::cluster"
#else
#define CLUSTER_LOAD "ld.shared"
#endif

/* What is there. */
static __device__ __forceinline__ uint2 cluster_uint2(const void *p, uint32_t rank)
{
	uint2 x;

	asm volatile(CLUSTER_LOAD ".v2.u32 {%0, %1}, [%2];"
		     : "=r"(x.x), "=r"(x.y)
		     : "r"(cluster_at(p, rank))
		     : "memory");
	return x;
}

static __device__ __forceinline__ uint4 cluster_uint4(const void *p, uint32_t rank)
{
	uint4 x;

	asm volatile(CLUSTER_LOAD ".v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
		     : "r"(cluster_at(p, rank))
		     : "memory");
	return x;
}

/* A hint. @p, @bytes: multiples of 16. */
static __device__ __forceinline__ void prefetch_l2(const void *p, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#endif
}

/* ---- codes ---- */

/* Column @c of a word in AWQ's order: even columns in the low half, odd ones in the high half. */
static __device__ __forceinline__ uint32_t awq_place(uint32_t c, uint32_t bits)
{
	uint32_t half = 16 / bits;

	return c / 2 + c % 2 * half;
}

static __device__ __forceinline__ uint32_t code_of(uint32_t word, uint32_t place, uint32_t bits)
{
	return word >> (place * bits) & ((1u << bits) - 1);
}

/* Of [K / f, n], packed by rows. */
static __device__ __forceinline__ uint32_t code_row(const uint32_t *q, uint64_t k, uint64_t col,
						    uint32_t n, uint32_t bits)
{
	uint32_t f = 32 / bits;

	return code_of(q[k / f * n + col], k % f, bits);
}

/* Of [K, n / f], packed by columns. */
static __device__ __forceinline__ uint32_t code_col(const uint32_t *q, uint64_t k, uint64_t col,
						    uint32_t n, uint32_t bits, bool awq)
{
	uint32_t f = 32 / bits, c = col % f;

	return code_of(q[k * (n / f) + col / f], awq ? awq_place(c, bits) : c, bits);
}

/* ---- numbers ---- */

static __device__ __forceinline__ float from_word(uint32_t type, uint16_t x)
{
	return type == DERIVE_FP16 ? __half2float(__ushort_as_half(x))
				   : __bfloat162float(__ushort_as_bfloat16(x));
}

static __device__ __forceinline__ uint16_t to_word(uint32_t type, float x)
{
	return type == DERIVE_FP16 ? __half_as_ushort(__float2half_rn(x))
				   : __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

static __device__ __forceinline__ float from_e4m3(uint8_t x)
{
	return __half2float(__half(__nv_cvt_fp8_to_halfraw(x, __NV_E4M3)));
}

static __device__ __forceinline__ uint8_t to_e4m3(float x)
{
	return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

/* The steps are 0, .5, 1, 1.5, 2, 3, 4, 6: how many middles lie below; ties to even codes. */
static __device__ __forceinline__ uint8_t to_e2m1(float x)
{
	float a = fabsf(x);
	uint32_t code = !(a <= 0.25f) + !(a < 0.75f) + !(a <= 1.25f) + !(a < 1.75f) + !(a <= 2.5f) +
			!(a < 3.5f) + !(a <= 5.0f);

	return x != x ? 7 : __float_as_uint(x) >> 28 & 8 | code;
}

#endif
