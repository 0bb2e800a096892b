/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one query a sequence, over a cache in blocks; see attention.c, the twins.
 *
 * A block has a head of a sequence. Its warps take turns of TURN tokens, each with a running
 * softmax of its own, lane l with elements l, l + 32, .. of the head; then the warps' results are
 * merged in the order of the warps. So the order of all sums is that of the tokens, each time the
 * same.
 */
#include "kernels/decode/cache.h"
#include "kernels/decode/decode.cuh"

#define TURN	    4
#define HEAD_WIDE   (DECODE_HEAD_MAX / 32)
#define LATENT_WIDE (DECODE_LATENT_MAX / 32)
#define ROPE_WIDE   (DECODE_ROPE_MAX / 32)

/* ---- softmax ---- */

template <int N> struct running {
	float max, sum, value[N];
};

template <int N> static __device__ __forceinline__ void running_init(running<N> &r)
{
	r.max = -INFINITY;
	r.sum = 0;
	for (int i = 0; i < N; i++)
		r.value[i] = 0;
}

/*
 * A NaN is never the maximum, and makes the sum one. A score of -infinity has the weight 0, by
 * which its value is multiplied all the same: that may be a NaN.
 */
template <int N>
static __device__ __forceinline__ void running_add(running<N> &r, float score, const float *value)
{
	float max = fmaxf(r.max, score), old = 1, weight = 0;

	if (score > r.max)
		old = expf(r.max - score);
	if (score != -INFINITY)
		weight = expf(score - max);
	r.max = max;
	r.sum = r.sum * old + weight;
#pragma unroll
	for (int i = 0; i < N; i++)
		r.value[i] = r.value[i] * old + weight * value[i];
}

struct merge {
	float max[WARPS], sum[WARPS];
	float value[WARPS][DECODE_LATENT_MAX];
};

/* By what the results of a part with the maximum @own are multiplied. Both may be -infinity. */
static __device__ __forceinline__ float merge_factor(float own, float max)
{
	return own == max ? 1 : expf(own - max);
}

/* The warps' results as one row of @width numbers. @sink: one more score without a value. */
template <int N>
static __device__ __forceinline__ void merge_store(const running<N> &r, merge &m, uint16_t *out,
						   uint32_t width, float sink)
{
	float max = sink, sum = 0;

	if (LANE == 0) {
		m.max[WARP] = r.max;
		m.sum[WARP] = r.sum;
	}
#pragma unroll
	for (int i = 0; i < N; i++)
		m.value[WARP][LANE + 32 * i] = r.value[i];
	__syncthreads();
	for (int w = 0; w < WARPS; w++)
		max = fmaxf(max, m.max[w]);
	if (sink != -INFINITY)
		sum = expf(sink - max);
	for (int w = 0; w < WARPS; w++)
		sum += m.sum[w] * merge_factor(m.max[w], max);
	FOR_COLUMNS (d, width) {
		float value = 0;

		for (int w = 0; w < WARPS; w++)
			value += m.value[w][d] * merge_factor(m.max[w], max);
		out[d] = sum == 0 ? 0 : to_bf16(value / sum);
	}
	__syncthreads(); /* before the next head's */
}

/* ---- caches ---- */

struct place {
	uint64_t block;
	uint32_t off;
	bool there;
};

static __device__ __forceinline__ place find_token(const int32_t *row, uint32_t j, uint32_t len,
						   const cache &c, uint32_t max_blocks)
{
	uint32_t at = j / c.block_size;
	int32_t block = j < len && at < max_blocks ? row[at] : -1;
	place p = { (uint64_t)block, j % c.block_size, block >= 0 && (uint32_t)block < c.blocks };

	return p;
}

template <bool FP8>
static __device__ __forceinline__ float cached(const void *cache, uint64_t at, float scale)
{
	return FP8 ? from_e4m3(((const uint8_t *)cache)[at]) * scale
		   : from_bf16(((const uint16_t *)cache)[at]);
}

/* ---- paged attention ---- */

struct paged {
	const uint16_t *query;
	const void *k_cache, *v_cache;
	const int32_t *row;
	float k_scale, v_scale, scale;
	uint32_t first, len, max_blocks, kv_head;
};

/* X as in struct cache: a constant, so that its divisions are shifts. */
template <bool FP8, uint32_t X>
static __device__ __forceinline__ void paged_warp(const paged &p, cache c, running<HEAD_WIDE> &r)
{
	float q[HEAD_WIDE];

	c.x = X;
#pragma unroll
	for (int i = 0; i < HEAD_WIDE; i++) {
		uint32_t d = LANE + 32 * i;

		q[i] = d < c.head_size ? from_bf16(p.query[d]) * p.scale : 0;
	}
	for (uint32_t j = p.first + WARP * TURN; j < p.len; j += WARPS * TURN) {
		place at[TURN];
		float score[TURN];

#pragma unroll
		for (int u = 0; u < TURN; u++) {
			at[u] = find_token(p.row, j + u, p.len, c, p.max_blocks);
			score[u] = 0;
#pragma unroll
			for (int i = 0; i < HEAD_WIDE; i++) {
				uint32_t d = LANE + 32 * i;

				if (at[u].there && d < c.head_size)
					score[u] += q[i] *
						    cached<FP8>(p.k_cache,
								cache_key(&c, at[u].block,
									  at[u].off, p.kv_head, d),
								p.k_scale);
			}
		}
#pragma unroll
		for (int u = 0; u < TURN; u++) {
			float value[HEAD_WIDE], all = warp_sum(score[u]);

			if (!at[u].there)
				continue;
#pragma unroll
			for (int i = 0; i < HEAD_WIDE; i++) {
				uint32_t d = LANE + 32 * i;

				value[i] =
					d < c.head_size
						? cached<FP8>(p.v_cache,
							      cache_value(&c, at[u].block,
									  at[u].off, p.kv_head, d),
							      p.v_scale)
						: 0;
			}
			running_add(r, all, value);
		}
	}
}

static __device__ __forceinline__ void paged_any(const paged &p, const cache &c, bool fp8,
						 running<HEAD_WIDE> &r)
{
	if (fp8 && c.x)
		paged_warp<true, 16>(p, c, r);
	else if (fp8)
		paged_warp<true, 0>(p, c, r);
	else if (c.x)
		paged_warp<false, 8>(p, c, r);
	else
		paged_warp<false, 0>(p, c, r);
}

DECODE_KERNEL decode_paged_attention(const uint16_t *query, const void *k_cache,
				     const void *v_cache, const int32_t *tables,
				     const int32_t *lens, const float *sinks, const float *k_scale,
				     const float *v_scale, uint16_t *out, float scale,
				     uint32_t seqs, uint32_t heads, uint32_t kv_heads,
				     uint32_t head_size, uint32_t block_size, uint32_t blocks,
				     uint32_t max_blocks, uint32_t window, uint32_t q_stride,
				     uint32_t flags)
{
	__shared__ merge m;
	bool fp8 = k_scale != NULL;
	const cache c = { block_size, blocks, kv_heads, head_size,
			  flags & DECODE_PAGED ? DECODE_CACHE_X(fp8) : 0 };

	if (head_size > DECODE_HEAD_MAX || block_size == 0 || kv_heads == 0 ||
	    heads % kv_heads != 0 || (c.x != 0 && head_size % c.x != 0))
		return;
	FOR_ROWS (i, (uint64_t)seqs * heads) {
		uint64_t s = i / heads;
		uint32_t h = i % heads, len = lens[s] > 0 ? lens[s] : 0;
		paged p = { .query = query + s * q_stride + (uint64_t)h * head_size,
			    .k_cache = k_cache,
			    .v_cache = v_cache,
			    .row = tables + s * max_blocks,
			    .k_scale = fp8 ? *k_scale : 1,
			    .v_scale = fp8 ? *v_scale : 1,
			    .scale = scale,
			    .first = window != 0 && len > window ? len - window : 0,
			    .len = len,
			    .max_blocks = max_blocks,
			    .kv_head = h / (heads / kv_heads) };
		running<HEAD_WIDE> r;

		running_init(r);
		paged_any(p, c, fp8, r);
		merge_store(r, m, out + i * head_size, head_size,
			    sinks && len > 0 ? sinks[h] : -INFINITY);
	}
}

/* ---- MLA ---- */

struct latents {
	const uint16_t *q_c, *q_pe;
	const void *rows;
	const int32_t *table;
	float cache_scale, scale;
	uint32_t len, latent, rope, max_blocks;
};

template <bool FP8>
static __device__ __forceinline__ void mla_warp(const latents &p, const cache &c,
						running<LATENT_WIDE> &r)
{
	float q[LATENT_WIDE], pe[ROPE_WIDE];

#pragma unroll
	for (int i = 0; i < LATENT_WIDE; i++)
		q[i] = LANE + 32 * i < p.latent ? from_bf16(p.q_c[LANE + 32 * i]) : 0;
#pragma unroll
	for (int i = 0; i < ROPE_WIDE; i++)
		pe[i] = LANE + 32 * i < p.rope ? from_bf16(p.q_pe[LANE + 32 * i]) : 0;
	for (uint32_t j = WARP; j < p.len; j += WARPS) {
		place at = find_token(p.table, j, p.len, c, p.max_blocks);
		uint64_t row = (at.block * c.block_size + at.off) * (p.latent + p.rope);
		float value[LATENT_WIDE], score = 0;

		if (!at.there)
			continue;
			/* Read once: a latent is key and value. */
#pragma unroll
		for (int i = 0; i < LATENT_WIDE; i++) {
			uint32_t d = LANE + 32 * i;

			value[i] = d < p.latent ? cached<FP8>(p.rows, row + d, p.cache_scale) : 0;
			score += q[i] * value[i];
		}
#pragma unroll
		for (int i = 0; i < ROPE_WIDE; i++) {
			uint32_t d = LANE + 32 * i;

			if (d < p.rope)
				score += pe[i] *
					 cached<FP8>(p.rows, row + p.latent + d, p.cache_scale);
		}
		running_add(r, warp_sum(score) * p.scale, value);
	}
}

DECODE_KERNEL decode_mla_attention(const uint16_t *q_c, const uint16_t *q_pe, const void *rows,
				   const int32_t *tables, const int32_t *lens,
				   const float *cache_scale, uint16_t *out, float scale,
				   uint32_t seqs, uint32_t heads, uint32_t latent, uint32_t rope,
				   uint32_t block_size, uint32_t blocks, uint32_t max_blocks,
				   uint32_t pe_stride, uint32_t pe_head)
{
	__shared__ merge m;
	const cache c = { block_size, blocks, 1, latent, 0 };

	if (latent > DECODE_LATENT_MAX || rope > DECODE_ROPE_MAX || block_size == 0)
		return;
	FOR_ROWS (i, (uint64_t)seqs * heads) {
		uint64_t s = i / heads, h = i % heads;
		latents p = { .q_c = q_c + i * latent,
			      .q_pe = q_pe + s * pe_stride + h * pe_head,
			      .rows = rows,
			      .table = tables + s * max_blocks,
			      .cache_scale = cache_scale ? *cache_scale : 1,
			      .scale = scale,
			      .len = lens[s] > 0 ? (uint32_t)lens[s] : 0,
			      .latent = latent,
			      .rope = rope,
			      .max_blocks = max_blocks };
		running<LATENT_WIDE> r;

		running_init(r);
		if (cache_scale)
			mla_warp<true>(p, c, r);
		else
			mla_warp<false>(p, c, r);
		merge_store(r, m, out + i * latent, latent, -INFINITY);
	}
}
