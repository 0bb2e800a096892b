/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codes of 4 or 8 bits in 32-bit words, as checkpoints have them: GPTQ packs rows (code k of a
 * column in word k / f at place k % f, f = 32 / bits), zero points pack columns the same way, AWQ
 * packs columns in an order of its own. For the C twins. Any thread; pure.
 */
#ifndef KERNELS_CODES_H
#define KERNELS_CODES_H

#include <stdint.h>

static inline uint32_t codes_get(uint32_t word, uint32_t place, uint32_t bits)
{
	return word >> place * bits & ((1u << bits) - 1);
}

/* The place of column @c of a word in AWQ's order. */
static inline uint32_t codes_awq(uint32_t c, uint32_t bits)
{
	static const uint8_t four[8] = { 0, 4, 1, 5, 2, 6, 3, 7 }, eight[4] = { 0, 2, 1, 3 };

	return bits == 4 ? four[c] : eight[c];
}

/* Of [K / f, N], packed by rows. */
static inline uint32_t codes_row(const uint32_t *q, uint64_t k, uint64_t n, const uint32_t shape[2])
{
	uint32_t bits = shape[1], f = 32 / bits;

	return codes_get(q[k / f * shape[0] + n], (uint32_t)(k % f), bits);
}

/* Of [K, N / f], packed by columns, in order or in AWQ's. @p shape: N, bits. */
static inline uint32_t codes_col(const uint32_t *q, uint64_t k, uint64_t n, const uint32_t shape[2],
				 uint32_t awq)
{
	uint32_t bits = shape[1], f = 32 / bits, c = (uint32_t)(n % f);

	return codes_get(q[k * (shape[0] / f) + n / f], awq ? codes_awq(c, bits) : c, bits);
}

#endif
