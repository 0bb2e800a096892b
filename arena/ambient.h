/* SPDX-License-Identifier: Apache-2.0 */
/* The stack of tags below scope_enter() and friends (tag.h); private to ambient.c and tag.c. */
#ifndef ARENA_AMBIENT_H
#define ARENA_AMBIENT_H

#include "arena/tag.h"

/* @brief @q is the newest tag of the thread now. @return ARENA_E_BUSY: too many. */
int ambient_push_tag(struct tag_sequence *q);
/* @return NULL when there is none. */
struct tag_sequence *ambient_pop_tag(void);

#endif
