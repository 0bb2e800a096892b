/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory under a scratch tag: what was reserved, created and mapped stays, and the next
 * pass is handed the same address, handle and mapping.
 *
 * First pass. The calls go to the driver, and are noted. Each mapping becomes the next slot
 * "tag#i", bound to what is mapped; reservations and physical handles have no slot, they are
 * known by their own order in the sequence.
 *
 * When the owner lets go, these calls are absorbed (success, nothing happens in the driver), by
 * whatever thread, inside or outside the tag:
 *
 *   cuMemUnmap        of one or more whole mappings that he has not unmapped yet
 *   cuMemRelease      of a handle that he has not released yet
 *   cuMemAddressFree  of a reservation in which he has nothing mapped any more
 *
 * A second one of the same is refused, as the driver refuses what is not there.
 *
 * Later passes. In call order, a reservation, a creation and a mapping of the same size and kind
 * are answered with what the owner let go of; a mapping that is really there is not made again.
 * The old owner must have let go: unlike other scratch, virtual memory never has two owners.
 * cuMemSetAccess always goes to the driver: the mapping is really there.
 *
 * What does not fit goes to the driver and is a tag-sequence finding. A mapping of another handle,
 * or at another place, over one that was let go, makes that one go away for real first (so that
 * sleep and wake by unmapping work on tagged memory too, though sleeping frees nothing then).
 *
 * Under a value tag virtual memory is not routed, and the sequence is a finding.
 *
 * Threads: any. One mutex; nothing here calls the driver: the wrappers do as they are told.
 */
#ifndef ARENA_KEEP_H
#define ARENA_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "arena/atomics.h"

/* Reservations and handles that are kept; 0: no wrapper of virtual memory asks further. */
extern _Atomic uint32_t keep_count;

enum keep_answer {
	KEEP_FORWARD,	/* ask the driver */
	KEEP_ABSORBED,	/* success, without the driver */
	KEEP_REFUSED,	/* CUDA_ERROR_INVALID_VALUE, without the driver */
	KEEP_GIVE_WAY,	/* ask keep_give_way() what to unmap, then ask the driver */
};

/* A physical allocation as cuMemCreate() is asked for it, flattened for comparison. */
struct keep_physical {
	uint64_t bytes, flags;
	int32_t type, location, location_id, handle_types;
	uint64_t usage;			/* allocFlags */
};
/* A mapping as cuMemMap() is asked for it. */
struct keep_mapping { uint64_t base, bytes, offset, handle; };

/*
 * Under a tag: before the driver is asked, may the call be answered from what is kept?
 * @return KEEP_ABSORBED with the answer in *out, or KEEP_FORWARD; then *ticket is for the function
 * that is called after the driver succeeded.
 */
struct keep_ticket { void *sequence; uint32_t number; bool keep; };
enum keep_answer keep_reserve(uint64_t bytes, uint64_t align, uint64_t *out, struct keep_ticket *t);
void keep_reserved(const struct keep_ticket *t, uint64_t base, uint64_t bytes);
enum keep_answer keep_create(const struct keep_physical *p, uint64_t *out, struct keep_ticket *t);
void keep_created(const struct keep_ticket *t, const struct keep_physical *p, uint64_t handle);

/* The rest under a tag or not, when keep_count != 0. */
enum keep_answer keep_map(const struct keep_mapping *m);
/* @brief The driver mapped it. Under a tag it becomes a slot. */
void keep_mapped(const struct keep_mapping *m);
/* @brief After KEEP_GIVE_WAY, until false: unmap [base, base+bytes) now, then, if not 0, release
 * the handle. */
bool keep_give_way(const struct keep_mapping *m, struct keep_mapping *gone);
enum keep_answer keep_unmap(uint64_t base, uint64_t bytes);
enum keep_answer keep_address_free(uint64_t base, uint64_t bytes);
/* @brief The driver did it after all: nothing of it is kept. */
void keep_unmapped(uint64_t base, uint64_t bytes);
void keep_address_freed(uint64_t base);
enum keep_answer keep_release(uint64_t handle);
/* @brief cuMemRetainAllocationHandle() or an import gave @handle once more: one release more is the
 * driver's. */
void keep_retained(uint64_t handle);

#endif
