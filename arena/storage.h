/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device storage of one arena: addresses that stay for the life of their context. Small slots are
 * packed with 256-byte alignment into chunks; a large one has an allocation of its own. Chunks are
 * ranges of the ledger (RANGE_DEVICE) that belong to this arena alone, so who holds a chunk
 * holds the layer.
 *
 * Works in two steps, because the driver must not be called under the registry lock:
 * storage_take() without any lock may ask the device; it serialises per arena by itself.
 */
#ifndef ARENA_STORAGE_H
#define ARENA_STORAGE_H

#include <stdint.h>

struct arena;
struct storage;

/* Scope of the ledger's ranges that are chunks: the application may not free them (lease.c). */
#define STORAGE_SCOPE	UINT64_MAX

/* @brief The storage of a new arena. @return NULL: no memory. No lock needed. */
struct storage *storage_new(void);
/* @brief Only for one that nothing was taken from. May be NULL. */
void storage_free(struct storage *s);

/* @brief @bytes of zeroed device memory, for as long as the context lives in which the thread
 * works on @device. @return 0, ARENA_E_NOMEM, ARENA_E_DEVICE. */
int storage_take(struct arena *a, int32_t device, uint64_t bytes, uint64_t *addr);
/* @brief Give back what was just taken and never handed out (lost race, failed registration).
 * No lock held: a large piece goes back to the device. What died meanwhile is left alone. */
void storage_untake(struct arena *a, uint64_t addr, uint64_t bytes);
/* @brief The driver has destroyed @context and the memory in it: slots that lay there are bound to
 * nothing until they are asked for again. After the ledger was told; no lock held. */
void storage_context_gone(uint64_t context);
uint64_t storage_bytes(void);		/* of all arenas */

#endif
