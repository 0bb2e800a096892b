/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts a token goes to, and its way there and back; see moe.c, the twins. */
#include "kernels/decode/decode.cuh"
#include "kernels/moe.cuh"

#define TOPK_EACH (DECODE_EXPERTS_MAX / 32) /* logits of a lane */

struct topk_params {
	const void *gating;
	float *weights;
	int32_t *ids, *source;
	uint32_t tokens, experts, topk, flags;
};

/* The larger logit; of equal ones the lower expert. */
static __device__ __forceinline__ bool topk_before(float x, uint32_t e, float y, uint32_t other)
{
	return x > y || (x == y && e < other);
}

/* The first of those that are left, in all lanes; @p left has a bit for each logit of the lane. */
static __device__ __forceinline__ uint32_t topk_first(const float *logit, uint32_t left, float *top)
{
	uint32_t best = UINT32_MAX;
	float x = -INFINITY;

#pragma unroll
	for (uint32_t i = 0; i < TOPK_EACH; i++)
		if (left >> i & 1 && topk_before(logit[i], 32 * i + LANE, x, best)) {
			x = logit[i];
			best = 32 * i + LANE;
		}
	for (int lanes = 16; lanes > 0; lanes /= 2) {
		float y = __shfl_xor_sync(0xffffffff, x, lanes);
		uint32_t other = __shfl_xor_sync(0xffffffff, best, lanes);

		if (topk_before(y, other, x, best)) {
			x = y;
			best = other;
		}
	}
	*top = x;
	return best;
}

/* The logits of a token, expert 32 i + LANE in place i; a NaN is not chosen before a number. */
static __device__ __forceinline__ uint32_t topk_load(const topk_params &p, uint64_t token,
						     float *logit)
{
	uint32_t left = 0;

#pragma unroll
	for (uint32_t i = 0; i < TOPK_EACH; i++) {
		uint64_t at = token * p.experts + 32 * i + LANE;

		logit[i] = -INFINITY;
		if (32 * i + LANE >= p.experts)
			continue;
		left |= 1u << i;
		if (p.flags & DECODE_F32)
			logit[i] = ((const float *)p.gating)[at];
		else
			logit[i] = from_bf16(((const uint16_t *)p.gating)[at]);
		if (isnan(logit[i]))
			logit[i] = -INFINITY;
	}
	return left;
}

/* Lane j has slot j. */
static __device__ __forceinline__ void topk_token(const topk_params &p, uint64_t token)
{
	float logit[TOPK_EACH], top = 0, mine = 0, sum = 0;
	uint32_t left = topk_load(p, token, logit), id = 0;

	for (uint32_t j = 0; j < p.topk; j++) {
		float x;
		uint32_t e = topk_first(logit, left, &x);

		if (j == 0)
			top = x;
		if (LANE == j) {
			mine = x;
			id = e;
		}
		if (LANE == e % 32)
			left &= ~(1u << e / 32);
	}
	mine = LANE < p.topk ? expf(mine - top) : 0;
	if (p.flags & DECODE_RENORMALIZE) {
		sum = mine;
	} else {
#pragma unroll
		for (uint32_t i = 0; i < TOPK_EACH; i++)
			if (32 * i + LANE < p.experts)
				sum += expf(logit[i] - top);
	}
	sum = warp_sum(sum);
	if (LANE < p.topk) {
		p.weights[token * p.topk + LANE] = __fdiv_rn(mine, sum);
		p.ids[token * p.topk + LANE] = id;
		if (p.source)
			p.source[token * p.topk + LANE] = LANE * p.tokens + token;
	}
}

/* A warp has a token. */
DECODE_KERNEL decode_topk_softmax(const void *gating, float *weights, int32_t *ids, int32_t *source,
				  uint32_t tokens, uint32_t experts, uint32_t topk, uint32_t flags)
{
	const topk_params p = { gating, weights, ids, source, tokens, experts, topk, flags };

	if (experts > DECODE_EXPERTS_MAX || topk > DECODE_TOPK_MAX || topk > experts)
		return;
	for (uint64_t t = (uint64_t)blockIdx.x * WARPS + WARP; t < tokens;
	     t += (uint64_t)gridDim.x * WARPS)
		topk_token(p, t);
}

DECODE_KERNEL decode_moe_align(const int32_t *ids, const int32_t *map, int32_t *sorted,
			       int32_t *experts_of, int32_t *total, uint32_t count,
			       uint32_t experts, uint32_t block, uint32_t capacity, int32_t tail)
{
	moe_align(ids, map, sorted, experts_of, total, count, experts, block, capacity, tail);
}

DECODE_KERNEL decode_moe_permute_index(const int32_t *ids, const int32_t *map, int32_t *sorted,
				       int32_t *inverse, int64_t *offsets, uint32_t count,
				       uint32_t experts, uint32_t local)
{
	moe_permute_index(ids, map, sorted, inverse, offsets, count, experts, local);
}

DECODE_KERNEL decode_moe_permute_rows(const void *x, const int32_t *sorted, const int64_t *offsets,
				      void *out, uint32_t count, uint32_t topk, uint32_t row_bytes,
				      uint32_t local)
{
	moe_permute_rows(x, sorted, offsets, out, count, topk, row_bytes, local);
}

DECODE_KERNEL decode_moe_unpermute(const uint16_t *rows, const int32_t *inverse,
				   const float *weights, const int64_t *offsets, uint16_t *out,
				   uint32_t tokens, uint32_t topk, uint32_t hidden, uint32_t local)
{
	moe_unpermute(rows, inverse, weights, offsets, out, tokens, topk, hidden, local,
		      DERIVE_BF16);
}

DECODE_KERNEL decode_moe_sum(const uint16_t *x, uint16_t *out, uint32_t tokens, uint32_t topk,
			     uint32_t hidden)
{
	FOR_ROWS (t, tokens)
		FOR_COLUMNS (h, hidden) {
			float sum = 0;

			for (uint32_t j = 0; j < topk; j++)
				sum = __fadd_rn(sum, from_bf16(x[(t * topk + j) * hidden + h]));
			out[t * hidden + h] = to_bf16(sum);
		}
}
