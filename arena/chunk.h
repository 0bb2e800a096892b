/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of what graphs captured: arrays of any size from size classes over slabs, pages above.
 * The sum is limited by exec_limit_bytes (ARENA_GRAPH_MIB). Any thread.
 */
#ifndef ARENA_CHUNK_H
#define ARENA_CHUNK_H

#include <stddef.h>
#include <stdint.h>

/* @brief Memory with undefined contents. @return NULL: limit reached or no memory. */
void *chunk_get(size_t size_bytes);
/* @param size_bytes as it was asked for. @param p may be NULL. */
void chunk_put(void *p, size_t size_bytes);

/*
 * @brief Make room for @need elements in an array from chunk_get(); contents are kept.
 * @param array address of the pointer, @param cap address of the capacity in elements.
 * @return 0, or -ENOMEM with nothing changed. Caller serialises.
 */
int chunk_grow(void *array, uint32_t *cap, uint32_t need, size_t elem_bytes);

/* @brief Bytes handed out now, rounded up as they are stored. */
uint64_t chunk_bytes(void);

#endif
