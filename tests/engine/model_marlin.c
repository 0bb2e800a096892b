/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPTQ weights of 4 bits with act-order on Marlin's layout: all seven projections of a layer, each
 * with its own order. Fault: the lock workspaces and the sort orders of the rows are made anew at
 * each pass, where parameters get their values copied back; the old orders of the MLP live on in a
 * closure, as Machete's did.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/decode/decode.h"
#include "tests/engine/family.h"

#define ROWS_PER_SCALE 32
#define LOCKS_MIN      16
#define Q	       (dims.heads * dims.head)
#define KV	       (dims.kv_heads * dims.head)

/* [n, k]; its result lies in rows of @stride elements. */
struct linear {
	const char *name;
	uint32_t n, k, stride;
};

/* Name of a part of the linear layer @p; one at a time of each kind. */
static const char *of(const char *p, const char *suffix)
{
	static char names[8][NAME_BYTES];
	static unsigned next;
	char *name = names[next++ % 8];

	snprintf(name, NAME_BYTES, "%.40s.%.40s", p, suffix);
	return name;
}

static uint32_t locks(uint32_t n)
{
	return n / 64 > LOCKS_MIN ? n / 64 : LOCKS_MIN;
}

static void declare_order(struct layer *l, const char *p, uint32_t k)
{
	derived(l, of(p, "g_idx_sorted"), 4 * k, COPY_BACK);
	derived(l, of(p, "perm"), 4 * k, strncmp(p, "mlp", 3) ? REBIND : HELD);
	derive(l, "arena_argsort");
	derive_tensor(l, "keys", of(p, "g_idx"));
	derive_tensor(l, "sorted", of(p, "g_idx_sorted"));
	derive_tensor(l, "order", of(p, "perm"));
	derive_number(l, "count", k);
}

static void declare_weight(struct layer *l, const char *p, uint32_t n, uint32_t k)
{
	derived(l, of(p, "marlin"), (uint64_t)k * n / 2, COPY_BACK);
	derive(l, "arena_marlin_repack");
	derive_tensor(l, "q", of(p, "qweight"));
	derive_tensor(l, "perm", of(p, "perm"));
	derive_tensor(l, "out", of(p, "marlin"));
	derive_number(l, "k", k);
	derive_number(l, "n", n);
	derive_number(l, "bits", 4);
	derived(l, of(p, "marlin_scales"), 2ull * k / ROWS_PER_SCALE * n, COPY_BACK);
	derive(l, "arena_marlin_scales");
	derive_tensor(l, "s", of(p, "scales"));
	derive_tensor(l, "out", of(p, "marlin_scales"));
	derive_number(l, "groups", k / ROWS_PER_SCALE);
	derive_number(l, "n", n);
}

static void declare_linear(struct layer *l, const char *p, uint32_t n, uint32_t k)
{
	weight(l, FILL_CODES, of(p, "qweight"), SHAPE(k / 8, n));
	weight(l, FILL_SCALE, of(p, "scales"), SHAPE(k / ROWS_PER_SCALE, n));
	weight(l, FILL_GROUPS, of(p, "g_idx"), SHAPE(1, k));
	declare_order(l, p, k);
	declare_weight(l, p, n, k);
	zeroed(l, of(p, "workspace"), 4 * locks(n));
}

static void declare(struct layer *l)
{
	declare_linear(l, "self_attn.q_proj", Q, dims.hidden);
	declare_linear(l, "self_attn.k_proj", KV, dims.hidden);
	declare_linear(l, "self_attn.v_proj", KV, dims.hidden);
	declare_linear(l, "self_attn.o_proj", dims.hidden, Q);
	declare_linear(l, "mlp.gate_proj", dims.inter, dims.hidden);
	declare_linear(l, "mlp.up_proj", dims.inter, dims.hidden);
	declare_linear(l, "mlp.down_proj", dims.hidden, dims.inter);
}

static CUdeviceptr temporary(struct engine *e, const char *name, uint32_t element)
{
	uint32_t widest = dims.hidden > dims.inter ? dims.hidden : dims.inter;

	return buffer(e, name, (uint64_t)element * BATCH_MAX * (widest > Q ? widest : Q));
}

static void gemm(struct layer *l, const struct linear *w, CUdeviceptr x, CUdeviceptr out)
{
	struct engine *e = l->engine;
	const char *p = w->name;

	RUN(e, decode_marlin_gemm, .x = x, .q = at(l, of(p, "marlin")),
	    .scales = at(l, of(p, "marlin_scales")), .g_idx = at(l, of(p, "g_idx_sorted")),
	    .perm = at(l, of(p, "perm")), .workspace = at(l, of(p, "workspace")),
	    .status = buffer(e, "status", 4), .tmp = temporary(e, "marlin_tmp", 4), .out = out,
	    .tokens = (uint32_t)e->tokens, .n = w->n, .k = w->k, .groups = w->k / ROWS_PER_SCALE,
	    .bits = 4, .locks = locks(w->n));
}

/* Into columns of wider rows: the kernel has no stride for its result. */
static void run_linear(struct layer *l, const struct linear *w, CUdeviceptr x, CUdeviceptr out)
{
	CUdeviceptr rows = temporary(l->engine, "marlin_out", 2);

	if (w->stride == w->n) {
		gemm(l, w, x, out);
		return;
	}
	gemm(l, w, x, rows);
	RUN(l->engine, decode_copy_rows, .in = rows, .out = out,
	    .rows = (uint32_t)l->engine->tokens, .row_bytes = 2 * w->n, .in_stride = 2 * w->n,
	    .out_stride = 2 * w->stride);
}

static void attention(struct layer *l, CUdeviceptr x)
{
	const uint32_t stride = Q + 2 * KV;
	CUdeviceptr qkv = gqa_qkv(l->engine);

	run_linear(l, &(struct linear){ "self_attn.q_proj", Q, dims.hidden, stride }, x, qkv);
	run_linear(l, &(struct linear){ "self_attn.k_proj", KV, dims.hidden, stride }, x,
		   qkv + 2 * Q);
	run_linear(l, &(struct linear){ "self_attn.v_proj", KV, dims.hidden, stride }, x,
		   qkv + 2 * (Q + KV));
	run_linear(l, &(struct linear){ "self_attn.o_proj", dims.hidden, Q, dims.hidden },
		   gqa_heads(l, 0, 0), x);
}

static void mlp(struct layer *l, CUdeviceptr x)
{
	const uint32_t n = dims.inter, k = dims.hidden;
	CUdeviceptr both = gate_up(l->engine);

	run_linear(l, &(struct linear){ "mlp.gate_proj", n, k, 2 * n }, x, both);
	run_linear(l, &(struct linear){ "mlp.up_proj", n, k, 2 * n }, x, both + 2 * n);
	run_linear(l, &(struct linear){ "mlp.down_proj", k, n, k }, gate_up_act(l), x);
}

const struct family family_gptq_marlin = {
	"gptq-marlin", "4 bits, act-order; workspaces and sort orders are made anew", declare,
	attention, mlp
};
