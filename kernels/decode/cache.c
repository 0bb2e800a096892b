/* SPDX-License-Identifier: Apache-2.0 */
/* Job: the twins of cache.cu: keys, values, latents into their caches. Threads: any; pure. */
#include "kernels/decode/cache.h"
#include "kernels/number.h"

/* A cache is bf16, or e4m3 with a scale. */
static void store(uint64_t cache, uint64_t at, uint16_t x, const float *scale)
{
	if (scale == NULL)
		DERIVE_OUT(uint16_t, cache)[at] = x;
	else
		DERIVE_OUT(uint8_t, cache)[at] = number_to_e4m3(number_from_bf16(x) / *scale);
}

/* False: the token has no place. */
static bool slot_of(int64_t slot, uint32_t block_size, uint32_t blocks)
{
	return slot >= 0 && (uint64_t)slot < (uint64_t)block_size * blocks;
}

static void cache_token(const struct decode_reshape_and_cache_args *a, const struct cache *c,
			uint64_t t, uint64_t slot)
{
	const uint16_t *key = DERIVE_IN(uint16_t, a->key) + t * a->k_stride;
	const uint16_t *value = DERIVE_IN(uint16_t, a->value) + t * a->v_stride;
	const float *v_scale = a->k_scale ? DERIVE_IN(float, a->v_scale) : NULL;
	uint64_t block = slot / c->block_size;
	uint32_t off = (uint32_t)(slot % c->block_size);

	for (uint32_t i = 0; i < c->heads * c->head_size; i++) {
		uint32_t h = i / c->head_size, d = i % c->head_size;

		store(a->k_cache, cache_key(c, block, off, h, d), key[i],
		      DERIVE_IN(float, a->k_scale));
		store(a->v_cache, cache_value(c, block, off, h, d), value[i], v_scale);
	}
}

void decode_reshape_and_cache_twin(const void *args)
{
	const struct decode_reshape_and_cache_args *a = args;
	const struct cache c = { a->block_size, a->blocks, a->kv_heads, a->head_size,
				 a->flags & DECODE_PAGED ? DECODE_CACHE_X(a->k_scale != 0) : 0 };

	if (c.x != 0 && c.head_size % c.x != 0)
		return;
	for (uint64_t t = 0; t < a->tokens; t++) {
		int64_t slot = DERIVE_IN(int64_t, a->slots)[t];

		if (slot_of(slot, a->block_size, a->blocks))
			cache_token(a, &c, t, (uint64_t)slot);
	}
}

void decode_concat_and_cache_mla_twin(const void *args)
{
	const struct decode_concat_and_cache_mla_args *a = args;
	uint64_t width = a->latent + a->rope;

	for (uint64_t t = 0; t < a->tokens; t++) {
		const uint16_t *latent = DERIVE_IN(uint16_t, a->kv_c) + t * a->c_stride;
		const uint16_t *rope = DERIVE_IN(uint16_t, a->k_pe) + t * a->pe_stride;
		int64_t slot = DERIVE_IN(int64_t, a->slots)[t];

		if (!slot_of(slot, a->block_size, a->blocks))
			continue;
		for (uint32_t i = 0; i < width; i++)
			store(a->cache, (uint64_t)slot * width + i,
			      i < a->latent ? latent[i] : rope[i - a->latent],
			      DERIVE_IN(float, a->scale));
	}
}
