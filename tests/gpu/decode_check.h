/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode_check: every kernel of kernels/decode/decode.def against its C twin on random shapes.
 * Shared by its sources. One thread.
 */
#ifndef TESTS_GPU_DECODE_CHECK_H
#define TESTS_GPU_DECODE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/decode/decode.h"
#include "tests/unit/seed.h"

struct draw {
	uint64_t seed;
	bool large;
};

static inline uint32_t below(struct draw *d, uint32_t limit)
{
	return (uint32_t)seed_below(&d->seed, limit);
}

/* A multiple of @unit, up to @small of them, or four times as many. */
static inline uint32_t extent(struct draw *d, uint32_t unit, uint32_t small)
{
	return unit * (1 + below(d, d->large ? 4 * small : small));
}

/* What a range holds, with the drawn parameters (addresses are 0 or not). */
typedef void (*fill_fn)(struct draw *d, const void *args, void *to, uint64_t bytes);
void fill_bytes(struct draw *d, const void *args, void *to, uint64_t bytes);
void fill_bf16(struct draw *d, const void *args, void *to, uint64_t bytes);  /* from -2 to 2 */
void fill_f32(struct draw *d, const void *args, void *to, uint64_t bytes);   /* the same */
void fill_scale(struct draw *d, const void *args, void *to, uint64_t bytes); /* f32, 2^-6 to 1 */
void fill_e4m3(struct draw *d, const void *args, void *to, uint64_t bytes);  /* to +-30 */
void fill_zero(struct draw *d, const void *args, void *to, uint64_t bytes);

/* A range that is not named has any bytes and is compared bit by bit. */
struct range_case {
	const char *name;
	fill_fn fill;
	/* How the kernel's numbers may differ from the twin's: by so many last places, and
	 * by 2^-14 of the largest. 0: not at all. */
	uint32_t ulps;
	bool f32; /* not bf16; or both, by DECODE_F32 in a parameter named flags: by_flag */
	bool by_flag;
};

struct decode_case {
	const char *name;
	/* Scalars, and 1 for each address that is used. */
	void (*draw)(struct draw *d, void *args);
	struct range_case range[10];
};

/* Each ends with a name of NULL. */
extern const struct decode_case cases_rows[];
extern const struct decode_case cases_cache[];
extern const struct decode_case cases_gemm[];
extern const struct decode_case cases_moe[];

#endif
