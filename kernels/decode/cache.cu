/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, values, latents into their caches: a block a token; see cache.c, the twins. */
#include "kernels/decode/cache.h"
#include "kernels/decode/decode.cuh"

static __device__ __forceinline__ bool has_place(int64_t slot, uint32_t block_size, uint32_t blocks)
{
	return slot >= 0 && slot < (int64_t)block_size * blocks;
}

/* A cache is bf16, or e4m3 with a scale. */
static __device__ __forceinline__ void cache_store(void *cache, uint64_t at, uint16_t x,
						   const float *scale)
{
	if (scale)
		((uint8_t *)cache)[at] = to_e4m3(__fdiv_rn(from_bf16(x), *scale));
	else
		((uint16_t *)cache)[at] = x;
}

DECODE_KERNEL decode_reshape_and_cache(const uint16_t *key, const uint16_t *value, void *k_cache,
				       void *v_cache, const int64_t *slots, const float *k_scale,
				       const float *v_scale, uint32_t tokens, uint32_t kv_heads,
				       uint32_t head_size, uint32_t block_size, uint32_t blocks,
				       uint32_t k_stride, uint32_t v_stride, uint32_t flags)
{
	const struct cache c = { block_size, blocks, kv_heads, head_size,
				 flags & DECODE_PAGED ? DECODE_CACHE_X(k_scale != NULL) : 0 };

	if (c.x != 0 && head_size % c.x != 0)
		return;
	FOR_ROWS (t, tokens) {
		int64_t slot = slots[t];
		uint64_t block = (uint64_t)slot / block_size;
		uint32_t off = (uint64_t)slot % block_size;

		if (!has_place(slot, block_size, blocks))
			continue;
		FOR_COLUMNS (i, kv_heads * head_size) {
			uint32_t h = i / head_size, d = i % head_size;

			cache_store(k_cache, cache_key(&c, block, off, h, d), key[t * k_stride + i],
				    k_scale);
			cache_store(v_cache, cache_value(&c, block, off, h, d),
				    value[t * v_stride + i], k_scale ? v_scale : NULL);
		}
	}
}

DECODE_KERNEL decode_concat_and_cache_mla(const uint16_t *kv_c, const uint16_t *k_pe, void *cache,
					  const int64_t *slots, const float *scale, uint32_t tokens,
					  uint32_t latent, uint32_t rope, uint32_t block_size,
					  uint32_t blocks, uint32_t c_stride, uint32_t pe_stride)
{
	FOR_ROWS (t, tokens) {
		int64_t slot = slots[t];

		if (!has_place(slot, block_size, blocks))
			continue;
		FOR_COLUMNS (i, latent + rope)
			cache_store(cache, (uint64_t)slot * (latent + rope) + i,
				    i < latent ? kv_c[t * c_stride + i]
					       : k_pe[t * pe_stride + i - latent],
				    scale);
	}
}
