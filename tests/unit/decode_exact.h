/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of the decode kernels' twins: numbers by their definition, in double, as a second
 * opinion on kernels/number.h; contents; a comparison that says its bound.
 */
#ifndef TESTS_UNIT_DECODE_EXACT_H
#define TESTS_UNIT_DECODE_EXACT_H

#include <criterion/criterion.h>
#include <math.h>

#include "derive.h"
#include "kernels/decode/decode.h"
#include "seed.h"

/* DECODE_CALL(decode_x, .x = AT(x), ..): the twin with these parameters. */
#define DECODE_CALL CALL

static inline double bf16_value(uint16_t x)
{
	int exponent = x >> 7 & 255, mantissa = x & 127;
	double size = exponent ? ldexp(128 + mantissa, exponent - 134) : ldexp(mantissa, -133);

	return x >> 15 ? -size : size;
}

/* The nearest number of bf16, ties to even, of a finite one that is normal there or 0. */
static inline double bf16_nearest(double x)
{
	int exponent;

	if (x == 0)
		return 0;
	frexp(x, &exponent);
	return ldexp(nearbyint(ldexp(x, 8 - exponent)), exponent - 8);
}

static inline double e4m3_value(uint8_t x)
{
	int exponent = x >> 3 & 15, mantissa = x & 7;
	double size = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);

	return x >> 7 ? -size : size;
}

static inline double e2m1_value(uint8_t x)
{
	int exponent = x >> 1 & 3, mantissa = x & 1;
	double size = exponent ? ldexp(2 + mantissa, exponent - 2) : ldexp(mantissa, -1);

	return x & 8 ? -size : size;
}

/* From 2^-7 to 2, either sign. */
static inline uint16_t bf16_draw(uint64_t *seed)
{
	uint64_t bits = seed_next(seed);

	return (uint16_t)((bits & 0x8000) | (120 + (bits >> 16) % 8) << 7 | (bits & 127));
}

static inline void bf16_fill(uint64_t *seed, uint16_t *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = bf16_draw(seed);
}

/* Any number but NaN. */
static inline void e4m3_fill(uint64_t *seed, uint8_t *to, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		to[i] = (uint8_t)seed_next(seed);
		if ((to[i] & 127) == 127)
			to[i] ^= 1;
	}
}

static inline void f32_fill(uint64_t *seed, float *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (float)(1 + seed_below(seed, 1000)) / 512;
}

/* A sum as it should be, and the sum of the magnitudes. */
struct exact {
	double sum, size;
};

static inline void exact_add(struct exact *e, double x)
{
	e->sum += x;
	e->size += fabs(x);
}

/*
 * @p got is the sum of @terms products, rounded to bf16: half a last place of the result, and for
 * each addition in f32 half a last place of a partial sum, which is no larger than the sum of
 * the magnitudes.
 */
static inline bool near_sum(uint16_t got, struct exact e, unsigned terms)
{
	double bound = ldexp(fabs(e.sum), -8) + terms * ldexp(e.size, -24);

	return fabs(bf16_value(got) - e.sum) <= bound;
}

#endif
