/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the wrappers and the ledger: who calls, from where, in which context. A wrapper of
 * memory is "ask the driver, tell record.h", in the order that ledger.h prescribes.
 *
 * Any thread. Every function here keeps errno, and none is reached unless record_on() said so.
 */
#ifndef SHIM_RECORD_H
#define SHIM_RECORD_H

#include "arena/ledger.h"
#include "shim/hooks.h"
#include "shim/shim.h"
#include "shim/stacks.h"

/* First expression of a wrapper with a body; false: forward the call and do nothing else. */
#define record_on(symbol)                     \
	({                                    \
		HOOK_ENTER(symbol);           \
		shim_ready() && !shim_inside; \
	})

/* @brief The driver handed out [base, base+size_bytes). @param scope what it goes away with
 * (module, library, host memory of an alias ...), 0: nothing. NULL and empty: ignored. */
void record_open(enum range_kind kind, uint64_t base, uint64_t size_bytes, uint64_t scope);
/* @brief The same for an address that the driver may hand out many times: a range that lives at
 * the same place with the same size stays as it is. */
void record_open_once(enum range_kind kind, uint64_t base, uint64_t size_bytes, uint64_t scope);

/* @brief The same for memory of another process: the driver is asked for its size. */
void record_open_imported(uint64_t base);

/* @brief Before the driver is asked to free @base; NULL and unknown: nothing happens.
 * @return for record_closed(). */
struct range *record_close(uint64_t base, enum stack_use use);
void record_settle(struct range *r, CUresult rc);
/* @brief After: the driver answered @rc. */
static inline void record_closed(struct range *r, CUresult rc)
{
	if (r != NULL)
		record_settle(r, rc);
}

/* @brief The same pair for all ranges of one kind and scope. */
struct unmap_batch record_close_scope(enum range_kind kind, uint64_t scope);
void record_closed_scope(struct unmap_batch *b, CUresult rc);

/* @brief Virtual memory was mapped. */
void record_map(uint64_t base, uint64_t size_bytes, uint64_t handle);
/* @brief Before the driver is asked to unmap. @return for record_closed_scope(). */
struct unmap_batch record_unmap(uint64_t base, uint64_t size_bytes);

/* @brief A context is gone, with all that belonged to it. */
void record_context_gone(uint64_t context);

/* @brief Did memory of two contexts ever come by? Then what one of them proves says nothing
 * about the other. */
bool record_many_contexts(void);

/* @brief Own driver calls under these two neither recurse nor disturb a capture. */
struct own_calls {
	CUstreamCaptureMode mode;
	bool exchanged;
};
struct own_calls own_calls_begin(void);
void own_calls_end(struct own_calls *own);

#endif
