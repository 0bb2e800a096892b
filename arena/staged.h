/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is staged in one arena; private to stage.c, publish.c and derived.c. Everything here is
 * guarded by the registry lock, which is held unless it is said.
 */
#ifndef ARENA_STAGED_H
#define ARENA_STAGED_H

#include "arena/registry.h"
#include "arena/shadow.h"
#include "arena/sync.h"

/* A stream on which a shadow is being written, by a thread. */
struct writer {
	uint64_t stream, thread;
	uint64_t ticket;  /* of sync.h: has the stream been destroyed since? */
	uint64_t context; /* in which the thread worked; 0: not known */
};

struct stage {
	struct shadow_set shadows;
	struct writer *writers; /* since the newest publication began */
	uint32_t writers_count, writers_cap;
	uint32_t putting; /* threads that are about to queue a write to a shadow */
};

/*
 * What a publication, or a discard, took from the slots of one arena. It belongs to one thread; no
 * lock.
 */
struct batch {
	struct arena *arena;
	struct slot **slots; /* with shadows */
	struct device_copy *ops;
	struct device_span *zeros; /* scratch that is zeroed with them */
	uint32_t count, zeros_count, cap;
	struct writer *writers;
	uint32_t writers_count, writers_cap;
	uint64_t *temps; /* results of derivations that are only compared; as shadows */
	uint32_t temps_count, temps_cap;
	uint64_t temps_bytes;
	struct slot *first; /* of any */
	bool mixed;	    /* slots of two devices */
	bool lost;	    /* it is a discard */
};

struct order;

/* @brief @s is published, too. */
static inline void batch_joins(struct batch *b, struct slot *s)
{
	if (b->first == NULL)
		b->first = s;
	b->mixed |= s->spec.device != b->first->spec.device;
}

/* @brief The stage of @a, made if there is none. @return NULL: no memory. */
struct stage *stage_of(struct arena *a);
/* @brief A number for the calling thread. No lock. */
uint64_t stage_thread(void);
/* @brief @bytes more are in use by shadows; less, as it wraps. */
void stage_count(uint64_t bytes);
/* @brief May @w still be writing, and can its stream be asked? No lock. */
enum sync_state stage_writer_state(const struct writer *w);
/* @return false: no memory. */
bool stage_add_writer(struct stage *g, const struct writer *w);
/* @brief @addr goes back to where it came from: a block, a tagged user, the device. Not held.
 * @param after what read it last, as in shadow_give(). */
void stage_give(struct arena *a, uint64_t addr, struct order *after);
/* @return ARENA_E_UNSAFE, with a message. */
int stage_fail_unsafe(const struct arena *a, int err);

#endif
