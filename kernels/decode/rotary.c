/* SPDX-License-Identifier: Apache-2.0 */
/* Job: the twin of rotary.cu. Threads: any; pure. */
#include "kernels/decode/decode.h"
#include "kernels/number.h"

static float table_at(const struct decode_rotary_args *a, uint64_t i)
{
	return a->flags & DECODE_F32 ? DERIVE_IN(float, a->cos_sin)[i]
				     : number_from_bf16(DERIVE_IN(uint16_t, a->cos_sin)[i]);
}

static void rotate(const struct decode_rotary_args *a, uint64_t position, uint16_t *head)
{
	uint32_t half = a->rot / 2;
	bool gptj = a->flags & DECODE_GPTJ;

	for (uint32_t i = 0; i < half; i++) {
		float c = table_at(a, position * a->rot + i);
		float s = table_at(a, position * a->rot + half + i);
		uint16_t *x = head + (gptj ? 2 * i : i), *y = x + (gptj ? 1 : half);
		float x0 = number_from_bf16(*x), y0 = number_from_bf16(*y);
		float xc = x0 * c, ys = y0 * s, yc = y0 * c, xs = x0 * s;

		*x = number_to_bf16(xc - ys);
		*y = number_to_bf16(yc + xs);
	}
}

void decode_rotary_twin(const void *args)
{
	const struct decode_rotary_args *a = args;
	uint16_t *query = DERIVE_OUT(uint16_t, a->query), *key = DERIVE_OUT(uint16_t, a->key);

	for (uint64_t t = 0; t < a->tokens; t++) {
		int64_t position = DERIVE_IN(int64_t, a->positions)[t];

		if (position < 0 || position >= a->max_position)
			continue;
		for (uint64_t h = 0; h < a->heads; h++)
			rotate(a, (uint64_t)position, query + t * a->q_stride + h * a->q_head);
		for (uint64_t h = 0; key != NULL && h < a->kv_heads; h++)
			rotate(a, (uint64_t)position, key + t * a->k_stride + h * a->k_head);
	}
}
