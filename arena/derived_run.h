/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the derivations of a layer; private to derived.c and verdict.c, and to the thread that
 * commits. */
#ifndef ARENA_DERIVED_RUN_H
#define ARENA_DERIVED_RUN_H

#include "arena/derived.h"
#include "arena/staged.h"

struct derived_run {
	struct batch *batch;
	uint64_t stream;
	struct derivation *list; /* copies of those that are due */
	uint32_t count, list_cap;
	struct slot_findings *out;
};

/* @brief A derivation that could not be checked, for want of @slot's memory. @return 0 or
 * ARENA_E_NOMEM, with a message. */
int verdict_skipped(struct derived_run *r, const struct derivation *d, const struct slot *slot);
/* @brief Compare what was given with what was derived. Waits. @return as derived_run(). */
int verdict_all(struct derived_run *r);

/* Scales are small; what is larger is no scale. */
#define DERIVED_FACTOR_BYTES_MAX (1u << 20)

/* @brief A copy of @bytes at @from, of a device or the host, on the host. @return 0 or -errno. */
int derived_fetch(const struct derived_run *r, void *to, uint64_t from, uint64_t bytes);
/* @brief Value @i of @copy was right, and had this fingerprint. @return 0 or -errno. */
int derived_note(const struct derived_run *r, const struct derivation *copy, uint32_t i,
		 uint64_t fingerprint);

#endif
