/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of what could not be seen (coverage.def), and a few names of it. Any thread. */
#ifndef SHIM_COVERAGE_H
#define SHIM_COVERAGE_H

#include "arena/atomics.h"

enum coverage_id {
#define COVERAGE(id, key, decisive, text) COVERAGE_##id,
#include "shim/coverage.def"
#undef COVERAGE
	COVERAGE_COUNT
};
struct coverage_row {
	const char *key, *text;
	bool decisive;
};
extern const struct coverage_row coverage_rows[COVERAGE_COUNT];
extern counter_t coverage[COVERAGE_COUNT];
#define coverage_count(id) counter_bump(&coverage[COVERAGE_##id])
#define coverage_add(id, n) ((void)add_relaxed(&coverage[COVERAGE_##id], (n)))

/* @brief Count, and remember @name (cut to fit) unless it is known or there are many already. */
void coverage_note(enum coverage_id id, const char *name) __attribute__((cold));
/* @brief The @index-th name. @return NULL past the last one. */
const char *coverage_noted(unsigned index, enum coverage_id *id);
/* @brief In a forked child: nothing was missed yet. */
void coverage_forget(void);

#endif
