/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences: the calls under one tag of one arena, pass by pass (tag.h).
 *
 * Invariants: a sequence is open in at most one thread, which has its mutex "life"; only that
 * thread counts calls and adds misfits, or who finds that it has ended. Misfits are numbered in the
 * order in which they happened, so that a snapshot knows which are older than it is.
 *
 * Threads: any. Everything is guarded by the registry lock.
 */
#include "arena/tag.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "arena/binding.h"
#include "arena/intern.h"
#include "arena/map.h"
#include "arena/reload.h"
#include "arena/ambient.h"
#include "arena/slab.h"

#define NAME_BYTES  200 /* of a tag; the slots' names are a little longer */
#define MISFITS_MAX 64	/* listed of one sequence */

static struct slab sequences = SLAB_INIT(struct tag_sequence);
static struct map by_name; /* key (path, name of the tag) */
static struct tag_sequence *all;
static uint64_t misfits_ever;

static const char *const call_names[TAG_CALLS] = { "allocations", "reservations",
						   "physical allocations" };

/* ---- push and pop ---- */

static uint64_t reload_now(void)
{
	return reload_open() ? reload_id() : 0;
}

static bool life_init(pthread_mutex_t *life)
{
	pthread_mutexattr_t robust;
	bool ok;

	if (pthread_mutexattr_init(&robust) != 0)
		return false;
	ok = pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST) == 0 &&
	     pthread_mutex_init(life, &robust) == 0;
	pthread_mutexattr_destroy(&robust);
	return ok;
}

static struct tag_sequence *sequence_of(struct arena *a, uint32_t name, enum arena_kind kind)
{
	uint64_t key = (uint64_t)a->path << 32 | name;
	struct tag_sequence *q = name != 0 ? map_get(&by_name, key) : NULL;

	if (q != NULL || name == 0)
		return q;
	q = slab_get(&sequences);
	if (q == NULL)
		return NULL;
	*q = (struct tag_sequence){ .arena = a, .name = name, .kind = kind, .all_next = all };
	if (!life_init(&q->life) || map_put(&by_name, key, q) != 0) {
		slab_put(&sequences, q);
		return NULL;
	}
	all = q;
	return q;
}

static const char *kind_word(enum arena_kind kind)
{
	return kind == ARENA_VALUE ? "value" : "scratch";
}

static bool has_calls(const uint32_t calls[TAG_CALLS])
{
	bool any = false;

	for (int c = 0; c < TAG_CALLS; c++)
		any |= calls[c] != 0;
	return any;
}

/* What the pass lacks, call by call. */
static void note_short(struct tag_sequence *q)
{
	for (int c = 0; c < TAG_CALLS; c++)
		if (q->next[c] < q->length[c])
			tag_misfit(q, &(struct tag_misfit){ .name = q->name },
				   "%" PRIu32 " %s, %" PRIu32 " in the first pass", q->next[c],
				   call_names[c], q->length[c]);
}

/* The pass is over. The calling thread has q->life. */
static void sequence_close(struct tag_sequence *q)
{
	if (has_calls(q->next))
		note_short(q);
	for (int c = 0; c < TAG_CALLS && !q->known; c++)
		if (q->next[c] > q->length[c]) {
			q->length[c] = q->next[c];
			q->taught = q->reload;
		}
	q->thread = 0;
	pthread_mutex_unlock(&q->life);
}

/* Pop the tag, if its thread has ended under it. */
static void sequence_reclaim(struct tag_sequence *q)
{
	if (q->thread == 0 || pthread_mutex_trylock(&q->life) != EOWNERDEAD)
		return;
	pthread_mutex_consistent(&q->life);
	if (has_calls(q->next))
		tag_misfit(q, &(struct tag_misfit){ .name = q->name },
			   "thread %" PRIu32 " ended before it popped the tag", q->thread);
	sequence_close(q);
}

/* A new pass of @q in this thread. */
static int sequence_open(struct tag_sequence *q, enum arena_kind kind)
{
	int err;

	sequence_reclaim(q);
	if (q->thread != 0)
		return arena_fail(ARENA_E_BUSY,
				  "tag %s of arena %s: thread %" PRIu32 " has it open; pop it "
				  "there, or use another name",
				  interned(q->name), interned(q->arena->path), q->thread);
	if (q->kind != kind)
		return arena_fail(ARENA_E_SPEC,
				  "tag %s of arena %s: %s, it was %s before; use another name",
				  interned(q->name), interned(q->arena->path), kind_word(kind),
				  kind_word(q->kind));
	if (kind == ARENA_VALUE && q->arena->committing)
		return arena_fail(ARENA_E_BUSY,
				  "tag %s of arena %s: its layer is being committed; push it after "
				  "the commit",
				  interned(q->name), interned(q->arena->path));
	err = ambient_push_tag(q);
	if (err)
		return err;
	pthread_mutex_trylock(&q->life); /* nobody has it */
	q->thread = (uint32_t)gettid();
	memset(q->next, 0, sizeof(q->next));
	return ARENA_OK;
}

int tag_push(const char *name, enum arena_kind kind)
{
	struct arena *a = scope_current();
	struct tag_sequence *q;
	int err;

	if (name == NULL || name[0] == '\0' || strnlen(name, NAME_BYTES) == NAME_BYTES)
		return arena_fail(ARENA_E_INVALID, "tag: its name is %s; 1 to %d bytes",
				  name == NULL ? "NULL"
				  : name[0]    ? "too long"
					       : "empty",
				  NAME_BYTES - 1);
	if (kind != ARENA_VALUE && kind != ARENA_SCRATCH)
		return arena_fail(ARENA_E_INVALID, "tag %s: kind %d; ARENA_VALUE or ARENA_SCRATCH",
				  name, (int)kind);
	if (a == NULL)
		return arena_fail(ARENA_E_BUSY,
				  "tag %s: the thread is in no arena; "
				  "arena_enter() one first",
				  name);
	registry_lock();
	q = sequence_of(a, intern(name), kind);
	err = q != NULL ? sequence_open(q, kind)
			: arena_fail(ARENA_E_NOMEM, "tag %s: no host memory", name);
	registry_unlock();
	return err;
}

int tag_pop(void)
{
	struct tag_sequence *q = ambient_pop_tag();

	if (q == NULL)
		return arena_fail(ARENA_E_BUSY, "tag: none is open in this thread; every pop needs "
						"a push");
	registry_lock();
	sequence_close(q);
	registry_unlock();
	return ARENA_OK;
}

/* ---- commits and snapshots ---- */

int tag_commit_begin(struct arena *a)
{
	int err = ARENA_OK;

	registry_lock();
	for (struct tag_sequence *q = all; q != NULL && err == ARENA_OK; q = q->all_next) {
		if (q->arena != a || q->kind != ARENA_VALUE)
			continue;
		sequence_reclaim(q);
		if (q->thread != 0)
			err = arena_fail(ARENA_E_BUSY,
					 "layer %s: value tag %s is open in thread %" PRIu32
					 "; pop it before the commit",
					 interned(a->path), interned(q->name), q->thread);
	}
	a->committing = err == ARENA_OK;
	registry_unlock();
	return err;
}

void tag_commit_end(struct arena *a, bool published)
{
	registry_lock();
	a->committing = false;
	for (struct tag_sequence *q = all; published && q != NULL; q = q->all_next)
		if (q->arena == a)
			q->taught = 0;
	for (struct slot *s = a->slots; published && s != NULL; s = s->next)
		s->tentative &= !s->touched;
	registry_unlock();
}

/* What passes have made counts from now on, or they were in vain. */
static void settle_slots(struct tag_sequence *q, bool count)
{
	char name[NAME_BYTES + 16];

	for (uint32_t i = 0; i < q->length[TAG_ALLOC]; i++) {
		struct slot *s;

		tag_slot_name(q, i, name, sizeof(name));
		s = slot_find(q->arena, name);
		if (s == NULL || !s->tentative)
			continue;
		s->tentative = !count;
		s->lost &= count;
	}
}

/* The length of @q is known from now on, unless it is from a reload that failed, or is not over. */
static void sequence_learn(struct tag_sequence *q)
{
	enum reload_verdict last;
	bool newest = q->taught != 0 && q->taught == reload_id(), vain;

	if (q->known || (newest && reload_open()))
		return;
	vain = newest && reload_last(&last) && last == RELOAD_FAIL;
	settle_slots(q, !vain);
	if (vain)
		memset(q->length, 0, sizeof(q->length));
	q->known = has_calls(q->length);
}

uint64_t tag_snapshot(void)
{
	for (struct tag_sequence *q = all; q != NULL; q = q->all_next) {
		sequence_reclaim(q);
		sequence_learn(q);
	}
	return misfits_ever;
}

/* ---- calls ---- */

uint32_t tag_count(struct tag_sequence *q, enum tag_call call)
{
	if (!has_calls(q->next))
		q->reload = reload_now();
	return q->next[call]++;
}

bool tag_strays(const struct tag_sequence *q)
{
	return q->kind == ARENA_VALUE && q->reload != reload_now();
}

bool tag_fits(const struct tag_sequence *q, enum tag_call call, uint32_t number)
{
	return !q->known || number < q->length[call];
}

void tag_slot_name(const struct tag_sequence *q, uint32_t number, char *buf, size_t buf_bytes)
{
	snprintf(buf, buf_bytes, "%s#%" PRIu32, interned(q->name), number);
}

struct slot *tag_slot_new(struct tag_sequence *q, const char *name, uint64_t bytes,
			  int32_t device_ordinal)
{
	struct arena_spec spec = {
		.struct_bytes = sizeof(spec),
		.device = device_ordinal,
		.bytes = bytes,
	};
	struct slot *s = slot_find(q->arena, name);

	if (s != NULL)
		return s;
	s = slot_add(q->arena, name, q->kind, &spec);
	if (s != NULL) {
		s->first_reload = reload_now();
		s->tentative = q->kind == ARENA_VALUE && s->first_reload != 0;
	}
	return s;
}

bool tag_slot_in_vain(const struct slot *s)
{
	return s->tentative && s->first_reload != reload_now() && s->shadow == 0;
}

bool tag_slot_renew(struct slot *s, uint64_t bytes, int32_t device_ordinal)
{
	uint64_t now = reload_now();

	if (!tag_slot_in_vain(s))
		return false;
	binding_clear(s);
	s->spec.bytes = bytes;
	s->spec.device = device_ordinal;
	s->first_reload = now;
	s->tentative = now != 0;
	return true;
}

/* Where @m goes: in the place of its like, a new one, or that of the oldest. NULL: no memory. */
static struct tag_misfit *misfit_place(struct tag_sequence *q, const struct tag_misfit *m)
{
	struct tag_misfit *oldest = q->misfits;

	for (uint32_t i = 0; i < q->misfits_count; i++) {
		struct tag_misfit *old = &q->misfits[i];

		if (old->name == m->name && old->detail == m->detail)
			return old;
		if (old->number < oldest->number)
			oldest = old;
	}
	if (q->misfits_count == MISFITS_MAX) {
		q->forgotten = oldest->number > q->forgotten ? oldest->number : q->forgotten;
		return oldest;
	}
	if (pages_grow(&q->misfits, &q->misfits_cap, q->misfits_count + 1, sizeof(*m)) != 0)
		return NULL;
	return &q->misfits[q->misfits_count++];
}

void tag_misfit(struct tag_sequence *q, const struct tag_misfit *what, const char *why, ...)
{
	struct tag_misfit m = *what, *place;
	char detail[200];
	va_list args;

	va_start(args, why);
	vsnprintf(detail, sizeof(detail), why, args);
	va_end(args);
	m.detail = intern(detail);
	m.number = ++misfits_ever;
	place = misfit_place(q, &m);
	if (place != NULL)
		*place = m;
	else
		q->forgotten = m.number;
}

/* ---- findings ---- */

static int append(const struct tag_sequence *q, const struct tag_misfit *m,
		  struct slot_findings *out)
{
	struct slot_finding f = {
		.kind = FINDING_TAG_SEQUENCE,
		.severity = q->kind == ARENA_VALUE ? SEVERITY_ERROR : SEVERITY_WARN,
		.slot = m->slot,
		.path = q->arena->path,
		.name = m->name,
		.detail = m->detail,
	};

	/* The slot is where it was: no places. */
	if (m->slot != NULL) {
		f.old_spec = f.new_spec = m->slot->spec;
		f.new_spec.bytes = m->bytes;
	}
	if (slot_findings_add(out, &f) != 0)
		return arena_fail(ARENA_E_NOMEM, "tag %s: no host memory for a finding",
				  interned(q->name));
	return ARENA_OK;
}

/* Those with a higher number than @since. */
static int append_newer(const struct tag_sequence *q, uint64_t since, struct slot_findings *out)
{
	struct tag_misfit more = { .name = q->name };
	int err = ARENA_OK;

	for (uint32_t i = 0; i < q->misfits_count && err == ARENA_OK; i++)
		if (q->misfits[i].number > since)
			err = append(q, &q->misfits[i], out);
	if (err || q->forgotten <= since)
		return err;
	more.detail = intern("more calls do not fit, those listed are the newest");
	return append(q, &more, out);
}

int tag_verify(const struct arena_snapshot *before, const struct arena *a,
	       struct slot_findings *out)
{
	uint64_t since = before != NULL ? snapshot_misfits(before) : 0;
	int err = ARENA_OK;

	registry_lock();
	for (struct tag_sequence *q = all; q != NULL && err == ARENA_OK; q = q->all_next) {
		if (a != NULL && q->arena != a)
			continue;
		sequence_reclaim(q);
		err = append_newer(q, since, out);
	}
	registry_unlock();
	return err;
}
