/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects: made once, by one thread, and the ranges that it allocated meanwhile (object.h).
 *
 * A factory may run for long and ask for anything, so no lock is held while it runs; its thread may
 * even end in it (pthread_exit(), cancellation), and nothing was made then. That it runs is noted
 * in a list that lives on the stacks of the makers; who wants the same object is noted in
 * another one, and waits for the first to change. A thread waits for one object at most, and each
 * object has one maker, so who waits for whom is a chain; who would close it to a ring does not
 * wait, and no ring is ever there.
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
#include "arena/block.h"
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

/* A factory that runs, or waits for another one to return. */
struct maker {
	struct maker *next;
	const struct arena *arena;
	uint32_t name;
	pthread_t thread;
};
static pthread_mutex_t makers_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t makers_changed = PTHREAD_COND_INITIALIZER;
static struct maker *makers, *waiters; /* guarded by makers_lock */
static uint64_t identities;	       /* guarded by the registry lock */

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
	block_watch(true);
}

static void record_end(struct recorder *rec)
{
	uint32_t kept = 0;

	block_watch(false);
	recording = rec->outer;
	ledger_opened = recording != NULL ? note : NULL;
	for (uint32_t i = 0; i < rec->count; i++) {
		const struct range_mark *m = &rec->ranges[i];

		if (ledger_lives(m->base, m->generation))
			rec->ranges[kept++] = *m;
	}
	rec->count = kept;
}

static void record_discard(struct recorder *rec)
{
	pages_put(rec->ranges, rec->cap * sizeof(*rec->ranges));
}

/* The thread ends inside the factory. */
static void record_left(void *rec)
{
	record_end(rec);
	record_discard(rec);
}

/* ---- one maker at a time ---- */

static void list_put(struct maker **list, struct maker *m)
{
	m->next = *list;
	*list = m;
}

static void list_remove(struct maker **list, const struct maker *m)
{
	while (*list != m)
		list = &(*list)->next;
	*list = m->next;
}

/* The one that makes what @wanted wants; NULL: nobody does. Lock held. */
static const struct maker *maker_of(const struct maker *wanted)
{
	const struct maker *m = makers;

	while (m != NULL && (m->arena != wanted->arena || m->name != wanted->name))
		m = m->next;
	return m;
}

/* What the thread of @m waits for; NULL: for nothing. Lock held. */
static const struct maker *waiter_of(const struct maker *m)
{
	const struct maker *w = waiters;

	while (w != NULL && !pthread_equal(w->thread, m->thread))
		w = w->next;
	return w;
}

/* If @self waited for @m: which factory of its own thread would have to return first? NULL: none.
 * Lock held. */
static const struct maker *ring_of(const struct maker *self, const struct maker *m)
{
	while (m != NULL && !pthread_equal(m->thread, self->thread)) {
		const struct maker *w = waiter_of(m);

		m = w != NULL ? maker_of(w) : NULL;
	}
	return m;
}

static int fail_ring(const struct maker *self, const struct maker *own)
{
	const char *path = interned(self->arena->path), *name = interned(self->name);

	if (own->arena == self->arena && own->name == self->name)
		return arena_fail(ARENA_E_BUSY,
				  "object %s/%s: its factory asks for the object itself; "
				  "return it first",
				  path, name);
	return arena_fail(ARENA_E_BUSY,
			  "object %s/%s: it is being made by a thread that waits for object %s/%s, "
			  "which asks for it; get one of them before the other is made",
			  path, name, interned(own->arena->path), interned(own->name));
}

/* Wait until nobody else makes what @self wants to make, then note that @self does. */
static int maker_enter(struct maker *self)
{
	const struct maker *m, *own = NULL;
	int cancel;

	/* What waits is in a list, and has the lock when it is woken. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&makers_lock);
	while ((m = maker_of(self)) != NULL && (own = ring_of(self, m)) == NULL) {
		list_put(&waiters, self);
		pthread_cond_wait(&makers_changed, &makers_lock);
		list_remove(&waiters, self);
	}
	if (m == NULL)
		list_put(&makers, self);
	pthread_mutex_unlock(&makers_lock);
	pthread_setcancelstate(cancel, NULL);
	/* Own factories run in this thread, up to its return. */
	return m == NULL ? ARENA_OK : fail_ring(self, own);
}

static void maker_leave(void *self)
{
	pthread_mutex_lock(&makers_lock);
	list_remove(&makers, self);
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
	pthread_cleanup_push(record_left, &rec);
	err = q->make(q->ctx, &made);
	pthread_cleanup_pop(0);
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
	pthread_cleanup_push(maker_leave, &self);
	/* Somebody may have made it while this thread waited. */
	if (!look_locked(q, object, &err) && err == ARENA_OK)
		err = make(q, object);
	pthread_cleanup_pop(1);
	return err;
}
