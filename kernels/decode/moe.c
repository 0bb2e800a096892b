/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of moe.cu: which experts a token goes to, and its way there and back. What
 * kernels/moe.c has already is that. Threads: any; pure.
 */
#include <math.h>

#include "kernels/decode/decode.h"
#include "kernels/number.h"
#include "kernels/twins.h"

/* A NaN is never chosen before a number. */
static float logit(const struct decode_topk_softmax_args *a, uint64_t token, uint32_t expert)
{
	uint64_t at = token * a->experts + expert;
	float x = a->flags & DECODE_F32 ? DERIVE_IN(float, a->gating)[at]
					: number_from_bf16(DERIVE_IN(uint16_t, a->gating)[at]);

	return isnan(x) ? -INFINITY : x;
}

/* Chosen by logits, which softmax keeps in order: a tie is one of logits, not of rounded weights.
 */
static uint32_t next_expert(const struct decode_topk_softmax_args *a, uint64_t token,
			    const bool *chosen)
{
	uint32_t best = a->experts;

	for (uint32_t e = 0; e < a->experts; e++)
		if (!chosen[e] &&
		    (best == a->experts || logit(a, token, e) > logit(a, token, best)))
			best = e;
	return best;
}

static void choose(const struct decode_topk_softmax_args *a, uint64_t token)
{
	float *weight = DERIVE_OUT(float, a->weights) + token * a->topk, top = 0;
	int32_t *id = DERIVE_OUT(int32_t, a->ids) + token * a->topk;
	bool chosen[DECODE_EXPERTS_MAX] = { false };
	double all = 0, sum = 0;

	for (uint32_t j = 0; j < a->topk; j++) {
		uint32_t e = next_expert(a, token, chosen);

		if (j == 0)
			top = logit(a, token, e);
		chosen[e] = true;
		id[j] = (int32_t)e;
		weight[j] = expf(logit(a, token, e) - top);
		sum += weight[j];
		if (a->source != 0)
			DERIVE_OUT(int32_t, a->source)
		[token * a->topk + j] = (int32_t)(j * a->tokens + token);
	}
	for (uint32_t e = 0; e < a->experts; e++)
		all += expf(logit(a, token, e) - top);
	for (uint32_t j = 0; j < a->topk; j++)
		weight[j] /= (float)(a->flags & DECODE_RENORMALIZE ? sum : all);
}

void decode_topk_softmax_twin(const void *args)
{
	const struct decode_topk_softmax_args *a = args;

	if (a->experts > DECODE_EXPERTS_MAX || a->topk > DECODE_TOPK_MAX || a->topk > a->experts)
		return;
	for (uint32_t t = 0; t < a->tokens; t++)
		choose(a, t);
}

void decode_moe_align_twin(const void *args)
{
	const struct decode_moe_align_args *a = args;
	const struct arena_moe_align_args align = {
		.ids = a->ids,
		.map = a->map,
		.sorted = a->sorted,
		.blocks = a->experts_of,
		.total = a->total,
		.count = a->count,
		.experts = a->experts,
		.block = a->block,
		.capacity = a->capacity,
		.tail = a->tail,
	};

	arena_moe_align_twin(&align);
}

void decode_moe_permute_index_twin(const void *args)
{
	const struct decode_moe_permute_index_args *a = args;
	const struct arena_moe_permute_index_args index = {
		.ids = a->ids,
		.map = a->map,
		.sorted = a->sorted,
		.inverse = a->inverse,
		.offsets = a->offsets,
		.count = a->count,
		.experts = a->experts,
		.local = a->local,
	};

	arena_moe_permute_index_twin(&index);
}

void decode_moe_permute_rows_twin(const void *args)
{
	const struct decode_moe_permute_rows_args *a = args;
	const struct arena_moe_permute_rows_args rows = {
		.x = a->x,
		.sorted = a->sorted,
		.offsets = a->offsets,
		.out = a->out,
		.count = a->count,
		.topk = a->topk,
		.row_bytes = a->row_bytes,
		.local = a->local,
	};

	arena_moe_permute_rows_twin(&rows);
}

void decode_moe_unpermute_twin(const void *args)
{
	const struct decode_moe_unpermute_args *a = args;
	const struct arena_moe_unpermute_args rows = {
		.rows = a->rows,
		.inverse = a->inverse,
		.weights = a->weights,
		.offsets = a->offsets,
		.out = a->out,
		.tokens = a->tokens,
		.topk = a->topk,
		.hidden = a->hidden,
		.local = a->local,
		.type = DERIVE_BF16,
	};

	arena_moe_unpermute_twin(&rows);
}

void decode_moe_sum_twin(const void *args)
{
	const struct decode_moe_sum_args *a = args;
	const uint16_t *x = DERIVE_IN(uint16_t, a->x);
	uint16_t *out = DERIVE_OUT(uint16_t, a->out);

	for (uint64_t t = 0; t < a->tokens; t++, x += (uint64_t)a->topk * a->hidden)
		for (uint32_t h = 0; h < a->hidden; h++) {
			float sum = 0;

			for (uint64_t j = 0; j < a->topk; j++)
				sum += number_from_bf16(x[j * a->hidden + h]);
			*out++ = number_to_bf16(sum);
		}
}
