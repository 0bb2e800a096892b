/* SPDX-License-Identifier: Apache-2.0 */
/* Job: what the mixtures of experts share: routing, parts an expert and projection, rows in the
 * order of their experts and back. One thread. */
#include <stdio.h>
#include <string.h>

#include "kernels/decode/decode.h"
#include "tests/engine/family.h"

#define ROWS (BATCH_MAX * dims.topk)

void router_declare(struct layer *l, bool bias)
{
	weight(l, FILL_WEIGHT, "mlp.router.weight", SHAPE(dims.experts, dims.hidden));
	if (bias)
		weight(l, FILL_BIAS, "mlp.router.bias", SHAPE(1, dims.experts));
}

CUdeviceptr topk_weights(struct engine *e)
{
	return buffer(e, "topk_weights", 4 * ROWS);
}

CUdeviceptr topk_ids(struct engine *e)
{
	return buffer(e, "topk_ids", 4 * ROWS);
}

static bool has(struct layer *l, const char *name)
{
	for (uint32_t i = 0; i < l->tensors_count; i++)
		if (!strcmp(l->tensors[i].name, name))
			return true;
	return false;
}

void router_run(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	CUdeviceptr gating = buffer(e, "gating", 4 * BATCH_MAX * dims.experts);

	RUN(e, decode_gemm, .x = x, .w = at(l, "mlp.router.weight"),
	    .bias = has(l, "mlp.router.bias") ? at(l, "mlp.router.bias") : 0, .out = gating,
	    .tokens = (uint32_t)e->tokens, .n = dims.experts, .k = dims.hidden,
	    .x_stride = dims.hidden, .flags = DECODE_F32);
	RUN(e, decode_topk_softmax, .gating = gating, .weights = topk_weights(e),
	    .ids = topk_ids(e), .tokens = (uint32_t)e->tokens, .experts = dims.experts,
	    .topk = dims.topk, .flags = DECODE_F32 | DECODE_RENORMALIZE);
}

/* "13" in the tensor's name: gate and up of each expert; else down. */
void experts_part(struct layer *l, struct tensor *t, enum fill fill, const char *suffix,
		  const uint64_t shape[2])
{
	static const char *const both[] = { "gate_proj", "up_proj", NULL }, *const down[] = {
		"down_proj", NULL
	};
	char key[NAME_BYTES];

	for (uint32_t x = 0; x < dims.experts; x++)
		for (const char *const *p = strstr(t->name, "13") ? both : down; *p; p++) {
			snprintf(key, sizeof(key), "mlp.experts.%u.%s.%s", x, *p, suffix);
			part(l, t, fill, key, shape);
		}
}

/* ---- rows by expert ---- */

void permute_declare(struct layer *l, enum naive naive)
{
	scratch(l, "permute.sorted", 4 * ROWS, naive);
	scratch(l, "permute.inverse", 4 * ROWS, naive);
	scratch(l, "permute.offsets", 8 * (dims.experts + 1), naive);
}

CUdeviceptr permute_run(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	uint32_t count = (uint32_t)e->tokens * dims.topk;
	CUdeviceptr rows = buffer(e, "permuted", 2 * ROWS * dims.hidden);

	RUN(e, decode_moe_permute_index, .ids = topk_ids(e), .sorted = at(l, "permute.sorted"),
	    .inverse = at(l, "permute.inverse"), .offsets = at(l, "permute.offsets"),
	    .count = count, .experts = dims.experts, .local = dims.experts);
	RUN(e, decode_moe_permute_rows, .x = x, .sorted = at(l, "permute.sorted"),
	    .offsets = at(l, "permute.offsets"), .out = rows, .count = count, .topk = dims.topk,
	    .row_bytes = 2 * dims.hidden, .local = dims.experts);
	return rows;
}

void unpermute_run(struct layer *l, CUdeviceptr rows, CUdeviceptr out)
{
	struct engine *e = l->engine;

	RUN(e, decode_moe_unpermute, .rows = rows, .inverse = at(l, "permute.inverse"),
	    .weights = topk_weights(e), .offsets = at(l, "permute.offsets"), .out = out,
	    .tokens = (uint32_t)e->tokens, .topk = dims.topk, .hidden = dims.hidden,
	    .local = dims.experts);
}
