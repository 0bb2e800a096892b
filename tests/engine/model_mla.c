/* SPDX-License-Identifier: Apache-2.0 */
/* Latent attention as DeepSeek has it. Fault: W_UK_T and W_UV, the two halves of kv_b_proj, are
 * attributes that each pass rebinds. */
#include "kernels/decode/decode.h"
#include "tests/engine/family.h"

#include <math.h>

#define QUERY (dims.nope + dims.rope)
#define ROW   (dims.latent + dims.rope)

static void declare(struct layer *l)
{
	weight(l, FILL_WEIGHT, "self_attn.q_proj.weight", SHAPE(dims.heads * QUERY, dims.hidden));
	weight(l, FILL_WEIGHT, "self_attn.kv_a_proj_with_mqa.weight", SHAPE(ROW, dims.hidden));
	weight(l, FILL_NORM, "self_attn.kv_a_layernorm.weight", SHAPE(1, dims.latent));
	weight(l, FILL_WEIGHT, "self_attn.kv_b_proj.weight",
	       SHAPE(dims.heads * (dims.nope + dims.v), dims.latent));
	weight(l, FILL_WEIGHT, "self_attn.o_proj.weight", SHAPE(dims.hidden, dims.heads * dims.v));
	derived(l, "W_UK_T", 2 * dims.heads * dims.nope * dims.latent, REBIND);
	derived(l, "W_UV", 2 * dims.heads * dims.latent * dims.v, REBIND);
	derive(l, "arena_mla_split");
	derive_tensor(l, "w", "self_attn.kv_b_proj.weight");
	derive_tensor(l, "uk", "W_UK_T");
	derive_tensor(l, "uv", "W_UV");
	derive_number(l, "heads", dims.heads);
	derive_number(l, "nope", dims.nope);
	derive_number(l, "v", dims.v);
	derive_number(l, "latent", dims.latent);
	derive_number(l, "word", 2);
	dense_declare(l, COPY_BACK);
}

static CUdeviceptr cache(struct layer *l)
{
	return layer_buffer(l, "mla_cache", 2 * BLOCKS * BLOCK * ROW);
}

/* Queries [T, heads, QUERY], and this token's row of the cache. */
static CUdeviceptr prepare(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	uint32_t tokens = (uint32_t)e->tokens;
	CUdeviceptr q = buffer(e, "q", 2 * BATCH_MAX * dims.heads * QUERY);
	CUdeviceptr kv = buffer(e, "kv", 2 * BATCH_MAX * ROW),
		    c = buffer(e, "c", 2 * BATCH_MAX * dims.latent);

	RUN(e, decode_gemm, .x = x, .w = at(l, "self_attn.q_proj.weight"), .out = q,
	    .tokens = tokens, .n = dims.heads * QUERY, .k = dims.hidden, .x_stride = dims.hidden);
	RUN(e, decode_gemm, .x = x, .w = at(l, "self_attn.kv_a_proj_with_mqa.weight"), .out = kv,
	    .tokens = tokens, .n = ROW, .k = dims.hidden, .x_stride = dims.hidden);
	RUN(e, decode_rms_norm, .x = kv, .weight = at(l, "self_attn.kv_a_layernorm.weight"),
	    .out = c, .tokens = tokens, .hidden = dims.latent, .x_stride = ROW, .eps = EPS);
	RUN(e, decode_rotary, .positions = buffer(e, "positions", 8 * BATCH_MAX),
	    .query = q + 2 * dims.nope, .key = kv + 2 * dims.latent,
	    .cos_sin = buffer(e, "cos_sin_rope", 4 * POSITIONS * dims.rope), .tokens = tokens,
	    .heads = dims.heads, .kv_heads = 1, .rot = dims.rope, .max_position = POSITIONS,
	    .q_stride = dims.heads * QUERY, .q_head = QUERY, .k_stride = ROW, .k_head = dims.rope,
	    .flags = DECODE_F32 | DECODE_GPTJ);
	RUN(e, decode_concat_and_cache_mla, .kv_c = c, .k_pe = kv + 2 * dims.latent,
	    .cache = cache(l), .slots = buffer(e, "slots", 8 * BATCH_MAX), .tokens = tokens,
	    .latent = dims.latent, .rope = dims.rope, .block_size = BLOCK, .blocks = BLOCKS,
	    .c_stride = dims.latent, .pe_stride = ROW);
	return q;
}

static void attention(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	uint32_t tokens = (uint32_t)e->tokens;
	CUdeviceptr q = prepare(l, x),
		    q_c = buffer(e, "q_c", 2 * BATCH_MAX * dims.heads * dims.latent);
	CUdeviceptr o = buffer(e, "o", 2 * BATCH_MAX * dims.heads * dims.latent);
	CUdeviceptr up = buffer(e, "up", 2 * BATCH_MAX * dims.heads * dims.v);

	RUN(e, decode_bmm, .x = q, .w = at(l, "W_UK_T"), .out = q_c, .tokens = tokens,
	    .heads = dims.heads, .n = dims.latent, .k = dims.nope, .x_stride = dims.heads * QUERY,
	    .x_head = QUERY);
	RUN(e, decode_mla_attention, .q_c = q_c, .q_pe = q + 2 * dims.nope, .cache = cache(l),
	    .tables = buffer(e, "tables", 4 * BLOCKS), .lens = buffer(e, "lens", 4 * BATCH_MAX),
	    .out = o, .scale = 1 / sqrtf(QUERY), .seqs = tokens, .heads = dims.heads,
	    .latent = dims.latent, .rope = dims.rope, .block_size = BLOCK, .blocks = BLOCKS,
	    .max_blocks = SEQ_BLOCKS, .pe_stride = dims.heads * QUERY, .pe_head = QUERY);
	RUN(e, decode_bmm, .x = o, .w = at(l, "W_UV"), .out = up, .tokens = tokens,
	    .heads = dims.heads, .n = dims.v, .k = dims.latent,
	    .x_stride = dims.heads * dims.latent, .x_head = dims.latent);
	RUN(e, decode_gemm, .x = up, .w = at(l, "self_attn.o_proj.weight"), .out = x,
	    .tokens = tokens, .n = dims.hidden, .k = dims.heads * dims.v,
	    .x_stride = dims.heads * dims.v);
}

const struct family family_mla = { "mla", "latent attention; W_UK_T and W_UV are rebound", declare,
				   attention, dense_mlp };
