/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas by path, slots by name: who owns which device memory, under which contract.
 *
 * One lock, the registry lock, guards every arena and slot; no hot path takes it. Lock order:
 * registry lock, then the holders lock of ledger.h. No driver call under either: a function that
 * needs the device works in two steps and says so.
 *
 * Arenas and slots are never freed; pointers stay good.
 */
#ifndef ARENA_REGISTRY_H
#define ARENA_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "arena/arena.h"
#include "arena/finding.h"

struct slot {
	struct arena *arena;
	uint32_t name;			/* interned */
	uint32_t type;			/* interned type name of an object slot */
	enum arena_kind kind;
	struct arena_spec spec;		/* of the current binding */
	uint64_t base;			/* current storage, or the object handle; 0: none */
	uint64_t binding;		/* its number, never used twice; 0: bound to nothing */
	uint64_t object;		/* object slots: identity number, new for each make */
	uint64_t generation;		/* generation of the range that holds base, at bind time */
	uint32_t serial;		/* order of registration in the arena */
	uint64_t first_reload;		/* reload id in which it first appeared, 0: outside any */
	uint32_t leases;		/* tagged users of the storage that are alive (tag.h) */
	uint64_t shadow;		/* device address of what is staged; 0: nothing */
	bool tentative;			/* a value tag made it in a reload, and its layer was not
					 * committed since: if that reload failed it is as if
					 * it were not there, until it is served again (tag.h)
					 * or put */
	bool touched;			/* put or acquired in the open reload */
	bool direct;			/* and written at once, past the commit */
	bool restored;			/* and whole: published, or written at once */
	bool lost;			/* a put failed, or what was staged was dropped, in this
					 * reload or before it; until it is put again its layer is
					 * not published */
	uint32_t kept;			/* 1 + its mark in the snapshot of a reload that found it
					 * wrong (snapshot_keep()); 0: it was not wrong */
	struct range_mark *ranges;	/* object slots: what its factory allocated */
	uint32_t ranges_count, ranges_cap;
	struct binding *bindings;	/* current ones and those it has left, newest first;
					 * private to binding.c, guarded by the holders lock */
	struct slot *next;		/* slots of one arena, in order of registration */
};

struct binding;

/* A value that was put, in a reload, into a slot that could not be made: lost. */
struct missed {
	uint32_t name;			/* interned */
	struct missed *next;
};

/* @brief Has it no value, so that it may move while its old memory lives (design rule 5)? */
static inline bool slot_is_scratch(const struct slot *s)
{
	return s->kind == ARENA_SCRATCH ||
	       (s->kind == ARENA_BOUND && (s->spec.flags & ARENA_SPEC_SCRATCH));
}

/* A range that an object's factory allocated: it must still be the same memory. */
struct range_mark { uint64_t base, size_bytes, generation; };

struct arena {
	uint32_t path;			/* interned */
	struct slot *slots, *slots_tail;
	uint32_t slots_count;
	struct storage *storage;	/* storage.h */
	/* stage.h; NULL: nothing was ever staged. Set once, under the lock; read without. */
	struct stage *_Atomic stage;
	struct derivation *derivations;	/* derived.h, in order of declaration */
	struct missed *missed;		/* newest first */
	uint64_t changes;		/* of what slots are bound to; under the holders lock */
	bool committed;			/* in the open reload, whole or half */
	bool committing;		/* now: no value tag may be pushed (tag.h) */
	bool refused;			/* its newest commit ended with findings */
	bool received;			/* a source, in the open reload; guarded by reload.c */
	bool in_doubt;			/* half loaded, by a reload or put that failed */
	bool withheld;			/* its values are not what the newest reload was to give:
					 * graphs that refer to them are stale. Written and read
					 * under the holders lock */
	struct arena *next;		/* all arenas, in order of registration */
};

void registry_lock(void);
void registry_unlock(void);
/* The rest is called with the registry lock held unless it says otherwise. */
struct arena *registry_open(const char *path);		/* get or create; NULL: no memory */
struct arena *registry_first(void);
struct slot *slot_find(struct arena *a, const char *name);
struct slot *slot_add(struct arena *a, const char *name, enum arena_kind kind,
		      const struct arena_spec *spec);	/* NULL: no memory */
/* @brief A value is lost with the slot @name, which could not be made; until it is added. Without
 * memory it is forgotten. */
void slot_miss(struct arena *a, const char *name);
/* @brief Is @b acceptable where @a stands? (bytes, dtype, shape, strides, device, layout) */
bool spec_equal(const struct arena_spec *a, const struct arena_spec *b);
/* @brief "bytes=.. dtype=.. shape=[..] ..." into @buf, as snprintf(). */
size_t spec_text(const struct arena_spec *s, char *buf, size_t buf_bytes);
/* @brief Check a caller's spec and copy it into a full-size one. @return 0 or ARENA_E_INVALID with
 * a message. No lock needed. */
int spec_read(const struct arena_spec *in, struct arena_spec *out);

/* @brief Remember why, for arena_last_message() of this thread; returns @err. No lock needed. */
int arena_fail(enum arena_err err, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *arena_message(void);

#endif
