/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: shapes and contents for the kernels of the caches: permuted and shared blocks, lengths of 0
 * and 1, places outside. Threads: one.
 */
#include <string.h>

#include "decode_check.h"

/* ---- contents ---- */

/* Different places in any order, some tokens without one. */
static void fill_places(struct draw *d, int64_t *slot, uint64_t count, uint32_t places)
{
	int64_t *all = malloc(places * sizeof(*all));

	for (uint32_t i = 0; i < places; i++) {
		uint32_t j = below(d, i + 1);

		all[i] = all[j];
		all[j] = i;
	}
	for (uint64_t i = 0; i < count; i++) {
		slot[i] = i < places ? all[i] : -1;
		if (below(d, 8) == 0)
			slot[i] = below(d, 2) ? -1 : (int64_t)places + below(d, 9);
	}
	free(all);
}

static void fill_slots(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_reshape_and_cache_args *a = args;

	fill_places(d, to, bytes / 8, a->blocks * a->block_size);
}

static void fill_mla_slots(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_concat_and_cache_mla_args *a = args;

	fill_places(d, to, bytes / 8, a->blocks * a->block_size);
}

/* Any blocks, some of them twice, few that are none. */
static void fill_blocks(struct draw *d, int32_t *table, uint64_t count, uint32_t blocks)
{
	for (uint64_t i = 0; i < count; i++) {
		table[i] = (int32_t)below(d, blocks);
		if (below(d, 20) == 0)
			table[i] = below(d, 2) ? -1 : (int32_t)blocks;
	}
}

static void fill_lengths(struct draw *d, int32_t *len, uint64_t count, uint32_t limit)
{
	for (uint64_t i = 0; i < count; i++)
		len[i] = (int32_t)(below(d, 4) ? below(d, limit + 1) : below(d, 2));
}

static void fill_tables(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	fill_blocks(d, to, bytes / 4, ((const struct decode_paged_attention_args *)args)->blocks);
}

static void fill_lens(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_paged_attention_args *a = args;

	fill_lengths(d, to, bytes / 4, a->max_blocks * a->block_size);
}

static void fill_mla_tables(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	fill_blocks(d, to, bytes / 4, ((const struct decode_mla_attention_args *)args)->blocks);
}

static void fill_mla_lens(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	const struct decode_mla_attention_args *a = args;

	fill_lengths(d, to, bytes / 4, a->max_blocks * a->block_size);
}

static void fill_cache(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	if (((const struct decode_paged_attention_args *)args)->k_scale)
		fill_e4m3(d, args, to, bytes);
	else
		fill_bf16(d, args, to, bytes);
}

static void fill_mla_cache(struct draw *d, const void *args, void *to, uint64_t bytes)
{
	if (((const struct decode_mla_attention_args *)args)->cache_scale)
		fill_e4m3(d, args, to, bytes);
	else
		fill_bf16(d, args, to, bytes);
}

/* ---- shapes ---- */

static void draw_reshape_and_cache(struct draw *d, void *args)
{
	struct decode_reshape_and_cache_args *a = args;
	uint32_t fp8 = below(d, 2), paged = below(d, 2);

	*a = (struct decode_reshape_and_cache_args){
		.key = 1,
		.value = 1,
		.k_cache = 1,
		.v_cache = 1,
		.slots = 1,
		.k_scale = fp8,
		.v_scale = fp8,
		.tokens = extent(d, 1, 20),
		.kv_heads = extent(d, 1, 3),
		.head_size = paged ? extent(d, 16, 8) : extent(d, 1, 130),
		.block_size = extent(d, 1, 17),
		.blocks = extent(d, 1, 9),
		.flags = paged * DECODE_PAGED,
	};
	a->k_stride = a->kv_heads * a->head_size + below(d, 9);
	a->v_stride = a->kv_heads * a->head_size + below(d, 9);
}

static void draw_concat_and_cache_mla(struct draw *d, void *args)
{
	struct decode_concat_and_cache_mla_args *a = args;

	*a = (struct decode_concat_and_cache_mla_args){
		.kv_c = 1,
		.k_pe = 1,
		.cache = 1,
		.slots = 1,
		.scale = below(d, 2),
		.tokens = extent(d, 1, 20),
		.latent = extent(d, 1, 200),
		.rope = extent(d, 1, 16),
		.block_size = extent(d, 1, 17),
		.blocks = extent(d, 1, 9),
	};
	a->c_stride = a->latent + below(d, 9);
	a->pe_stride = a->rope + below(d, 9);
}

static void draw_paged_attention(struct draw *d, void *args)
{
	struct decode_paged_attention_args *a = args;
	uint32_t fp8 = below(d, 2), paged = below(d, 2);

	*a = (struct decode_paged_attention_args){
		.query = 1,
		.k_cache = 1,
		.v_cache = 1,
		.tables = 1,
		.lens = 1,
		.sinks = below(d, 2),
		.k_scale = fp8,
		.v_scale = fp8,
		.out = 1,
		.scale = 0.125f,
		.seqs = extent(d, 1, 5),
		.kv_heads = extent(d, 1, 2),
		.head_size = paged ? 16 * (1 + below(d, 16)) : 1 + below(d, DECODE_HEAD_MAX),
		.block_size = extent(d, 1, 17),
		.blocks = extent(d, 1, 9),
		.max_blocks = extent(d, 1, 5),
		.window = below(d, 3) ? 0 : 1 + below(d, 40),
		.flags = paged * DECODE_PAGED,
	};
	a->heads = a->kv_heads * (1 + below(d, 4));
	a->q_stride = a->heads * a->head_size + below(d, 9);
}

static void draw_mla_attention(struct draw *d, void *args)
{
	struct decode_mla_attention_args *a = args;

	*a = (struct decode_mla_attention_args){
		.q_c = 1,
		.q_pe = 1,
		.cache = 1,
		.tables = 1,
		.lens = 1,
		.cache_scale = below(d, 2),
		.out = 1,
		.scale = 0.0625f,
		.seqs = extent(d, 1, 3),
		.heads = extent(d, 1, 4),
		.latent = 1 + below(d, DECODE_LATENT_MAX),
		.rope = 1 + below(d, DECODE_ROPE_MAX),
		.block_size = extent(d, 1, 17),
		.blocks = extent(d, 1, 9),
		.max_blocks = extent(d, 1, 5),
	};
	a->pe_head = a->rope + below(d, 9);
	a->pe_stride = a->heads * a->pe_head + below(d, 9);
}

const struct decode_case cases_cache[] = {
	{
		.name = "decode_concat_and_cache_mla",
		.draw = draw_concat_and_cache_mla,
		.range = { { .name = "kv_c", .fill = fill_bf16 },
			   { .name = "k_pe", .fill = fill_bf16 },
			   { .name = "slots", .fill = fill_mla_slots },
			   { .name = "scale", .fill = fill_scale } },
	},
	{
		.name = "decode_mla_attention",
		.draw = draw_mla_attention,
		.range = { { .name = "q_c", .fill = fill_bf16 },
			   { .name = "q_pe", .fill = fill_bf16 },
			   { .name = "cache", .fill = fill_mla_cache },
			   { .name = "tables", .fill = fill_mla_tables },
			   { .name = "lens", .fill = fill_mla_lens },
			   { .name = "cache_scale", .fill = fill_scale },
			   { .name = "out", .fill = fill_bytes, .ulps = 2 } },
	},
	{
		.name = "decode_paged_attention",
		.draw = draw_paged_attention,
		.range = { { .name = "query", .fill = fill_bf16 },
			   { .name = "k_cache", .fill = fill_cache },
			   { .name = "v_cache", .fill = fill_cache },
			   { .name = "tables", .fill = fill_tables },
			   { .name = "lens", .fill = fill_lens },
			   { .name = "sinks", .fill = fill_f32 },
			   { .name = "k_scale", .fill = fill_scale },
			   { .name = "v_scale", .fill = fill_scale },
			   { .name = "out", .fill = fill_bytes, .ulps = 2 } },
	},
	{
		.name = "decode_reshape_and_cache",
		.draw = draw_reshape_and_cache,
		.range = { { .name = "key", .fill = fill_bf16 },
			   { .name = "value", .fill = fill_bf16 },
			   { .name = "slots", .fill = fill_slots },
			   { .name = "k_scale", .fill = fill_scale },
			   { .name = "v_scale", .fill = fill_scale } },
	},
	{ .name = NULL },
};
