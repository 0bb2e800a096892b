/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of mla.cu: multi-head latent attention as DeepSeek's models have it. A head has
 * @nope rows of kv_b_proj for its keys, then @v rows for its values:
 *   W_UK_T[h, p, l] = w[h * (nope + v) + p, l]
 *   W_UV[h, l, i]   = w[h * (nope + v) + nope + i, l]
 * Elements are words of 2 or 4 bytes and are not looked into. An FP8 weight is made bf16 first. As
 * vLLM's MLA layers do after loading.
 * Threads: any; pure.
 */
#include <string.h>

#include "kernels/number.h"
#include "kernels/twins.h"

void arena_mla_split_twin(const void *args)
{
	const struct arena_mla_split_args *a = args;
	const char *from = DERIVE_IN(char, a->w);
	char *uk = DERIVE_OUT(char, a->uk), *uv = DERIVE_OUT(char, a->uv);
	size_t row = (size_t)a->latent * a->word, word = a->word;

	for (uint32_t h = 0; h < a->heads; h++) {
		memcpy(uk, from, a->nope * row);
		uk += a->nope * row;
		from += a->nope * row;
		for (uint32_t l = 0; l < a->latent; l++)
			for (uint32_t i = 0; i < a->v; i++, uv += word)
				memcpy(uv, from + i * row + l * word, word);
		from += a->v * row;
	}
}

void arena_mla_dequant_twin(const void *args)
{
	const struct arena_mla_dequant_args *a = args;
	const uint8_t *w = DERIVE_IN(uint8_t, a->w);
	const float *scales = DERIVE_IN(float, a->scales);
	uint16_t *out = DERIVE_OUT(uint16_t, a->out);
	uint64_t per_row = DERIVE_CEIL(a->cols, a->block_cols);

	for (uint64_t r = 0; r < a->rows; r++)
		for (uint64_t c = 0; c < a->cols; c++) {
			float scale = scales[r / a->block_rows * per_row + c / a->block_cols];

			*out++ = number_to_bf16(number_from_e4m3(*w++) * scale);
		}
}
