/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the derivations' twins, inputs from a 32-bit LCG, hashes of results. */
#ifndef TESTS_UNIT_DERIVE_H
#define TESTS_UNIT_DERIVE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/twins.h"

/* CALL(arena_x, .in = AT(in), .count = 3): the twin with these parameters. */
#define AT(p) ((uint64_t)(uintptr_t)(p))
#define CALL(name, ...)                                     \
	do {                                                \
		struct name##_args args_ = { __VA_ARGS__ }; \
		name##_twin(&args_);                        \
	} while (0)

struct lcg {
	uint32_t x;
};

static inline uint32_t lcg_next(struct lcg *g)
{
	g->x = g->x * 1664525u + 1013904223u;
	return g->x >> 16;
}

/* @n numbers below mask + 1, as 32-bit words. */
static inline void lcg_fill(uint32_t seed, uint32_t mask, uint32_t *out, size_t n)
{
	struct lcg g = { seed };

	for (size_t i = 0; i < n; i++)
		out[i] = lcg_next(&g) & mask;
}

static inline uint64_t fnv64(const void *data, size_t n)
{
	uint64_t h = 0xcbf29ce484222325;

	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
	return h;
}

/* Codes [k, n], one a word, packed by rows as GPTQ does. */
static inline void gptq_pack(const uint32_t *q, uint32_t k, uint32_t n, uint32_t bits,
			     uint32_t *out)
{
	uint32_t f = 32 / bits;

	memset(out, 0, (size_t)k / f * n * 4);
	for (uint32_t i = 0; i < k; i++)
		for (uint32_t c = 0; c < n; c++)
			out[i / f * n + c] |= q[(size_t)i * n + c] << bits * (i % f);
}

/* By columns, at places[c % f]; NULL: in order. */
static inline void column_pack(const uint32_t *q, uint32_t k, const uint32_t shape[2],
			       const uint8_t *places, uint32_t *out)
{
	uint32_t n = shape[0], bits = shape[1], f = 32 / bits;

	memset(out, 0, (size_t)k * (n / f) * 4);
	for (uint32_t i = 0; i < k; i++)
		for (uint32_t c = 0; c < n; c++)
			out[i * (n / f) + c / f] |= q[(size_t)i * n + c]
						    << bits * (places ? places[c % f] : c % f);
}

static inline const uint8_t *awq_places(uint32_t bits)
{
	static const uint8_t four[8] = { 0, 4, 1, 5, 2, 6, 3, 7 }, eight[4] = { 0, 2, 1, 3 };

	return bits == 4 ? four : eight;
}

#endif
