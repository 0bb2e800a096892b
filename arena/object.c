/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects: made once, by one thread, and the ranges that it allocated meanwhile (object.h).
 *
 * A factory may run for long and ask for anything, so no lock is held while it runs. That it runs
 * is noted in a list that lives on the stacks of the makers; who wants the same object waits for
 * the list to change.
 *
 * Recordings nest: a factory that makes another object is the inner recording's while that one
 * runs, so each range belongs to the innermost object. What was recorded and is dead when the
 * factory returns was its scratch and is left out.
 *
 * Threads: any. Lock order: makers_lock, then the registry lock.
 */
#include "arena/object.h"

#include <inttypes.h>
#include <pthread.h>

#include "arena/binding.h"
#include "arena/intern.h"
#include "arena/ledger.h"
#include "arena/reload.h"
#include "arena/slab.h"
#include "arena/storage.h"

struct recorder {
	struct recorder *outer;
	struct range_mark *ranges;
	uint32_t count, cap;
	bool incomplete; /* no memory for one of them */
};
static _Thread_local struct recorder *recording __attribute__((tls_model("initial-exec")));

/* A factory that runs. */
struct maker {
	struct maker *next;
	const struct arena *arena;
	uint32_t name;
	pthread_t thread;
};
static pthread_mutex_t makers_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t makers_changed = PTHREAD_COND_INITIALIZER;
static struct maker *makers; /* guarded by makers_lock */
static uint64_t identities;  /* guarded by the registry lock */

/* ---- recording ---- */

static void note(const struct range *r)
{
	struct recorder *rec = recording;
	const struct range *owner = load_relaxed(&r->owner);

	/* A reservation is nothing to read from: its mappings come one by one. A chunk of an arena
	 * is no part of an object that has slots in it. */
	if (load_relaxed(&r->kind) == RANGE_RESERVED || r->scope == STORAGE_SCOPE)
		return;
	if (pages_grow(&rec->ranges, &rec->cap, rec->count + 1, sizeof(*rec->ranges)) != 0) {
		rec->incomplete = true;
		return;
	}
	rec->ranges[rec->count++] = (struct range_mark){
		.base = load_relaxed(&r->base),
		.size_bytes = load_relaxed(&r->size_bytes),
		.generation = load_relaxed(&owner->generation),
	};
}

static void record_begin(struct recorder *rec)
{
	rec->outer = recording;
	recording = rec;
	ledger_opened = note;
}

static void record_end(struct recorder *rec)
{
	uint32_t kept = 0;

	recording = rec->outer;
	ledger_opened = recording != NULL ? note : NULL;
	for (uint32_t i = 0; i < rec->count; i++) {
		const struct range_mark *m = &rec->ranges[i];
		struct range_view v;

		if (ledger_find(m->base, &v) && v.base == m->base && v.generation == m->generation)
			rec->ranges[kept++] = *m;
	}
	rec->count = kept;
}

static void record_discard(struct recorder *rec)
{
	pages_put(rec->ranges, rec->cap * sizeof(*rec->ranges));
}

/* ---- one maker at a time ---- */

static bool makes(const struct maker *m, const struct arena *a, uint32_t name)
{
	return m->arena == a && m->name == name;
}

/* Wait until nobody else makes what @self wants to make, then note that @self does. */
static int maker_enter(struct maker *self)
{
	const struct maker *m;

	pthread_mutex_lock(&makers_lock);
	for (;;) {
		for (m = makers; m != NULL && !makes(m, self->arena, self->name);)
			m = m->next;
		if (m == NULL || pthread_equal(m->thread, self->thread))
			break;
		pthread_cond_wait(&makers_changed, &makers_lock);
	}
	if (m == NULL) {
		self->next = makers;
		makers = self;
	}
	pthread_mutex_unlock(&makers_lock);
	if (m == NULL)
		return ARENA_OK;
	return arena_fail(ARENA_E_BUSY,
			  "object %s/%s: its factory asks for the object itself; "
			  "return it first",
			  interned(self->arena->path), interned(self->name));
}

static void maker_leave(struct maker *self)
{
	struct maker **at = &makers;

	pthread_mutex_lock(&makers_lock);
	while (*at != self)
		at = &(*at)->next;
	*at = self->next;
	pthread_cond_broadcast(&makers_changed);
	pthread_mutex_unlock(&makers_lock);
}

/* ---- slots ---- */

/* Is the object there? *err tells why it cannot be had at all. Registry lock held. */
static bool look(const struct object_request *q, void **object, int *err)
{
	const struct slot *s = slot_find(q->arena, q->name);

	*err = ARENA_OK;
	if (s == NULL)
		return false;
	if (s->kind != ARENA_OBJECT)
		*err = arena_fail(ARENA_E_SPEC, "slot %s/%s: not an object; use another name",
				  interned(q->arena->path), q->name);
	else if (s->type != intern(q->type))
		*err = arena_fail(ARENA_E_SPEC,
				  "object %s/%s: it is a %s, asked for as a %s; use another name",
				  interned(q->arena->path), q->name, interned(s->type), q->type);
	if (*err == ARENA_OK && s->base != 0)
		*object = (void *)(uintptr_t)s->base;
	return *err == ARENA_OK && s->base != 0;
}

/* Give the slot its new object, and the recording's ranges. Registry lock held. */
static int enter(const struct object_request *q, const void *object, struct recorder *rec)
{
	struct arena_spec spec = { .struct_bytes = sizeof(spec) };
	struct slot *s = slot_find(q->arena, q->name);
	struct range_mark *old;
	uint32_t old_cap;

	if (s == NULL) {
		s = slot_add(q->arena, q->name, ARENA_OBJECT, &spec);
		if (s == NULL)
			return arena_fail(ARENA_E_NOMEM, "object %s/%s: no host memory",
					  interned(q->arena->path), q->name);
		s->type = intern(q->type);
		s->first_reload = reload_open() ? reload_id() : 0;
	}
	old = s->ranges;
	old_cap = s->ranges_cap;
	s->ranges = rec->ranges;
	s->ranges_count = rec->count;
	s->ranges_cap = rec->cap;
	s->object = ++identities;
	s->touched = reload_open();
	binding_set(s, (uint64_t)(uintptr_t)object);
	pages_put(old, old_cap * sizeof(*old));
	return ARENA_OK;
}

/* Run the factory, and keep what it made. No lock held. */
static int make(const struct object_request *q, void **object)
{
	struct recorder rec = { 0 };
	void *made = NULL;
	int err;

	record_begin(&rec);
	err = q->make(q->ctx, &made);
	record_end(&rec);
	if (err == ARENA_OK && made == NULL)
		err = arena_fail(ARENA_E_INVALID,
				 "object %s/%s: its factory succeeded and set no "
				 "object",
				 interned(q->arena->path), q->name);
	else if (err == ARENA_OK && rec.incomplete)
		err = arena_fail(ARENA_E_NOMEM, "object %s/%s: no host memory for its ranges",
				 interned(q->arena->path), q->name);
	if (err == ARENA_OK) {
		registry_lock();
		err = enter(q, made, &rec);
		registry_unlock();
	}
	if (err != ARENA_OK)
		record_discard(&rec);
	else
		*object = made;
	return err;
}

static bool look_locked(const struct object_request *q, void **object, int *err)
{
	bool found;

	registry_lock();
	found = look(q, object, err);
	registry_unlock();
	return found;
}

int object_get(const struct object_request *q, void **object)
{
	struct maker self = {
		.arena = q->arena,
		.name = intern(q->name),
		.thread = pthread_self(),
	};
	int err;

	if (look_locked(q, object, &err) || err != ARENA_OK)
		return err;
	err = maker_enter(&self);
	if (err != ARENA_OK)
		return err;
	/* Somebody may have made it while this thread waited. */
	if (!look_locked(q, object, &err) && err == ARENA_OK)
		err = make(q, object);
	maker_leave(&self);
	return err;
}
