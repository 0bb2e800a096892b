/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address -> range: a 64-ary bitmap trie over 512-byte granules.
 *
 * Readers take no lock and may run in any thread, also while writers run. Writers serialise per
 * 8 GiB region. A slot holds a chain of the ranges whose base lies in its granule, or a child
 * node; a subtree with one chain in it is not expanded. Inner nodes are never freed.
 * Ranges in one index do not overlap (callers keep overlapping families in different indexes).
 */
#ifndef ARENA_INDEX_H
#define ARENA_INDEX_H

#include <stdint.h>

#include "atomics.h"

struct range;		/* ledger.h: base, size_bytes, index_next are used here */
struct index;

/* @return NULL when the system has no memory. Lives for ever. */
struct index *index_new(void);

/* @brief Enter @r under r->base. @return 0, -ENOMEM, -ERANGE (address beyond 51 bits). */
int index_insert(struct index *ix, struct range *r);
/* @brief Take @r out; no-op when it is not in. @return 0 or -ENOENT. */
int index_remove(struct index *ix, struct range *r);

/*
 * @brief The entered range with the greatest base <= @addr, or NULL.
 *
 * The caller checks that @addr lies inside and, as the result may be removed or reused at any
 * moment, re-checks the range's generation after it has read the fields it needs.
 */
struct range *index_floor(const struct index *ix, uint64_t addr);

/* @brief Number of ranges entered. */
uint64_t index_count(const struct index *ix);

#endif
