/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPTQ weights of 4 bits with act-order on Marlin's layout: the projections that close attention
 * and MLP; the others are bf16. Fault: the lock workspace and the sort order of the rows are made
 * anew at each pass, where parameters get their values copied back.
 */
#include <stdio.h>

#include "kernels/decode/decode.h"
#include "tests/engine/family.h"

#define ROWS_PER_SCALE 32
#define LOCKS	       16

/* Name of a part of the linear layer @p; one at a time of each kind. */
static const char *of(const char *p, const char *suffix)
{
	static char names[8][NAME_BYTES];
	static unsigned next;
	char *name = names[next++ % 8];

	snprintf(name, NAME_BYTES, "%.40s.%.40s", p, suffix);
	return name;
}

static void declare_order(struct layer *l, const char *p, uint32_t k)
{
	derived(l, of(p, "g_idx_sorted"), 4 * k, COPY_BACK);
	derived(l, of(p, "perm"), 4 * k, REBIND);
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
	zeroed(l, of(p, "workspace"), 4 * LOCKS);
}

static void run_linear(struct layer *l, const char *p, CUdeviceptr x, CUdeviceptr out)
{
	struct engine *e = l->engine;

	RUN(e, decode_marlin_gemm, .x = x, .q = at(l, of(p, "marlin")),
	    .scales = at(l, of(p, "marlin_scales")), .g_idx = at(l, of(p, "g_idx_sorted")),
	    .perm = at(l, of(p, "perm")), .workspace = at(l, of(p, "workspace")),
	    .status = buffer(e, "status", 4),
	    .tmp = buffer(e, "marlin_tmp", 4 * BATCH_MAX * HIDDEN), .out = out,
	    .tokens = (uint32_t)e->tokens, .n = HIDDEN, .k = HIDDEN,
	    .groups = HIDDEN / ROWS_PER_SCALE, .bits = 4, .locks = LOCKS);
}

_Static_assert(HEADS *HEAD == HIDDEN && INTER == HIDDEN, "both linear layers are square");

static void declare(struct layer *l)
{
	struct tensor *qkv = loaded(l, "qkv_proj", COPY_BACK);

	part(l, qkv, FILL_WEIGHT, "self_attn.q_proj.weight", SHAPE(HEADS * HEAD, HIDDEN));
	part(l, qkv, FILL_WEIGHT, "self_attn.k_proj.weight", SHAPE(KV_HEADS * HEAD, HIDDEN));
	part(l, qkv, FILL_WEIGHT, "self_attn.v_proj.weight", SHAPE(KV_HEADS * HEAD, HIDDEN));
	declare_linear(l, "self_attn.o_proj", HIDDEN, HIDDEN);
	gate_up_declare(l, COPY_BACK);
	declare_linear(l, "mlp.down_proj", HIDDEN, INTER);
}

static void attention(struct layer *l, CUdeviceptr x)
{
	run_linear(l, "self_attn.o_proj", gqa_heads(l, x, 0, 0), x);
}

static void mlp(struct layer *l, CUdeviceptr x)
{
	run_linear(l, "mlp.down_proj", gate_up_run(l, x), x);
}

const struct family family_gptq_marlin = {
	"gptq-marlin", "4 bits, act-order; workspace and sort order are made anew", declare,
	attention, mlp
};
