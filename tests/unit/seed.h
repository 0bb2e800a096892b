/* SPDX-License-Identifier: Apache-2.0 */
/* Repeatable random numbers: a printed seed, ARENA_TEST_SEED to choose another. */
#ifndef TESTS_UNIT_SEED_H
#define TESTS_UNIT_SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline uint64_t seed_start(const char *what)
{
	const char *text = getenv("ARENA_TEST_SEED");
	uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 20251129;

	fprintf(stderr, "# %s: ARENA_TEST_SEED=%lu\n", what, (unsigned long)seed);
	return seed;
}

/* splitmix64 */
static inline uint64_t seed_next(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static inline uint64_t seed_below(uint64_t *seed, uint64_t limit)
{
	return seed_next(seed) % limit;
}

#endif
