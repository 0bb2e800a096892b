/* SPDX-License-Identifier: Apache-2.0 */
/* The dense family, bf16: grouped-query attention, a gated MLP; other families have parts of it.
 * Fault: in even layers gate and up are replaced, as paths that shuffle weights did; in odd ones
 * the padded copy of down is made from memory that is not zero. */
#include "kernels/decode/decode.h"
#include "tests/engine/family.h"

#include <math.h>

#define Q     (dims.heads * dims.head)
#define KV    (dims.kv_heads * dims.head)
#define QKV   (Q + 2 * KV)
#define CACHE (2 * BLOCKS * BLOCK * dims.kv_heads * dims.head)

void gqa_declare(struct layer *l, enum naive naive)
{
	struct tensor *qkv = loaded(l, "qkv_proj", naive);

	part(l, qkv, FILL_WEIGHT, "self_attn.q_proj.weight", SHAPE(Q, dims.hidden));
	part(l, qkv, FILL_WEIGHT, "self_attn.k_proj.weight", SHAPE(KV, dims.hidden));
	part(l, qkv, FILL_WEIGHT, "self_attn.v_proj.weight", SHAPE(KV, dims.hidden));
	weight(l, FILL_WEIGHT, "self_attn.o_proj.weight", SHAPE(dims.hidden, Q));
}

static void rotate(struct layer *l, CUdeviceptr qkv)
{
	struct engine *e = l->engine;

	RUN(e, decode_rotary, .positions = buffer(e, "positions", 8 * BATCH_MAX), .query = qkv,
	    .key = qkv + 2 * Q, .cos_sin = buffer(e, "cos_sin", 4 * POSITIONS * dims.head),
	    .tokens = (uint32_t)e->tokens, .heads = dims.heads, .kv_heads = dims.kv_heads,
	    .rot = dims.head, .max_position = POSITIONS, .q_stride = QKV, .q_head = dims.head,
	    .k_stride = QKV, .k_head = dims.head, .flags = DECODE_F32);
}

CUdeviceptr gqa_qkv(struct engine *e)
{
	return buffer(e, "qkv", 2 * BATCH_MAX * QKV);
}

void gqa_project(struct layer *l, CUdeviceptr x)
{
	RUN(l->engine, decode_gemm, .x = x, .w = at(l, "qkv_proj"), .out = gqa_qkv(l->engine),
	    .tokens = (uint32_t)l->engine->tokens, .n = QKV, .k = dims.hidden,
	    .x_stride = dims.hidden);
}

/* Sinks and a window where the layer has them. */
CUdeviceptr gqa_heads(struct layer *l, CUdeviceptr sinks, uint32_t window)
{
	struct engine *e = l->engine;
	uint32_t tokens = (uint32_t)e->tokens;
	CUdeviceptr qkv = gqa_qkv(e), k = layer_buffer(l, "k_cache", CACHE),
		    v = layer_buffer(l, "v_cache", CACHE),
		    out = buffer(e, "heads", 2 * BATCH_MAX * Q);

	rotate(l, qkv);
	RUN(e, decode_reshape_and_cache, .key = qkv + 2 * Q, .value = qkv + 2 * (Q + KV),
	    .k_cache = k, .v_cache = v, .slots = buffer(e, "slots", 8 * BATCH_MAX),
	    .tokens = tokens, .kv_heads = dims.kv_heads, .head_size = dims.head,
	    .block_size = BLOCK, .blocks = BLOCKS, .k_stride = QKV, .v_stride = QKV);
	RUN(e, decode_paged_attention, .query = qkv, .k_cache = k, .v_cache = v,
	    .tables = buffer(e, "tables", 4 * BLOCKS), .lens = buffer(e, "lens", 4 * BATCH_MAX),
	    .sinks = sinks, .out = out, .scale = 1 / sqrtf(dims.head), .seqs = tokens,
	    .heads = dims.heads, .kv_heads = dims.kv_heads, .head_size = dims.head,
	    .block_size = BLOCK, .blocks = BLOCKS, .max_blocks = SEQ_BLOCKS, .window = window,
	    .q_stride = QKV);
	return out;
}

void gqa_out(struct layer *l, CUdeviceptr heads, CUdeviceptr x)
{
	RUN(l->engine, decode_gemm, .x = heads, .w = at(l, "self_attn.o_proj.weight"), .out = x,
	    .tokens = (uint32_t)l->engine->tokens, .n = dims.hidden, .k = Q, .x_stride = Q);
}

void gqa_attention(struct layer *l, CUdeviceptr x)
{
	gqa_project(l, x);
	gqa_out(l, gqa_heads(l, 0, 0), x);
}

static void gate_up_declare(struct layer *l, enum naive naive)
{
	struct tensor *gate_up = loaded(l, "gate_up_proj", naive);

	part(l, gate_up, FILL_WEIGHT, "mlp.gate_proj.weight", SHAPE(dims.inter, dims.hidden));
	part(l, gate_up, FILL_WEIGHT, "mlp.up_proj.weight", SHAPE(dims.inter, dims.hidden));
}

CUdeviceptr gate_up(struct engine *e)
{
	return buffer(e, "gate_up", 4 * BATCH_MAX * dims.inter);
}

CUdeviceptr gate_up_act(struct layer *l)
{
	CUdeviceptr act = buffer(l->engine, "act", 2 * BATCH_MAX * dims.inter);

	RUN(l->engine, decode_silu_and_mul, .x = gate_up(l->engine), .out = act,
	    .tokens = (uint32_t)l->engine->tokens, .d = dims.inter);
	return act;
}

void dense_declare(struct layer *l, enum naive naive)
{
	struct tensor *down = loaded(l, "down_proj", naive);

	gate_up_declare(l, naive);
	part(l, down, FILL_WEIGHT, "mlp.down_proj.weight", SHAPE(dims.hidden, dims.inter));
}

static void gate_up_run(struct layer *l, CUdeviceptr x)
{
	RUN(l->engine, decode_gemm, .x = x, .w = at(l, "gate_up_proj"), .out = gate_up(l->engine),
	    .tokens = (uint32_t)l->engine->tokens, .n = 2 * dims.inter, .k = dims.hidden,
	    .x_stride = dims.hidden);
}

void dense_mlp(struct layer *l, CUdeviceptr x)
{
	gate_up_run(l, x);
	RUN(l->engine, decode_gemm, .x = gate_up_act(l), .w = at(l, "down_proj"), .out = x,
	    .tokens = (uint32_t)l->engine->tokens, .n = dims.hidden, .k = dims.inter,
	    .x_stride = dims.inter);
}

#define PADDED_INTER (dims.inter + 64)

static void declare(struct layer *l)
{
	struct tensor *t;

	gqa_declare(l, COPY_BACK);
	gate_up_declare(l, l->index % 2 ? COPY_BACK : REBIND);
	weight(l, FILL_WEIGHT, "mlp.down_proj.weight", SHAPE(dims.hidden, dims.inter));
	t = derived(l, "down_padded", 2ull * dims.hidden * PADDED_INTER,
		    l->index % 2 ? PADDED : COPY_BACK);
	t->width = 2ull * dims.inter;
	t->pitch = 2ull * PADDED_INTER;
	derive(l, "arena_pad");
	derive_tensor(l, "in", "mlp.down_proj.weight");
	derive_tensor(l, "out", "down_padded");
	derive_number(l, "batch", 1);
	derive_number(l, "rows", dims.hidden);
	derive_number(l, "width", t->width);
	derive_number(l, "out_rows", dims.hidden);
	derive_number(l, "out_width", t->pitch);
}

/* The rows of the activation are padded as well, with zero. */
static void mlp(struct layer *l, CUdeviceptr x)
{
	struct engine *e = l->engine;
	uint32_t tokens = (uint32_t)e->tokens, width = 2 * dims.inter, pitch = 2 * PADDED_INTER;
	CUdeviceptr rows = buffer(e, "act_padded", BATCH_MAX * pitch);

	gate_up_run(l, x);
	CK(cuMemsetD8Async(rows, 0, BATCH_MAX * pitch, e->stream));
	RUN(e, decode_copy_rows, .in = gate_up_act(l), .out = rows, .rows = tokens,
	    .row_bytes = width, .in_stride = width, .out_stride = pitch);
	RUN(e, decode_gemm, .x = rows, .w = at(l, "down_padded"), .out = x, .tokens = tokens,
	    .n = dims.hidden, .k = PADDED_INTER, .x_stride = PADDED_INTER);
}

const struct family family_dense = { "dense", "bf16; weights are replaced, or padded badly",
				     declare, gqa_attention, mlp };
