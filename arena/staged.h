/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is staged in one arena; private to stage.c and publish.c. Everything here is guarded by the
 * registry lock, which is held unless it is said.
 */
#ifndef ARENA_STAGED_H
#define ARENA_STAGED_H

#include "arena/registry.h"
#include "arena/shadow.h"

/* A stream on which a shadow is being written, by a thread. */
struct writer {
	uint64_t stream, thread;
};

struct stage {
	struct shadow_set shadows;
	struct writer *writers; /* since the newest publication began */
	uint32_t writers_count, writers_cap;
	uint32_t putting; /* threads that are about to queue a write to a shadow */
};

struct order;

/* @brief A number for the calling thread. No lock. */
uint64_t stage_thread(void);
/* @brief @bytes more are in use by shadows; less, as it wraps. */
void stage_count(uint64_t bytes);
/* @return false: no memory. */
bool stage_add_writer(struct stage *g, const struct writer *w);
/* @brief @addr goes back to where it came from: a block, a tagged user, the device. Not held.
 * @param after what read it last, as in shadow_give(). */
void stage_give(struct arena *a, uint64_t addr, struct order *after);
/* @return ARENA_E_UNSAFE, with a message. */
int stage_fail_unsafe(const struct arena *a, int err);

#endif
