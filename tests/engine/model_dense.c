/* SPDX-License-Identifier: Apache-2.0 */
/* The dense family, bf16: grouped-query attention, a gated MLP; other families have parts of it.
 * Fault: the weights of the MLP are replaced, as paths that shuffle or pad them did. */
#include "kernels/decode/decode.h"
#include "tests/engine/family.h"

#include <math.h>

#define Q     (HEADS * HEAD)
#define KV    (KV_HEADS * HEAD)
#define QKV   (Q + 2 * KV)
#define CACHE (2 * BLOCKS * BLOCK * KV_HEADS * HEAD)

void gqa_declare(struct layer *l, enum naive naive)
{
	struct tensor *qkv = loaded(l, "qkv_proj", naive);

	part(l, qkv, FILL_WEIGHT, "self_attn.q_proj.weight", SHAPE(Q, HIDDEN));
	part(l, qkv, FILL_WEIGHT, "self_attn.k_proj.weight", SHAPE(KV, HIDDEN));
	part(l, qkv, FILL_WEIGHT, "self_attn.v_proj.weight", SHAPE(KV, HIDDEN));
	weight(l, FILL_WEIGHT, "self_attn.o_proj.weight", SHAPE(HIDDEN, Q));
}

static void rotate(struct layer *l, CUdeviceptr qkv)
{
	struct engine *e = l->engine;

	RUN(e, decode_rotary, .positions = buffer(e, "positions", 8 * BATCH_MAX), .query = qkv,
	    .key = qkv + 2 * Q, .cos_sin = buffer(e, "cos_sin", 4 * POSITIONS * HEAD),
	    .tokens = (uint32_t)e->tokens, .heads = HEADS, .kv_heads = KV_HEADS, .rot = HEAD,
	    .max_position = POSITIONS, .q_stride = QKV, .q_head = HEAD, .k_stride = QKV,
	    .k_head = HEAD, .flags = DECODE_F32);
}

/* One cache a layer and kind. */
static CUdeviceptr cache(struct layer *l, const char *const names[LAYERS])
{
	return buffer(l->engine, names[l->index], CACHE);
}

/* Up to the heads' results; sinks and a window where the layer has them. */
CUdeviceptr gqa_heads(struct layer *l, CUdeviceptr x, CUdeviceptr sinks, uint32_t window)
{
	static const char *const k_names[] = { "k_cache.0", "k_cache.1" }, *const v_names[] = {
		"v_cache.0", "v_cache.1"
	};
	struct engine *e = l->engine;
	uint32_t tokens = (uint32_t)e->tokens;
	CUdeviceptr qkv = buffer(e, "qkv", 2 * BATCH_MAX * QKV), k = cache(l, k_names),
		    v = cache(l, v_names), out = buffer(e, "heads", 2 * BATCH_MAX * Q);

	RUN(e, decode_gemm, .x = x, .w = at(l, "qkv_proj"), .out = qkv, .tokens = tokens, .n = QKV,
	    .k = HIDDEN, .x_stride = HIDDEN);
	rotate(l, qkv);
	RUN(e, decode_reshape_and_cache, .key = qkv + 2 * Q, .value = qkv + 2 * (Q + KV),
	    .k_cache = k, .v_cache = v, .slots = buffer(e, "slots", 8 * BATCH_MAX),
	    .tokens = tokens, .kv_heads = KV_HEADS, .head_size = HEAD, .block_size = BLOCK,
	    .blocks = BLOCKS, .k_stride = QKV, .v_stride = QKV);
	RUN(e, decode_paged_attention, .query = qkv, .k_cache = k, .v_cache = v,
	    .tables = buffer(e, "tables", 4 * BLOCKS), .lens = buffer(e, "lens", 4 * BATCH_MAX),
	    .sinks = sinks, .out = out, .scale = 1 / sqrtf(HEAD), .seqs = tokens, .heads = HEADS,
	    .kv_heads = KV_HEADS, .head_size = HEAD, .block_size = BLOCK, .blocks = BLOCKS,
	    .max_blocks = SEQ_BLOCKS, .window = window, .q_stride = QKV);
	return out;
}

void gqa_out(struct layer *l, CUdeviceptr heads, CUdeviceptr x)
{
	RUN(l->engine, decode_gemm, .x = heads, .w = at(l, "self_attn.o_proj.weight"), .out = x,
	    .tokens = (uint32_t)l->engine->tokens, .n = HIDDEN, .k = Q, .x_stride = Q);
}

void gqa_attention(struct layer *l, CUdeviceptr x)
{
	gqa_out(l, gqa_heads(l, x, 0, 0), x);
}

void gate_up_declare(struct layer *l, enum naive naive)
{
	struct tensor *gate_up = loaded(l, "gate_up_proj", naive);

	part(l, gate_up, FILL_WEIGHT, "mlp.gate_proj.weight", SHAPE(INTER, HIDDEN));
	part(l, gate_up, FILL_WEIGHT, "mlp.up_proj.weight", SHAPE(INTER, HIDDEN));
}

CUdeviceptr gate_up_run(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	CUdeviceptr both = buffer(e, "gate_up", 4 * BATCH_MAX * INTER);
	CUdeviceptr act = buffer(e, "act", 2 * BATCH_MAX * INTER);

	RUN(e, decode_gemm, .x = x, .w = at(l, "gate_up_proj"), .out = both,
	    .tokens = (uint32_t)e->tokens, .n = 2 * INTER, .k = HIDDEN, .x_stride = HIDDEN);
	RUN(e, decode_silu_and_mul, .x = both, .out = act, .tokens = (uint32_t)e->tokens,
	    .d = INTER);
	return act;
}

void dense_declare(struct layer *l, enum naive naive)
{
	struct tensor *down = loaded(l, "down_proj", naive);

	gate_up_declare(l, naive);
	part(l, down, FILL_WEIGHT, "mlp.down_proj.weight", SHAPE(HIDDEN, INTER));
}

void dense_mlp(struct layer *l, CUdeviceptr x)
{
	CUdeviceptr act = gate_up_run(l, x);

	RUN(l->engine, decode_gemm, .x = act, .w = at(l, "down_proj"), .out = x,
	    .tokens = (uint32_t)l->engine->tokens, .n = HIDDEN, .k = INTER, .x_stride = INTER);
}

static void declare(struct layer *l)
{
	gqa_declare(l, COPY_BACK);
	dense_declare(l, REBIND);
}

const struct family family_dense = { "dense", "bf16; the weights of the MLP are replaced", declare,
				     gqa_attention, dense_mlp };
