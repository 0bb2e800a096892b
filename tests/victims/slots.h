/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of victim.h for stories with arenas and slots, over the public C API. What the library
 * answers is printed, so that the runner can compare it:
 *   verify NAME CODE JSON     findings against a snapshot
 *   reload NAME CODE JSON     outcome of a reload's end or abort
 *   call NAME CODE MESSAGE    a call whose error the story is about
 *
 * Without the library every call is inert. A story over memory of its own (slot_bind) must then run
 * the same; one that lives on memory of an arena says arena_needed() first.
 */
#ifndef VICTIM_SLOTS_H
#define VICTIM_SLOTS_H

#include "arena/arena.h"

#include "victim.h"

/* A call that must succeed where the library is at work. */
#define AK(x) arena_check((x), #x, __FILE__, __LINE__)
void arena_check(int r, const char *what, const char *file, int line);
void arena_needed(void); /* skip the form where the library is not at work */
/* Print the outcome of a call that may fail; @return it. */
int told(const char *name, int r);

struct arena *layer(const char *path);
struct arena_spec spec_bytes(size_t bytes); /* ints, no shape */

/* ---- bound slots: memory of the story, watched ---- */
void slot_bind(struct arena *a, const char *name, CUdeviceptr p, size_t bytes);
void slot_unbind(struct arena *a, const char *name);

/* ---- owned slots ---- */
/* Stage (or write directly) @bytes at @src; @return the live address, printed as a range. */
CUdeviceptr slot_put(struct arena *a, const char *name, CUdeviceptr src, size_t bytes,
		     enum arena_publish how);
/* Stage N_INTS ints of @v from memory that is freed at once. */
CUdeviceptr slot_put_value(struct arena *a, const char *name, int v, enum arena_publish how);
CUdeviceptr slot_scratch(struct arena *a, const char *name, size_t bytes, enum arena_init init);
/* An object whose factory is @make(@ctx). */
void *slot_object(struct arena *a, const char *name, arena_factory_fn make, void *ctx);

/* ---- checks ---- */
struct arena_snapshot *snap(void);
void verify(const char *name, const struct arena_snapshot *s); /* print; @s stays */

/* ---- reloads ---- */
uint64_t reload_begin(const struct arena_scope *scope);
int reload_end(const char *name, uint64_t id);
void commit(struct arena *a); /* must succeed */
int reload_abort(const char *name, uint64_t id, const char *why);
struct arena_status status(void);

#endif
