/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of attention.cu: one query a sequence against a cache in blocks. Sums are f64, so
 * that only the kernel's error counts. Threads: any; pure.
 */
#include <math.h>

#include "kernels/decode/cache.h"
#include "kernels/number.h"

static double cached(uint64_t cache, uint64_t at, const float *scale)
{
	if (scale == NULL)
		return number_from_bf16(DERIVE_IN(uint16_t, cache)[at]);
	return number_from_e4m3(DERIVE_IN(uint8_t, cache)[at]) * *scale;
}

/* Which block has token @j of sequence @s; -1: none. */
static int64_t block_of(const int32_t *row, uint32_t j, uint32_t block_size, uint32_t blocks,
			uint32_t max_blocks)
{
	uint32_t place = j / block_size;

	if (place >= max_blocks || row[place] < 0 || (uint32_t)row[place] >= blocks)
		return -1;
	return row[place];
}

/* A running softmax: sums with the weights exp(score - max). */
struct softmax {
	double max, sum, value[DECODE_LATENT_MAX];
	uint32_t width;
};

/* @return what the values of this score have to be multiplied with. */
static double softmax_add(struct softmax *s, double score)
{
	if (score == -INFINITY)
		return 0;
	/* A NaN is never larger, and makes the sum one. */
	if (score > s->max) {
		double old = exp(s->max - score);

		s->max = score;
		s->sum *= old;
		for (uint32_t d = 0; d < s->width; d++)
			s->value[d] *= old;
	}
	s->sum += exp(score - s->max);
	return exp(score - s->max);
}

/* A sum of 0: no score, or none but -infinity. */
static void softmax_store(const struct softmax *s, uint16_t *out)
{
	for (uint32_t d = 0; d < s->width; d++)
		out[d] = s->sum == 0 ? 0 : number_to_bf16((float)(s->value[d] / s->sum));
}

/* ---- paged attention ---- */

struct paged {
	const struct decode_paged_attention_args *a;
	struct cache cache;
};

static void paged_token(const struct paged *p, struct softmax *s, const uint16_t *q,
			const uint64_t where[2], uint32_t h)
{
	const float *k_scale = DERIVE_IN(float, p->a->k_scale);
	const float *v_scale = k_scale ? DERIVE_IN(float, p->a->v_scale) : NULL;
	uint32_t off = (uint32_t)where[1];
	double score = 0, weight;

	for (uint32_t d = 0; d < s->width; d++)
		score += number_from_bf16(q[d]) *
			 cached(p->a->k_cache, cache_key(&p->cache, where[0], off, h, d), k_scale);
	weight = softmax_add(s, score * p->a->scale);
	for (uint32_t d = 0; d < s->width; d++)
		s->value[d] +=
			weight *
			cached(p->a->v_cache, cache_value(&p->cache, where[0], off, h, d), v_scale);
}

static void paged_head(const struct paged *p, uint64_t i, uint32_t h)
{
	const struct decode_paged_attention_args *a = p->a;
	const int32_t *row = DERIVE_IN(int32_t, a->tables) + i * a->max_blocks;
	const uint16_t *q = DERIVE_IN(uint16_t, a->query) + i * a->q_stride + h * a->head_size;
	struct softmax s = { .max = -INFINITY, .width = a->head_size };
	int64_t len = DERIVE_IN(int32_t, a->lens)[i];
	int64_t first = a->window != 0 && len > a->window ? len - a->window : 0;

	if (a->sinks && len > 0)
		softmax_add(&s, DERIVE_IN(float, a->sinks)[h]);
	for (int64_t j = first; j < len; j++) {
		int64_t block = block_of(row, (uint32_t)j, a->block_size, a->blocks, a->max_blocks);
		const uint64_t where[2] = { (uint64_t)block, (uint64_t)j % a->block_size };

		if (block >= 0)
			paged_token(p, &s, q, where, h / (a->heads / a->kv_heads));
	}
	softmax_store(&s, DERIVE_OUT(uint16_t, a->out) + (i * a->heads + h) * a->head_size);
}

static bool attention_fits(const struct decode_paged_attention_args *a)
{
	return a->head_size <= DECODE_HEAD_MAX && a->block_size > 0 && a->kv_heads > 0 &&
	       a->heads % a->kv_heads == 0 &&
	       !(a->flags & DECODE_PAGED && a->head_size % DECODE_CACHE_X(a->k_scale != 0));
}

void decode_paged_attention_twin(const void *args)
{
	const struct decode_paged_attention_args *a = args;
	const struct paged p = {
		a,
		{ a->block_size, a->blocks, a->kv_heads, a->head_size,
		  a->flags & DECODE_PAGED ? DECODE_CACHE_X(a->k_scale != 0) : 0 },
	};

	if (!attention_fits(a))
		return;
	for (uint32_t i = 0; i < a->seqs; i++)
		for (uint32_t h = 0; h < a->heads; h++)
			paged_head(&p, i, h);
}

/* ---- MLA ---- */

static void mla_head(const struct decode_mla_attention_args *a, uint64_t i, uint32_t h)
{
	const uint16_t *q = DERIVE_IN(uint16_t, a->q_c) + (i * a->heads + h) * a->latent;
	const uint16_t *pe = DERIVE_IN(uint16_t, a->q_pe) + i * a->pe_stride + h * a->pe_head;
	const int32_t *row = DERIVE_IN(int32_t, a->tables) + i * a->max_blocks;
	const float *scale = DERIVE_IN(float, a->cache_scale);
	struct softmax s = { .max = -INFINITY, .width = a->latent };
	int32_t len = DERIVE_IN(int32_t, a->lens)[i];

	for (int32_t j = 0; j < len; j++) {
		int64_t block = block_of(row, (uint32_t)j, a->block_size, a->blocks, a->max_blocks);
		uint64_t at = ((uint64_t)block * a->block_size + (uint32_t)j % a->block_size) *
			      (a->latent + a->rope);
		double score = 0, weight;

		if (block < 0)
			continue;
		for (uint32_t d = 0; d < a->latent; d++)
			score += number_from_bf16(q[d]) * cached(a->cache, at + d, scale);
		for (uint32_t d = 0; d < a->rope; d++)
			score += number_from_bf16(pe[d]) *
				 cached(a->cache, at + a->latent + d, scale);
		weight = softmax_add(&s, score * a->scale);
		for (uint32_t d = 0; d < a->latent; d++)
			s.value[d] += weight * cached(a->cache, at + d, scale);
	}
	softmax_store(&s, DERIVE_OUT(uint16_t, a->out) + (i * a->heads + h) * a->latent);
}

void decode_mla_attention_twin(const void *args)
{
	const struct decode_mla_attention_args *a = args;

	if (a->latent > DECODE_LATENT_MAX || a->rope > DECODE_ROPE_MAX || a->block_size == 0)
		return;
	for (uint32_t i = 0; i < a->seqs; i++)
		for (uint32_t h = 0; h < a->heads; h++)
			mla_head(a, i, h);
}
