/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of nvfp4_quant.cu: activations as NVFP4, block scales where the GEMMs want them.
 * A block of 16 is what kernels/nvfp4.c says. Threads: any; pure.
 */
#include <string.h>

#include "kernels/decode/decode.h"
#include "kernels/decode/nvfp4_tiles.h"
#include "kernels/twins.h"

/* A row, with @sf the byte of its row 0 and @sf_row the place of this one. */
static void quant_row(const struct arena_nvfp4_quant_args *row, uint64_t sf_row)
{
	struct arena_nvfp4_quant_args block = *row;

	block.cols = 16;
	for (uint32_t b = 0; b < row->cols / 16; b++) {
		block.x = row->x + 32ull * b;
		block.codes = row->codes + 8ull * b;
		block.sf = row->sf + nvfp4_place(sf_row, b, row->cols);
		arena_nvfp4_quant_twin(&block);
	}
}

void decode_nvfp4_quant_twin(const void *args)
{
	const struct decode_nvfp4_quant_args *a = args;
	struct arena_nvfp4_quant_args row = {
		.x = a->x,
		.gscale = a->gscale,
		.codes = a->codes,
		.sf = a->sf,
		.rows = 1,
		.cols = a->k,
		.type = DERIVE_BF16,
	};

	if (a->k % 16 != 0)
		return;
	memset(DERIVE_OUT(uint8_t, a->sf), 0, nvfp4_bytes(a->tokens, a->k));
	for (uint32_t t = 0; t < a->tokens; t++, row.x += 2ull * a->k, row.codes += a->k / 2)
		quant_row(&row, t);
}

void decode_moe_nvfp4_quant_twin(const void *args)
{
	const struct decode_moe_nvfp4_quant_args *a = args;
	const int64_t *offset = DERIVE_IN(int64_t, a->offsets);
	int32_t *sf_offset = DERIVE_OUT(int32_t, a->sf_offsets), at = 0;

	if (a->k % 16 != 0 || a->experts > DECODE_EXPERTS_MAX)
		return;
	for (uint32_t e = 0; e < a->experts; e++) {
		bool fits = nvfp4_group_fits(offset + e, at, a->rows, a->sf_rows);
		uint32_t rows = fits ? (uint32_t)(offset[e + 1] - offset[e]) : 0;

		sf_offset[e] = at;
		for (uint32_t r = 0; r < rows; r++) {
			uint64_t from = (uint64_t)offset[e] + r;
			struct arena_nvfp4_quant_args row = {
				.x = a->x + 2 * from * a->k,
				.gscale = a->gscale + 4ull * e,
				.codes = a->codes + from * (a->k / 2),
				.sf = a->sf,
				.rows = 1,
				.cols = a->k,
				.type = DERIVE_BF16,
			};

			quant_row(&row, (uint64_t)at + r);
		}
		at += (int32_t)DERIVE_UP(rows, 128);
	}
	sf_offset[a->experts] = at;
}
