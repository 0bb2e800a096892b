/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Object slots: an opaque handle, made once by a factory, with every range that the thread
 * allocated while the factory ran and that is alive when it returns. snapshot.h compares those
 * ranges later, so that a reallocation inside somebody else's object is seen.
 *
 * Threads: any. Two threads that want the same slot get the same object: one makes it, the other
 * waits. Where factories would wait for each other, the one that asks last is told so instead.
 */
#ifndef ARENA_OBJECT_H
#define ARENA_OBJECT_H

#include "arena/registry.h"

struct object_request {
	struct arena *arena;
	const char *name, *type;	/* neither NULL nor empty */
	arena_factory_fn make;
	void *ctx;			/* of @make */
};

/*
 * @brief The object of a slot; made by @make when there is none (never, or unbound).
 *
 * No lock is held while @make runs. It may use slots, tags and other objects, and has to return.
 * @param object out, written on success only.
 * @return 0; ARENA_E_INVALID (the factory set no object), ARENA_E_SPEC (the slot is of another kind
 * or type; nothing changed), ARENA_E_BUSY (a factory asks for the object that it makes, or for one
 * whose factory waits, over however many threads, for what it makes), ARENA_E_NOMEM; else what
 * @make returned, and the slot is as it was.
 */
int object_get(const struct object_request *q, void **object);

#endif
