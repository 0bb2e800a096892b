/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of what could not be seen (coverage.def). Any thread. */
#ifndef SHIM_COVERAGE_H
#define SHIM_COVERAGE_H

#include "arena/atomics.h"

enum coverage_id {
#define COVERAGE(id, key, decisive, text) COVERAGE_##id,
#include "shim/coverage.def"
#undef COVERAGE
	COVERAGE_COUNT
};
extern counter_t coverage[COVERAGE_COUNT];
#define coverage_count(id) counter_bump(&coverage[COVERAGE_##id])

#endif
