/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small floating-point formats for the C twins: bf16, fp16, e4m3 (OCP FP8, no infinity) and e2m1
 * (OCP FP4). Rounding is to nearest, ties to even. By arithmetic and search where the kernels use
 * the conversions of the toolkit, so that one checks the other. Any thread; pure.
 */
#ifndef KERNELS_NUMBER_H
#define KERNELS_NUMBER_H

#include <stdint.h>
#include <string.h>

#include "kernels/derive.h"

static inline float number_of_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static inline uint32_t number_bits(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

/* 2^@exponent, for exponents of normal numbers. */
static inline float number_power(int exponent)
{
	return number_of_bits((uint32_t)(exponent + 127) << 23);
}

static inline float number_from_half(uint16_t h)
{
	int exponent = (h >> 10) & 31, mantissa = h & 1023;
	float x;

	if (exponent == 31)
		return number_of_bits((h & 0x8000u) << 16 | 0x7f800000u | (uint32_t)mantissa << 13);
	x = exponent == 0 ? (float)mantissa * number_power(-24)
			  : (float)(1024 + mantissa) * number_power(exponent - 25);
	return h & 0x8000 ? -x : x;
}

static inline uint16_t number_to_half(float x)
{
	uint32_t bits = number_bits(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
	float magnitude = number_of_bits(size);
	int exponent = (int)(size >> 23) - 127;

	if (size > 0x7f800000)
		return 0x7fff;
	if (magnitude >= 65520.0f) /* half way from the largest to what would be next */
		return (uint16_t)(sign | 0x7c00);
	/* Of numbers this small the last place is 2^-24. Adding 1.5 * 2^23 last places rounds. */
	if (exponent < -14)
		exponent = -14;
	magnitude += 12582912.0f * number_power(exponent - 10);
	size = (number_bits(magnitude) & 0x3fffff) + (uint32_t)((exponent + 14) << 10);
	return (uint16_t)(sign | size);
}

static inline float number_from_bf16(uint16_t h)
{
	return number_of_bits((uint32_t)h << 16);
}

static inline uint16_t number_to_bf16(float x)
{
	uint32_t bits = number_bits(x);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return 0x7fff;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* By DERIVE_BF16 or DERIVE_FP16. */
static inline float number_from(uint32_t type, uint16_t h)
{
	return type == DERIVE_FP16 ? number_from_half(h) : number_from_bf16(h);
}

static inline uint16_t number_to(uint32_t type, float x)
{
	return type == DERIVE_FP16 ? number_to_half(x) : number_to_bf16(x);
}

static inline float number_from_e4m3(uint8_t b)
{
	int exponent = b >> 3 & 15, mantissa = b & 7;
	float x;

	if ((b & 0x7f) == 0x7f)
		return number_of_bits(0x7fffffff);
	x = exponent == 0 ? (float)mantissa * number_power(-9)
			  : (float)(8 + mantissa) * number_power(exponent - 10);
	return b & 0x80 ? -x : x;
}

/*
 * The place of @size >= 0 among @count values that grow: the nearest one, of two equally near ones
 * the even one. Distances are exact: the values have few bits.
 */
static inline unsigned number_nearest(float size, float (*value)(uint8_t code), unsigned count)
{
	unsigned i = 0, end = count;
	double below, above;

	while (end - i > 1) {
		unsigned middle = (i + end) / 2;

		if (value((uint8_t)middle) <= size)
			i = middle;
		else
			end = middle;
	}
	if (i + 1 == count)
		return i;
	below = (double)size - (double)value((uint8_t)i);
	above = (double)value((uint8_t)(i + 1)) - (double)size;
	return below < above || (below == above && i % 2 == 0) ? i : i + 1;
}

/* Saturates to 448. */
static inline uint8_t number_to_e4m3(float x)
{
	uint32_t bits = number_bits(x), size = bits & 0x7fffffff;

	if (size > 0x7f800000)
		return 0x7f;
	return (uint8_t)(bits >> 24 & 0x80) |
	       (uint8_t)number_nearest(number_of_bits(size), number_from_e4m3, 0x7f);
}

static inline float number_from_e2m1(uint8_t code)
{
	static const float size[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };

	return code & 8 ? -size[code & 7] : size[code & 7];
}

/* Saturates to 6; NaN too. */
static inline uint8_t number_to_e2m1(float x)
{
	uint32_t bits = number_bits(x), size = bits & 0x7fffffff;

	if (size > 0x7f800000)
		return 7;
	return (uint8_t)(bits >> 28 & 8) |
	       (uint8_t)number_nearest(number_of_bits(size), number_from_e2m1, 8);
}

#endif
