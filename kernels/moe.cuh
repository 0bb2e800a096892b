/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MoE routing, for the kernels of moe.cu and decode/moe.cu; see moe.c, the twins.
 *
 * The index kernels work in one block: a histogram of the keys in shared memory, its running sum,
 * then each thread walks the indices for its keys. So the order inside an expert is always the
 * same, which atomics would not give. A decode batch has a few thousand indices at most.
 */
#ifndef KERNELS_MOE_CUH
#define KERNELS_MOE_CUH

#include "kernels/derive.cuh"

#define MOE_KEYS_MAX (2 * MOE_EXPERTS_MAX)

/*
 * first[key] = how many indices have a smaller key, each count rounded up to @block; first[keys] is
 * the sum. @first has @keys + 1 words; all threads of the block take part.
 */
template <typename F>
static __device__ void moe_count(uint32_t *first, uint32_t keys, uint32_t count, uint32_t block,
				 F key_of)
{
	for (uint32_t key = threadIdx.x; key <= keys; key += DERIVE_THREADS)
		first[key] = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < count; i += DERIVE_THREADS) {
		uint32_t key = key_of(i);

		if (key < keys)
			atomicAdd(first + key, 1);
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		uint32_t sum = 0;

		for (uint32_t key = 0; key <= keys; key++) {
			uint32_t n = first[key];

			first[key] = sum;
			sum += (n + block - 1) / block * block;
		}
	}
	__syncthreads();
}

#define MOE_BODY static __device__ __forceinline__ void

MOE_BODY moe_align(const int32_t *ids, const int32_t *map, int32_t *sorted, int32_t *blocks,
		   int32_t *total, uint32_t count, uint32_t experts, uint32_t block,
		   uint32_t capacity, int32_t tail)
{
	__shared__ uint32_t first[MOE_EXPERTS_MAX + 1];
	uint32_t places;

	if (blockIdx.x != 0 || experts > MOE_EXPERTS_MAX || block == 0)
		return;
	places = (uint32_t)DERIVE_CEIL(capacity, block);
	moe_count(first, experts, count, block, [=](uint32_t i) { return (uint32_t)ids[i]; });
	for (uint32_t i = threadIdx.x; i < capacity; i += DERIVE_THREADS)
		sorted[i] = count;
	__syncthreads();
	for (uint32_t e = threadIdx.x; e < experts; e += DERIVE_THREADS) {
		uint32_t at = first[e];

		for (uint32_t i = 0; i < count; i++)
			if ((uint32_t)ids[i] == e) {
				if (at < capacity)
					sorted[at] = i;
				at++;
			}
		for (uint32_t b = first[e] / block; b < min(first[e + 1] / block, places); b++)
			blocks[b] = map ? map[e] : e;
	}
	for (uint32_t b = first[experts] / block + threadIdx.x; b < places; b += DERIVE_THREADS)
		blocks[b] = tail;
	if (threadIdx.x == 0)
		*total = first[experts];
}

/* Local expert; behind those ids that are none; behind those experts of other ranks. */
static __device__ __forceinline__ uint32_t moe_key(const int32_t *map, uint32_t id,
						   uint32_t experts)
{
	if (id >= experts)
		return experts;
	if (!map)
		return id;
	return map[id] < 0 ? id + experts : map[id];
}

MOE_BODY moe_permute_index(const int32_t *ids, const int32_t *map, int32_t *sorted,
			   int32_t *inverse, int64_t *offsets, uint32_t count, uint32_t experts,
			   uint32_t local)
{
	__shared__ uint32_t first[MOE_KEYS_MAX + 1];
	auto key_of = [=](uint32_t i) { return moe_key(map, ids[i], experts); };

	if (blockIdx.x != 0 || experts == 0 || experts > MOE_EXPERTS_MAX || local > experts)
		return;
	moe_count(first, 2 * experts, count, 1, key_of);
	for (uint32_t key = threadIdx.x; key < 2 * experts; key += DERIVE_THREADS) {
		uint32_t at = first[key], end = first[key + 1];

		for (uint32_t i = 0; at < end; i++)
			if (key_of(i) == key) {
				inverse[i] = at;
				sorted[at++] = i;
			}
	}
	for (uint32_t e = threadIdx.x; e <= local; e += DERIVE_THREADS)
		offsets[e] = first[e];
}

/* How many rows are of local experts, of @count in all. */
static __device__ __forceinline__ uint64_t moe_local(int64_t offset, uint64_t count)
{
	return offset < 0 ? 0 : min((uint64_t)offset, count);
}

struct moe_shape {
	uint32_t count, topk, row;
};

/* An index that is none gives a row of zeros. */
template <typename T>
static __device__ __forceinline__ void moe_gather(const T *x, const uint32_t *sorted, T *out,
						  uint64_t rows, const moe_shape &shape)
{
	FOR_ROWS (r, rows)
		FOR_COLUMNS (c, shape.row) {
			T value = {};

			if (sorted[r] < shape.count)
				value = x[(uint64_t)(sorted[r] / shape.topk) * shape.row + c];
			out[r * shape.row + c] = value;
		}
}

MOE_BODY moe_permute_rows(const void *x, const int32_t *sorted, const int64_t *offsets, void *out,
			  uint32_t count, uint32_t topk, uint32_t row_bytes, uint32_t local)
{
	uint64_t rows = moe_local(offsets[local], count);
	const uint32_t *index = (const uint32_t *)sorted;

	if (topk == 0)
		return;
	if (((uint64_t)x | (uint64_t)out | row_bytes) % 16 == 0)
		moe_gather((const uint4 *)x, index, (uint4 *)out, rows,
			   moe_shape{ count, topk, row_bytes / 16 });
	else
		moe_gather((const uint8_t *)x, index, (uint8_t *)out, rows,
			   moe_shape{ count, topk, row_bytes });
}

MOE_BODY moe_unpermute(const uint16_t *rows, const int32_t *inverse, const float *weights,
		       const int64_t *offsets, uint16_t *out, uint32_t tokens, uint32_t topk,
		       uint32_t hidden, uint32_t local, uint32_t type)
{
	uint64_t end = moe_local(offsets[local], (uint64_t)tokens * topk);

	FOR_ROWS (t, tokens)
		FOR_COLUMNS (h, hidden) {
			float sum = 0;

			for (uint64_t j = t * topk; j < (t + 1) * topk; j++) {
				float x;

				if ((uint32_t)inverse[j] >= end)
					continue;
				/* Two roundings a step, no fused one: as the twin. */
				x = from_word(type, rows[(uint64_t)inverse[j] * hidden + h]);
				sum = __fadd_rn(sum, __fmul_rn(x, weights[j]));
			}
			out[t * hidden + h] = to_word(type, sum);
		}
}

#endif
