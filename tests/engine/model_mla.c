/* SPDX-License-Identifier: Apache-2.0 */
/* Latent attention as DeepSeek has it. Fault: W_UK_T and W_UV, the two halves of kv_b_proj, are
 * attributes that each pass rebinds. */
#include "kernels/decode/decode.h"
#include "tests/engine/family.h"

#include <math.h>

#define N      2  /* heads */
#define NOPE   32 /* of a head's query: what meets the latent, */
#define ROPE   16 /* and what rotates */
#define V      32
#define LATENT 64
#define QUERY  (NOPE + ROPE)
#define ROW    (LATENT + ROPE)

static void declare(struct layer *l)
{
	weight(l, FILL_WEIGHT, "self_attn.q_proj.weight", SHAPE(N * QUERY, HIDDEN));
	weight(l, FILL_WEIGHT, "self_attn.kv_a_proj_with_mqa.weight", SHAPE(ROW, HIDDEN));
	weight(l, FILL_NORM, "self_attn.kv_a_layernorm.weight", SHAPE(1, LATENT));
	weight(l, FILL_WEIGHT, "self_attn.kv_b_proj.weight", SHAPE(N * (NOPE + V), LATENT));
	weight(l, FILL_WEIGHT, "self_attn.o_proj.weight", SHAPE(HIDDEN, N * V));
	derived(l, "W_UK_T", 2 * N * NOPE * LATENT, REBIND);
	derived(l, "W_UV", 2 * N * LATENT * V, REBIND);
	derive(l, "arena_mla_split");
	derive_tensor(l, "w", "self_attn.kv_b_proj.weight");
	derive_tensor(l, "uk", "W_UK_T");
	derive_tensor(l, "uv", "W_UV");
	derive_number(l, "heads", N);
	derive_number(l, "nope", NOPE);
	derive_number(l, "v", V);
	derive_number(l, "latent", LATENT);
	derive_number(l, "word", 2);
	dense_declare(l, COPY_BACK);
}

static CUdeviceptr cache(struct layer *l)
{
	static const char *const names[] = { "mla_cache.0", "mla_cache.1" };

	return buffer(l->engine, names[l->index], 2 * BLOCKS * BLOCK * ROW);
}

/* Queries [T, N, QUERY], and this token's row of the cache. */
static CUdeviceptr prepare(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	uint32_t tokens = (uint32_t)e->tokens;
	CUdeviceptr q = buffer(e, "q", 2 * BATCH_MAX * N * QUERY);
	CUdeviceptr kv = buffer(e, "kv", 2 * BATCH_MAX * ROW),
		    c = buffer(e, "c", 2 * BATCH_MAX * LATENT);

	RUN(e, decode_gemm, .x = x, .w = at(l, "self_attn.q_proj.weight"), .out = q,
	    .tokens = tokens, .n = N * QUERY, .k = HIDDEN, .x_stride = HIDDEN);
	RUN(e, decode_gemm, .x = x, .w = at(l, "self_attn.kv_a_proj_with_mqa.weight"), .out = kv,
	    .tokens = tokens, .n = ROW, .k = HIDDEN, .x_stride = HIDDEN);
	RUN(e, decode_rms_norm, .x = kv, .weight = at(l, "self_attn.kv_a_layernorm.weight"),
	    .out = c, .tokens = tokens, .hidden = LATENT, .x_stride = ROW, .eps = EPS);
	RUN(e, decode_rotary, .positions = buffer(e, "positions", 8 * BATCH_MAX),
	    .query = q + 2 * NOPE, .key = kv + 2 * LATENT,
	    .cos_sin = buffer(e, "cos_sin", 4 * POSITIONS * HEAD), .tokens = tokens, .heads = N,
	    .kv_heads = 1, .rot = ROPE, .max_position = POSITIONS, .q_stride = N * QUERY,
	    .q_head = QUERY, .k_stride = ROW, .k_head = ROPE, .flags = DECODE_F32 | DECODE_GPTJ);
	RUN(e, decode_concat_and_cache_mla, .kv_c = c, .k_pe = kv + 2 * LATENT, .cache = cache(l),
	    .slots = buffer(e, "slots", 8 * BATCH_MAX), .tokens = tokens, .latent = LATENT,
	    .rope = ROPE, .block_size = BLOCK, .blocks = BLOCKS, .c_stride = LATENT,
	    .pe_stride = ROW);
	return q;
}

static void attention(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	uint32_t tokens = (uint32_t)e->tokens;
	CUdeviceptr q = prepare(l, x), q_c = buffer(e, "q_c", 2 * BATCH_MAX * N * LATENT);
	CUdeviceptr o = buffer(e, "o", 2 * BATCH_MAX * N * LATENT);
	CUdeviceptr up = buffer(e, "up", 2 * BATCH_MAX * N * V);

	RUN(e, decode_bmm, .x = q, .w = at(l, "W_UK_T"), .out = q_c, .tokens = tokens, .heads = N,
	    .n = LATENT, .k = NOPE, .x_stride = N * QUERY, .x_head = QUERY);
	RUN(e, decode_mla_attention, .q_c = q_c, .q_pe = q + 2 * NOPE, .cache = cache(l),
	    .tables = buffer(e, "tables", 4 * BLOCKS), .lens = buffer(e, "lens", 4 * BATCH_MAX),
	    .out = o, .scale = 1 / sqrtf(QUERY), .seqs = tokens, .heads = N, .latent = LATENT,
	    .rope = ROPE, .block_size = BLOCK, .blocks = BLOCKS, .max_blocks = SEQ_BLOCKS,
	    .pe_stride = N * QUERY, .pe_head = QUERY);
	RUN(e, decode_bmm, .x = o, .w = at(l, "W_UV"), .out = up, .tokens = tokens, .heads = N,
	    .n = V, .k = LATENT, .x_stride = N * LATENT, .x_head = LATENT);
	RUN(e, decode_gemm, .x = up, .w = at(l, "self_attn.o_proj.weight"), .out = x,
	    .tokens = tokens, .n = HIDDEN, .k = N * V, .x_stride = N * V);
}

const struct family family_mla = { "mla", "latent attention; W_UK_T and W_UV are rebound", declare,
				   attention, dense_mlp };
