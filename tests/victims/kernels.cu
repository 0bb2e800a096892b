/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of the victims. Each has a C twin of the same name in tests/sim/twins.c, which is
 * what runs when the same victim meets the simulated driver: change both together.
 */
#include <cuda.h>
#include <cuda_runtime.h>

extern "C" {

__device__ int g_counter;
__device__ int g_table[1024];

static __device__ size_t first(void)
{
	return blockIdx.x * (size_t)blockDim.x + threadIdx.x;
}

static __device__ size_t stride(void)
{
	return gridDim.x * (size_t)blockDim.x;
}

__global__ void k_set(int *p, int v, size_t n)
{
	for (size_t i = first(); i < n; i += stride())
		p[i] = v;
}

__global__ void k_acc(int *d, const int *s, size_t n)
{
	for (size_t i = first(); i < n; i += stride())
		d[i] += s[i];
}

__global__ void k_copy(int *d, const int *s, size_t n)
{
	for (size_t i = first(); i < n; i += stride())
		d[i] = s[i];
}

/* A pointer that no parameter shows: it is read from memory. */
__global__ void k_chase(int *o, int **pp)
{
	*o = **pp;
}

__global__ void k_bounded(int *o, const int *n)
{
	int i = 0;

	while (i < *(volatile const int *)n && i < 1000000)
		i++;
	*o = i;
}

__global__ void k_ticket(int *c, int *o)
{
	*o = atomicAdd(c, 1);
}

__global__ void k_spin(volatile int *p, long long cycles)
{
	long long start = clock64();

	while (clock64() - start < cycles)
		*p = 1;
}

/* An integer as wide as a pointer. */
__global__ void k_seed(float *out, unsigned long long seed, int n)
{
	for (size_t i = first(); i < (size_t)n; i += stride())
		out[i] = (float)(seed % 1024) + (float)i;
}

__global__ void k_range(int *out, const int *b, const int *e)
{
	*out = (int)(e - b);
}

struct by_value {
	int *out;
	long long tag;
	const int *src;
	size_t n;
};

__global__ void k_struct(struct by_value a)
{
	for (size_t i = first(); i < a.n; i += stride())
		a.out[i] += a.src[i];
}

/* Load the first box of the tensor (64 ints) by TMA, and give its first element. */
static __device__ void load_box(int *out, const CUtensorMap *map)
{
#if __CUDA_ARCH__ >= 900
	__shared__ alignas(128) int box[64];
	__shared__ alignas(8) unsigned long long barrier;
	unsigned int at = (unsigned int)__cvta_generic_to_shared(&barrier);
	unsigned int to = (unsigned int)__cvta_generic_to_shared(box);
	unsigned int done = 0;

	asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at));
	asm volatile("fence.proxy.async;" ::: "memory");
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(at) : "memory");
	asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes"
		     " [%0], [%1, {%2}], [%3];" ::"r"(to), "l"(map), "r"(0), "r"(at)
		     : "memory");
	while (!done)
		asm volatile("{ .reg .pred p;"
			     " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"
			     " selp.u32 %0, 1, 0, p; }"
			     : "=r"(done) : "r"(at) : "memory");
	*out = box[0];
#else
	*out = -1;
#endif
}

__global__ void k_tma(int *out, const __grid_constant__ CUtensorMap map)
{
	load_box(out, &map);
}

__global__ void k_tmap(int *out, const CUtensorMap *map)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
#endif
	load_box(out, map);
}

} /* extern "C" */
