/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The derivations of kernels.def: their flags, what is known of each, and how their C twins are
 * called. Shared by the kernels (constants only) and the host.
 *
 * What is trusted. Numbers are not: struct derive has takes(), and whoever declares a derivation
 * asks it first. Sources are trusted for their size (ranges()) and their alignment, of one element,
 * 16 bytes for nvfp4_quant and the results of nvfp4_swizzle and Marlin's repack; not for what is in
 * them: an index that is none counts as 0, an offset or a capacity that is too large as the last
 * that there is. So garbage in a slot gives a wrong result, which a comparison finds, and no access
 * outside.
 *
 * Threads: constant; a twin may run in any.
 */
#ifndef KERNELS_DERIVE_H
#define KERNELS_DERIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a block; the grid may have any size in x. Each thread takes its share of the work. */
#define DERIVE_THREADS 256

/* By 0, as a parameter may be that nobody gave, it is a division by 1. */
#define DERIVE_CEIL(x, y) (((uint64_t)(x) + (y)-1) / ((y) + !(y)))
#define DERIVE_UP(x, y)	  (DERIVE_CEIL(x, y) * (y))

/* Parameter type: of 2-byte numbers. */
#define DERIVE_BF16 0
#define DERIVE_FP16 1

/* arena_marlin_repack. */
#define MARLIN_AWQ 1 /* q is [K, N / f] in AWQ's order, not [K / f, N] in GPTQ's */
#define MARLIN_A8  2 /* for 8-bit activations */

/* arena_nvfp4_scales. */
#define NVFP4_GLOBAL  1 /* one input scale for all experts, the largest */
#define NVFP4_INVERSE 2 /* the checkpoint has reciprocals (ModelOpt) */

/* arena_trtllm_fp8. */
#define TRTLLM_GATED 1
#define TRTLLM_ONE   2 /* a1 and a2 are one number, not one an expert */

/* arena_cutlass_starts. */
#define CUTLASS_PER_TOKEN   1 /* a's scales: one a row, not one in all */
#define CUTLASS_PER_CHANNEL 2 /* b's scales: one a column, not one an expert */

/* Keys of arena_moe_*: experts are counted in shared memory. */
#define MOE_EXPERTS_MAX 1024

/* Blocks of a cluster at most: more than 8 only where the device has room (sm_90 has). */
#define DERIVE_CLUSTER_MAX 16

/* arena_marlin_order: threads of a block at most. */
#define MARLIN_ORDER_THREADS 1024

#ifdef __CUDACC__
#define DERIVE_FN static __device__ __forceinline__
#else
#define DERIVE_FN static inline
#endif

/*
 * Its rows of codes in shared memory, where @blocks of a cluster share them: words of a row; words
 * from the first row of each word of the source to the second, so many that no two that a warp
 * writes at once share a bank; bytes of all, and of a row of zeros.
 */
DERIVE_FN uint32_t marlin_order_row(uint32_t bits, bool a8)
{
	return a8 ? bits / 2 : 2 * bits;
}

DERIVE_FN uint64_t marlin_order_stride(uint64_t k, uint32_t bits, bool a8, uint32_t blocks)
{
	uint64_t words = DERIVE_CEIL(k * bits / 32, blocks) * marlin_order_row(bits, a8);

	return DERIVE_UP(words + 8, 16) - 8;
}

DERIVE_FN uint64_t marlin_order_bytes(uint64_t k, uint32_t bits, bool a8, uint32_t blocks)
{
	return marlin_order_stride(k, bits, a8, blocks) * (32 / bits) * 4 + 16;
}

#ifndef __CUDACC__
#define DERIVE_PARAMS_MAX 12
#define DERIVE_ARGS_MAX	  (8 * DERIVE_PARAMS_MAX) /* bytes */

struct derive_param {
	const char *name;
	uint16_t offset, size; /* in struct <name>_args of image.h, bytes */
};

struct derive_range {
	const char *name;
	uint64_t address, bytes; /* bytes == 0: not used */
	uint16_t offset;	 /* of the parameter that holds the address */
	bool result;
};

/* A number that a derivation does not take. */
struct derive_limit {
	const char *param, *takes; /* what it has to be: "4 or 8" */
	uint64_t value;
};

struct derive {
	const char *name, *doc;
	uint32_t params_count;
	uint32_t args_bytes;
	struct derive_param params[DERIVE_PARAMS_MAX];
	/* What it reads and writes with these parameters; into DERIVE_PARAMS_MAX. @return count */
	uint32_t (*ranges)(const void *args, struct derive_range *out);
	/* Whether kernel and twin can run with these numbers. With others they read and write what
	 * is not theirs, or divide by 0. @p refused out: the first one that is not taken. */
	bool (*takes)(const void *args, struct derive_limit *refused);
};

/* @brief The rows, in their order. @return NULL: there is no such row. */
const struct derive *derive_at(size_t i);
const struct derive *derive_find(const char *name);

/*
 * @brief The twin of a derivation, by name: same parameters, addresses of the host. Results that
 * the kernel leaves alone, the twin leaves alone. In objects of its own, so that a program links
 * the twins only if it asks for one.
 */
typedef void (*derive_twin_fn)(const void *args);
derive_twin_fn derive_twin(const char *name);

/* What a launch depends on, of the device. */
struct derive_chip {
	uint32_t multiprocessors;
	uint32_t shared;  /* a block's at most, bytes */
	uint32_t cluster; /* blocks of a cluster at most; 1 or 0: it has none */
};

/* The kernel is that of the row, or a quicker one with the same parameters and result. */
struct derive_launch {
	const char *kernel;
	uint32_t blocks, threads, shared; /* shared memory, bytes */
	uint32_t cluster;		  /* blocks of a cluster, of which @blocks is a multiple */
};

/* @brief The quickest way to launch @d. The kernel of the row runs with any grid, too. */
void derive_launch(const struct derive *d, const void *args, const struct derive_chip *chip,
		   struct derive_launch *out);

/* What a parameter of a twin points at. */
#define DERIVE_IN(type, address)  ((const type *)(uintptr_t)(address))
#define DERIVE_OUT(type, address) ((type *)(uintptr_t)(address))
#endif

#endif
