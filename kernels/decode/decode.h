/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of a decode graph (decode.def), with the semantics of engines' own: their parameters,
 * what each computes, and its C twin, which is the specification.
 *
 * Kernels take the parameters one by one, so that a captured graph has each address as a parameter
 * of its own. They run with any grid in x of DECODE_THREADS threads, without dynamic shared memory,
 * on one stream: each reads only what a launch before wrote. struct <name>_args has the
 * parameters in their order, as the driver packs them; for a twin the addresses are the host's.
 *
 * Unless said otherwise numbers are bf16, dense and row by row ([T, H]: T rows of H), sums are f32,
 * addresses need the alignment of one element, strides count elements, an address of 0 means "not
 * there". T: tokens, H: hidden, N: out features, K: in features, E: experts, G: groups along K.
 *
 * Nothing fails: a shape that a kernel does not take (said with each) leaves the results as they
 * were, and so does a count of 0.
 *
 * A kernel equals its twin bit for bit, or within the bound said with it: "n ulp" is n last places
 * of a result (of bf16; of f32 results 2^-20 of it) and 2^-14 of the largest result of the call, as
 * sums may cancel.
 *
 * Threads: twins are pure, any thread; the rest is constant.
 */
#ifndef KERNELS_DECODE_DECODE_H
#define KERNELS_DECODE_DECODE_H

#include "kernels/derive.h"

/* Of a block; the grid may have any size in x. */
#define DECODE_THREADS 256

/* Parameter flags; each kernel says which it knows. */
#define DECODE_F32	   1  /* logits, router's too, cos_sin, results of decode_gemm: f32 */
#define DECODE_GPTJ	   2  /* rotary: pairs (2i, 2i + 1), not (i, i + rot / 2) */
#define DECODE_PAGED	   4  /* caches in the older layout, see decode_reshape_and_cache */
#define DECODE_RENORMALIZE 8  /* topk_softmax: the k weights add up to 1 */
#define DECODE_PER_TOKEN   16 /* FP8: x_scales are [T], not one */
#define DECODE_PER_CHANNEL 32 /* FP8: w_scales are [N], not one (of an expert) */

/* X of DECODE_PAGED: 16 bytes of keys. */
#define DECODE_CACHE_X(fp8) ((fp8) ? 16u : 8u)

/* Limits: what a warp holds in registers, what a block counts in shared memory. */
#define DECODE_HEAD_MAX	   256 /* head_size */
#define DECODE_LATENT_MAX  512 /* latent; rope up to 64 */
#define DECODE_ROPE_MAX	   64
#define DECODE_EXPERTS_MAX 1024
#define DECODE_TOPK_MAX	   16

/* What decode_marlin_gemm leaves in its status word; it never resets it. */
#define DECODE_STATUS_DIRTY 1 /* a lock was not 0 at the launch: the results are not valid */

#ifndef __CUDACC__
#define DECODE_PARAMS_MAX 20
#define DECODE_ARGS_MAX	  (8 * DECODE_PARAMS_MAX) /* bytes */

#define P(type, name) type name;
#define DECODE(name, doc, params, ranges) \
	struct name##_args {              \
		params                    \
	};
#include "kernels/decode/decode.def"
#undef DECODE
#undef P

struct decode_param {
	const char *name;
	uint16_t offset, size; /* in struct <name>_args, bytes */
};

struct decode_range {
	const char *name;
	uint64_t address, bytes; /* bytes == 0: not used */
	uint16_t offset;	 /* of the parameter that holds the address */
	bool read, written;
};

typedef void (*decode_twin_fn)(const void *args);

struct decode {
	const char *name, *doc;
	uint32_t params_count, args_bytes;
	struct decode_param params[DECODE_PARAMS_MAX];
	/* What it reads and writes with these parameters; into DECODE_PARAMS_MAX. @return count */
	uint32_t (*ranges)(const void *args, struct decode_range *out);
};

/* @brief The rows, in their order. @return NULL: there is no such row. */
const struct decode *decode_at(size_t i);
const struct decode *decode_find(const char *name);

/* @brief The twin of a kernel, by name. @return NULL: there is no such kernel. */
decode_twin_fn decode_twin(const char *name);

/* For cuModuleLoadData(); NULL: built without nvcc (the simulated driver takes any bytes). */
extern const void *const decode_image;

/* The argument is a struct <name>_args. */
#define DECODE_TWIN(name) void name##_twin(const void *args)

/* ---- rows ---- */

/* out[i] = bf16(x[i] + y[i]), count numbers. Bit-equal. */
DECODE_TWIN(decode_add);

/* out i64 [T] = place of the largest of logits [T, N] (DECODE_F32), the lowest of equal ones. A NaN
 * counts as larger than all, as in PyTorch. N == 0: left alone. Bit-equal. */
DECODE_TWIN(decode_argmax);

/* out[r] = in[r], rows of row_bytes; strides are bytes. Bytes between rows are left alone.
 * Bit-equal. */
DECODE_TWIN(decode_copy_rows);

/* out [T, H] = table[ids[t] - first], table [vocab, H], ids i64; zeros outside of the table.
 * Bit-equal. */
DECODE_TWIN(decode_embedding);

/* out [T, H] = bf16(x * r) * weight [H], r = 1 / sqrt(mean(x^2) + eps): the first product is
 * rounded before the second is. Rows of x lie x_stride apart. 2 ulp. */
DECODE_TWIN(decode_rms_norm);

/* residual = bf16(x + residual), x = rms_norm(residual); both [T, H]. residual bit-equal, x 2 ulp.
 */
DECODE_TWIN(decode_fused_add_rms_norm);

/* out [T, D] = bf16(silu(x[.., :D])) * x[.., D:], x [T, 2 D]; silu(g) = g / (1 + exp(-g)). 2 ulp.
 */
DECODE_TWIN(decode_silu_and_mul);

/* out [T, D] = g * sigmoid(alpha * g) * (u + 1) with g = min(x[2 i], limit), u = x[2 i + 1] clamped
 * to +-limit, a NaN stays one, x [T, 2 D]. In f32, rounded once. 1 ulp. */
DECODE_TWIN(decode_swigluoai_and_mul);

/* x' = x cos - y sin, y' = y cos + x sin for the rot / 2 pairs (DECODE_GPTJ) of each head of query
 * and key, in place. cos_sin [max_position, rot] (DECODE_F32): first half cos, second sin, at row
 * positions i64 [T]; a position outside leaves its token alone. Heads start at t * stride + h *
 * head; the addresses are those of the first number that rotates. rot is even. Bit-equal. */
DECODE_TWIN(decode_rotary);

/* ---- FP8 activations ---- */

/* scale f32 [1] = max(scale, |x[i]| / 448), so it has to be 0 before (a memset node). A NaN of x
 * does not count, one in scale stays. Bit-equal. */
DECODE_TWIN(decode_fp8_amax);

/* out e4m3 = x * (1 / scale), saturated to +-448; scale f32 [1]. Bit-equal. */
DECODE_TWIN(decode_fp8_quant);

/* scales f32 [T] = max(min(largest |x| of the row, bound) / 448, 1 / (448 * 512)), out e4m3 [T, K]
 * = x / scale, saturated; bound f32 [1] or 0. Bit-equal. */
DECODE_TWIN(decode_fp8_quant_token);

/* ---- caches and attention ---- */

/*
 * Keys and values [T, kv_heads, D], tokens stride apart, to slots i64 [T]: block slot / block_size,
 * place slot % block_size. A slot that is negative or behind the last block is skipped. Caches
 * [blocks, block_size, kv_heads, D], or DECODE_PAGED: keys [blocks, kv_heads, D / X, block_size,
 * X], values [blocks, kv_heads, D, block_size], D % X == 0. k_scale, v_scale: f32 [1], both or
 * neither: caches are e4m3, x / scale saturated, not bf16. Bit-equal.
 */
DECODE_TWIN(decode_reshape_and_cache);

/* Rows of cache [blocks, block_size, latent + rope] = kv_c [T, latent], k_pe [T, rope], tokens
 * c_stride and pe_stride apart; slots and scale as above. Bit-equal. */
DECODE_TWIN(decode_concat_and_cache_mla);

/*
 * out [S, heads, D] = softmax(q . k * scale) v over the last lens i32 [S] tokens; query heads,
 * tokens q_stride apart, share kv head h / (heads / kv_heads). tables i32 [S, max_blocks]: blocks
 * of each sequence. sinks f32 [heads]: one more term of the denominator. window: only that many
 * last tokens; 0: all. k_scale, v_scale, DECODE_PAGED as above: a cached number is e4m3 * scale.
 * A length of 0 gives zeros, and so do scores of -infinity only; a block outside of the cache
 * counts as not there. NaN: as in PyTorch. D <= DECODE_HEAD_MAX, heads % kv_heads == 0. 2 ulp.
 */
DECODE_TWIN(decode_paged_attention);

/*
 * out [S, heads, latent] = softmax((q_c . c + q_pe . p) * scale) c over cached rows (c, p); q_c [S,
 * heads, latent], q_pe [.., rope] at s * pe_stride + h * pe_head. The rest as above. latent <=
 * DECODE_LATENT_MAX, rope <= DECODE_ROPE_MAX. 2 ulp.
 */
DECODE_TWIN(decode_mla_attention);

/* ---- GEMMs ---- */

/* out [T, N] (DECODE_F32) = x [T, K] w [N, K]^T + bias [N] or 0; tokens of x lie x_stride apart.
 * The bias is added in f32. 1 ulp. */
DECODE_TWIN(decode_gemm);

/* out [T, heads, N] = x [T, heads, K] w [heads, K, N]; x at t * x_stride + h * x_head. As
 * decode_gemm. */
DECODE_TWIN(decode_bmm);

/*
 * out [T, N] = (x . w) * x_scale * w_scale + bias, x e4m3 [T, K], w e4m3 [N, K]; scales f32 [1], or
 * DECODE_PER_TOKEN [T] of x, DECODE_PER_CHANNEL [N] of w; bias [N] or 0. Bit-equal.
 */
DECODE_TWIN(decode_fp8_gemm);

/*
 * out [T, N] = x [T, K] W + bias, W from Marlin's layout (families: arena_marlin_repack, _scales,
 * _zeros): q i32 [K / 16, N * bits / 2], scales [G, N] permuted (by channel if G == 1), zeros
 * permuted or 0 (codes are then signed by 8 or 128). Act-order: perm i32 [K] says which column of x
 * stands at row k, g_idx i32 [K], sorted, its group; without, the group is k / (K / G). An index
 * that is none makes the row count as 0. bias [N] in plain order. tmp f32 [T, N]: K is cut into
 * slices, whose sums are added there, one after the other, as the locks say. 0: one slice.
 * workspace i32 [locks]: 0 before and after a launch. A lock that is not makes the kernel give up
 * its columns after a bounded wait, with status i32 [1] |= DECODE_STATUS_DIRTY. bits 4 or 8, K %
 * 16, N % 64, K % G == 0, locks >= N / 64. Bit-equal.
 */
DECODE_TWIN(decode_marlin_gemm);

/*
 * out [T, N] = alpha f32 [1] * (x . w), x e2m1 [T, K / 2], w e2m1 [N, K / 2] (low nibble: even
 * element), block scales e4m3 in 128 x 4 tiles (arena_nvfp4_swizzle). K % 16 == 0. Bit-equal.
 */
DECODE_TWIN(decode_nvfp4_gemm);

/* codes and sf of x [T, K] with gscale f32 [1], as arena_nvfp4_quant then arena_nvfp4_swizzle.
 * K % 16 == 0. Bit-equal. */
DECODE_TWIN(decode_nvfp4_quant);

/*
 * out [rows, N] = x[row / topk] W, W 4-bit in exllama order (arena_exllama_shuffle): q i32 [E, K /
 * 8, N], scales [E, G, N], zeros i32 [E, G, N / 8], one is added to each (GPTQ v1). ids i32 [rows]
 * or 0: expert of a row, one that is none gives zeros; 0: E == 1. weights f32 [rows] or 0: factor
 * of a row. K % (8 G), N % 8 == 0. Bit-equal.
 */
DECODE_TWIN(decode_exllama_gemm);

/* ---- mixture of experts ---- */

/*
 * weights f32 [T, k], ids i32 [T, k]: the k largest of softmax(gating [T, E]) (DECODE_F32), largest
 * first, of equal ones the lower expert; DECODE_RENORMALIZE: divided by their sum. source i32 [T,
 * k] = slot * T + token, or 0. E <= DECODE_EXPERTS_MAX, k <= DECODE_TOPK_MAX and E. ids, source
 * bit-equal, weights 2^-18 relative; a NaN is chosen last, as -infinity.
 */
DECODE_TWIN(decode_topk_softmax);

/* As arena_moe_align: sorted i32 [capacity], experts_of i32 [capacity / block, rounded up], total
 * i32 [1]; what is behind the capacity is dropped, total counts it. E <= DECODE_EXPERTS_MAX.
 * Bit-equal. */
DECODE_TWIN(decode_moe_align);

/* As arena_moe_permute_index, _permute_rows, _unpermute, of bf16: 1 <= E <= DECODE_EXPERTS_MAX. An
 * index that is none is a row of zeros, or left out of the sum. Bit-equal. */
DECODE_TWIN(decode_moe_permute_index);
DECODE_TWIN(decode_moe_permute_rows);
DECODE_TWIN(decode_moe_unpermute);

/* out [T, H] = x[t, 0] + x[t, 1] + .., x [T, k, H], in f32 in that order, rounded once. Bit-equal.
 */
DECODE_TWIN(decode_moe_sum);

/*
 * For each flat index i = sorted[p], p < total, i < count, of a block whose expert e is one: out[i]
 * [N] = (x[i / topk] w[e]^T + bias[e]) * weights[i]; w [E, N, K], bias [E, N] or 0, weights f32
 * [count] or 0. Other rows are left alone. Bit-equal.
 */
DECODE_TWIN(decode_moe_gemm);

/*
 * CUTLASS's grouped GEMM on permuted rows: expert e has rows offsets i64 [E + 1] [e] up to [e + 1],
 * x e4m3 [rows, K] from x + offsets[e] * K with row stride ab_strides i64 [E] [e], w e4m3 [E, N, K]
 * with that stride too, out with row stride c_strides i64 [E] [e]; sizes i32 [E, 3] = (m, N, K) or
 * (N, m, K): m, N and K as they say there. An expert whose sizes or strides do not fit is skipped.
 * Scales f32: [1] or DECODE_PER_TOKEN [rows]; [E] or DECODE_PER_CHANNEL [E, N]. Bit-equal.
 */
DECODE_TWIN(decode_moe_gemm_fp8);

/* NVFP4 rows of expert e at offsets[e], their block scales from tile row sf_offsets[e] (i32 [E +
 * 1], multiples of 128, all in sf_rows) on; w [E, N, K / 2], w_sf [E, N padded, K / 16 padded],
 * alphas f32 [E]. An expert whose offsets do not fit is skipped. Bit-equal. */
DECODE_TWIN(decode_moe_gemm_nvfp4);

/* codes [rows, K / 2] and sf of x [rows, K] with gscale f32 [E]; sf_offsets[e]: rows of the experts
 * before, each rounded up to 128. E <= DECODE_EXPERTS_MAX. Experts whose rows do not fit are left
 * out; places of sf that hold none, and padding, are left alone. Bit-equal. */
DECODE_TWIN(decode_moe_nvfp4_quant);

#endif
#endif
