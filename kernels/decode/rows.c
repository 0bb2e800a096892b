/* SPDX-License-Identifier: Apache-2.0 */
/* Job: the twins of rows.cu: what moves, adds or compares rows. Threads: any; pure. */
#include <math.h>
#include <string.h>

#include "kernels/decode/decode.h"
#include "kernels/number.h"

void decode_add_twin(const void *args)
{
	const struct decode_add_args *a = args;
	const uint16_t *x = DERIVE_IN(uint16_t, a->x), *y = DERIVE_IN(uint16_t, a->y);
	uint16_t *out = DERIVE_OUT(uint16_t, a->out);

	for (uint64_t i = 0; i < a->count; i++)
		out[i] = number_to_bf16(number_from_bf16(x[i]) + number_from_bf16(y[i]));
}

void decode_argmax_twin(const void *args)
{
	const struct decode_argmax_args *a = args;
	const uint16_t *word = DERIVE_IN(uint16_t, a->logits);
	const float *number = DERIVE_IN(float, a->logits);

	for (uint64_t t = 0; t < a->tokens && a->n != 0; t++) {
		float best = 0;
		int64_t at = -1;

		for (uint32_t i = 0; i < a->n; i++) {
			uint64_t place = t * a->n + i;
			float x = a->flags & DECODE_F32 ? number[place]
							: number_from_bf16(word[place]);

			if (at >= 0 && (isnan(best) || !(x > best || isnan(x))))
				continue;
			best = x;
			at = i;
		}
		DERIVE_OUT(int64_t, a->out)[t] = at;
	}
}

void decode_copy_rows_twin(const void *args)
{
	const struct decode_copy_rows_args *a = args;
	const char *in = DERIVE_IN(char, a->in);
	char *out = DERIVE_OUT(char, a->out);

	for (uint64_t r = 0; r < a->rows; r++)
		memcpy(out + r * a->out_stride, in + r * a->in_stride, a->row_bytes);
}

void decode_embedding_twin(const void *args)
{
	const struct decode_embedding_args *a = args;
	const uint16_t *table = DERIVE_IN(uint16_t, a->table);
	const int64_t *ids = DERIVE_IN(int64_t, a->ids);
	uint16_t *out = DERIVE_OUT(uint16_t, a->out);
	uint64_t row = 2ull * a->hidden;

	for (uint32_t t = 0; t < a->tokens; t++, out += a->hidden) {
		int64_t id = ids[t] - a->first;

		if (id >= 0 && id < a->vocab)
			memcpy(out, table + (uint64_t)id * a->hidden, row);
		else
			memset(out, 0, row);
	}
}
