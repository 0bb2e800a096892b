/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_check: every derivation of kernels/kernels.def as a kernel against its C twin, bit for
 * bit, on random shapes. Shared by its sources. One thread.
 */
#ifndef TESTS_GPU_KERNELS_CHECK_H
#define TESTS_GPU_KERNELS_CHECK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/derive.h"
#include "kernels/image.h"

static inline void check_driver(CUresult rc, const char *what, const char *file, int line)
{
	const char *name = NULL;

	if (rc == CUDA_SUCCESS)
		return;
	cuGetErrorName(rc, &name);
	fflush(stdout);
	fprintf(stderr, "%s:%d: %s: %d %s\n", file, line, what, (int)rc, name ? name : "");
	exit(1);
}
#define CK(call) check_driver(call, #call, __FILE__, __LINE__)

/* What is drawn for one call. */
struct draw {
	uint64_t seed;
	bool large;
	uint64_t limit; /* of what CONTENT_OFFSETS adds up to, of a permutation */
	uint32_t experts;
	bool steps; /* numbers that lie in the middle between two steps of FP4, of @type */
	uint32_t type;
};

/* How a source is filled; one that is not named has any bytes. */
enum content {
	CONTENT_BYTES,
	CONTENT_NUMBERS, /* f32, positive */
	CONTENT_WORDS,	 /* bf16 or fp16, finite */
	CONTENT_E4M3,	 /* finite, from 0 on */
	CONTENT_KEYS,	 /* i32, few different ones */
	CONTENT_ORDER,	 /* i32, a permutation, or almost one */
	CONTENT_OFFSETS, /* i64, growing, up to limit */
	CONTENT_IDS,	 /* i32, experts, and some that are none */
	CONTENT_MAP,	 /* i32, every other expert is local */
};

struct kernel_case {
	const char *name;
	/* Scalars, and 1 for each address that is used. */
	void (*draw)(struct draw *d, void *args);
	struct {
		const char *range;
		enum content content;
	} content[4];
	/* Addresses need no more alignment than this, bytes; 0: as allocated. */
	uint32_t shift, shift_sources;
};

extern const struct kernel_case kernel_cases[]; /* ends with a name of NULL */
void content_fill(const struct kernel_case *c, const struct derive_range *r, struct draw *d,
		  void *to);

/* The kernels' device side: loaded once. */
CUfunction kernel_function(const char *name);
const struct derive_chip *kernel_chip(void);
void kernel_launch(const struct derive *d, void *args, const struct derive_launch *l);

void speed_run(bool large);

#endif
