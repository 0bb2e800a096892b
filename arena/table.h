/* SPDX-License-Identifier: Apache-2.0 */
/* From a CUgraphExec to its mirror; exec_find() of exec.h is the lock-free reader. */
#ifndef ARENA_TABLE_H
#define ARENA_TABLE_H

#include "arena/exec.h"

/* All under the holders lock. */
struct exec *table_find(uint64_t handle);
/* @brief Enter a complete object; stores the handle into it. */
void table_insert(struct exec *e, uint64_t handle);
void table_remove(struct exec *e);
/* @brief The exec after @e; NULL starts and ends. */
struct exec *table_next(struct exec *e);
uint64_t table_count(void);

#endif
