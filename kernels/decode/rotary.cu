/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding: a thread a pair; see rotary.c, the twin. */
#include "kernels/decode/decode.cuh"

/* No fused product: as the twin. */
static __device__ __forceinline__ void rotate(uint16_t *x, uint16_t *y, float c, float s)
{
	float x0 = from_bf16(*x), y0 = from_bf16(*y);

	*x = to_bf16(__fsub_rn(__fmul_rn(x0, c), __fmul_rn(y0, s)));
	*y = to_bf16(__fadd_rn(__fmul_rn(y0, c), __fmul_rn(x0, s)));
}

DECODE_KERNEL decode_rotary(const int64_t *positions, uint16_t *query, uint16_t *key,
			    const void *cos_sin, uint32_t tokens, uint32_t heads, uint32_t kv_heads,
			    uint32_t rot, uint32_t max_position, uint32_t q_stride, uint32_t q_head,
			    uint32_t k_stride, uint32_t k_head, uint32_t flags)
{
	uint32_t half = rot / 2, all = heads + (key ? kv_heads : 0);
	bool gptj = flags & DECODE_GPTJ;

	FOR_EACH (n, (uint64_t)tokens * all * half) {
		uint64_t t = n / half / all;
		uint32_t h = n / half % all, i = n % half;
		int64_t position = positions[t];
		uint64_t at = position * rot + i;
		uint16_t *head, *x;
		float c, s;

		if (position < 0 || position >= max_position)
			continue;
		if (flags & DECODE_F32) {
			c = ((const float *)cos_sin)[at];
			s = ((const float *)cos_sin)[at + half];
		} else {
			c = from_bf16(((const uint16_t *)cos_sin)[at]);
			s = from_bf16(((const uint16_t *)cos_sin)[at + half]);
		}
		head = h < heads ? query + t * q_stride + (uint64_t)h * q_head
				 : key + t * k_stride + (uint64_t)(h - heads) * k_head;
		x = head + (gptj ? 2 * i : i);
		rotate(x, x + (gptj ? 1 : half), c, s);
	}
}
