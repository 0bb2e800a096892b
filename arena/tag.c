/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences: the calls under one tag of one arena, pass by pass (tag.h).
 *
 * Invariants: a sequence is open in at most one thread; only that thread counts calls and adds
 * misfits; both stay until the next pass, for tag_verify(). The length is that of the first pass
 * that had a call, and stays.
 *
 * Threads: any. Everything is guarded by the registry lock.
 */
#include "arena/tag.h"

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
#define MISFITS_MAX 64	/* listed of one pass, the rest is counted */

static struct slab sequences = SLAB_INIT(struct tag_sequence);
static struct map by_name; /* key (path, name of the tag) */
static struct tag_sequence *all;

static const char *const call_names[TAG_CALLS] = { "allocations", "reservations",
						   "physical allocations" };

/* ---- push and pop ---- */

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
	if (map_put(&by_name, key, q) != 0) {
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

/* A new pass of @q in this thread. */
static int sequence_open(struct tag_sequence *q, enum arena_kind kind)
{
	int err;

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
	err = ambient_push_tag(q);
	if (err)
		return err;
	q->thread = (uint32_t)gettid();
	q->reload = reload_open() ? reload_id() : 0;
	memset(q->next, 0, sizeof(q->next));
	q->misfits_count = q->misfits_more = 0;
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

/* What the pass lacks, call by call. */
static void note_short(struct tag_sequence *q)
{
	for (int c = 0; c < TAG_CALLS; c++)
		if (q->next[c] < q->length[c])
			tag_misfit(q, &(struct tag_misfit){ .name = q->name },
				   "%" PRIu32 " %s, %" PRIu32 " in the first pass", q->next[c],
				   call_names[c], q->length[c]);
}

static void sequence_close(struct tag_sequence *q)
{
	bool any = false;

	for (int c = 0; c < TAG_CALLS; c++)
		any |= q->next[c] != 0;
	if (any && q->known)
		note_short(q);
	if (any && !q->known) {
		memcpy(q->length, q->next, sizeof(q->length));
		q->known = true;
	}
	q->thread = 0;
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

/* ---- calls ---- */

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
	if (s != NULL)
		s->first_reload = q->reload;
	return s;
}

void tag_misfit(struct tag_sequence *q, const struct tag_misfit *what, const char *why, ...)
{
	struct tag_misfit m = *what;
	char detail[200];
	va_list args;

	va_start(args, why);
	vsnprintf(detail, sizeof(detail), why, args);
	va_end(args);
	if (q->misfits_count == MISFITS_MAX ||
	    pages_grow(&q->misfits, &q->misfits_cap, q->misfits_count + 1, sizeof(m)) != 0) {
		q->misfits_more++;
		return;
	}
	m.detail = intern(detail);
	q->misfits[q->misfits_count++] = m;
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

static int append_all(const struct tag_sequence *q, struct slot_findings *out)
{
	char more[64];
	int err = ARENA_OK;

	for (uint32_t i = 0; i < q->misfits_count && err == ARENA_OK; i++)
		err = append(q, &q->misfits[i], out);
	if (err || q->misfits_more == 0)
		return err;
	snprintf(more, sizeof(more), "%" PRIu32 " more calls do not fit", q->misfits_more);
	return append(q, &(struct tag_misfit){ .name = q->name, .detail = intern(more) }, out);
}

int tag_verify(const struct arena *a, struct slot_findings *out)
{
	uint64_t reload = reload_open() ? reload_id() : 0;
	int err = ARENA_OK;

	registry_lock();
	for (const struct tag_sequence *q = all; q != NULL && err == ARENA_OK; q = q->all_next)
		if ((a == NULL || q->arena == a) && (reload == 0 || q->reload == reload))
			err = append_all(q, out);
	registry_unlock();
	return err;
}
