/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves that nobody named. In a reload, captured memory dies and other memory of the same size is
 * allocated at the same place of the program: that is taken for a move, and told as an inferred
 * one (finding moved). It blocks only on request, for it is a guess.
 *
 * Threads: any. Nothing here calls the driver.
 */
#ifndef ARENA_INFER_H
#define ARENA_INFER_H

#include "arena/atomics.h"
#include "arena/snapshot.h"

enum infer_mode { INFER_OFF, INFER_WARN, INFER_BLOCK };
/* What inferred moves mean. Set once at start. */
extern enum infer_mode infer_mode;

/* A reload is open, and wants to know. */
extern _Atomic bool infer_active;

void infer_begin(void);
/* @brief Append what is inferred, except where @out tells the same of a slot already. Ends what
 * infer_begin() began. @return 0 or != 0: no memory, some is missing. */
int infer_end(struct slot_findings *out);

void infer_born_slow(enum range_kind kind, uint64_t base, uint64_t size_bytes, uint32_t stack);
/* @brief Memory was allocated. One branch outside of reloads. */
static inline void infer_born(enum range_kind kind, uint64_t base, uint64_t size_bytes,
			      uint32_t stack)
{
	/* Relaxed: what another thread does while the reload begins or ends may be missed. */
	if (__builtin_expect(load_relaxed(&infer_active), 0))
		infer_born_slow(kind, base, size_bytes, stack);
}
/* @brief Captured memory was freed: @f is the freed-while-referenced finding. */
void infer_died(const struct finding *f);

#endif
