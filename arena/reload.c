/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reload as a transaction.
 *
 * The lock guards the state below and is never held while something is called out. What a
 * commit reads of the open reload - scope, snapshot - does not change before the last commit has
 * left, which end and abort wait for. A put is claimed as a commit is, so that what it stages or
 * writes is wholly before, in, or after a reload. struct layer_commit of a layer belongs to the
 * thread that commits it, and to the one that closes the reload.
 *
 * Threads: any. Lock order: this lock, and the registry lock, before the lock of manifest.c; the
 * registry lock is never taken under this one, because reload_open() and reload_id() are asked
 * under it.
 */
#include "arena/reload.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "arena/block.h"
#include "arena/born.h"
#include "arena/exec.h"
#include "arena/infer.h"
#include "arena/intern.h"
#include "arena/outcome.h"
#include "arena/slab.h"
#include "arena/stage.h"
#include "arena/tag.h"

bool reload_accepts_unproven;
const char *(*reload_gap)(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* opened, or the last one has left */
static enum { CLOSED, OPENING, OPEN, CLOSING } state;
static uint32_t committing, putting; /* threads that are at it now */
static struct reload current;	     /* the open one; its id is kept until the next begin */
/* Of the newest reload, if it found slots that are not what graphs were captured with; touched
 * only while a reload is being opened or closed. */
static struct arena_snapshot *kept;

/* Written under the lock, read without: nothing is ordered by them. */
static _Atomic bool is_open;
static _Atomic uint64_t shown_id, generation;
static _Atomic int last_verdict = -1; /* enum reload_verdict, -1: none yet */

bool reload_open(void)
{
	return load_relaxed(&is_open);
}

uint64_t reload_id(void)
{
	return load_relaxed(&shown_id);
}

uint64_t reload_generation(void)
{
	return load_relaxed(&generation);
}

bool reload_unsafe(void)
{
	/* Relaxed: whoever must not miss it is marked (guard.c). */
	return load_relaxed(&guard_unsafe);
}

bool reload_last(enum reload_verdict *verdict)
{
	int last = load_relaxed(&last_verdict);

	*verdict = last < 0 ? RELOAD_UNPROVEN : (enum reload_verdict)last;
	return last >= 0;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct arena *reload_next_arena(struct arena *a)
{
	registry_lock();
	a = a ? a->next : registry_first();
	registry_unlock();
	return a;
}

/* ---- begin ---- */

static int begin_claim(void)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	if (state != CLOSED)
		err = arena_fail(ARENA_E_BUSY,
				 "reload %" PRIu64 " is open, reloads do not nest: end or abort it",
				 current.id);
	if (!err) {
		current = (struct reload){ .id = current.id + 1 };
		state = OPENING;
		while (putting)
			pthread_cond_wait(&changed, &lock);
	}
	pthread_mutex_unlock(&lock);
	return err;
}

/* Nothing of an earlier reload counts in this one, but what was put then and is lost since. */
static void begin_reset(void)
{
	for (struct arena *a = reload_next_arena(NULL); a; a = reload_next_arena(a))
		stage_discard(a);
	registry_lock();
	for (struct arena *a = registry_first(); a; a = a->next) {
		a->committed = a->refused = a->received = false;
		for (struct slot *s = a->slots; s; s = s->next)
			s->touched = s->direct = s->restored = false;
	}
	registry_unlock();
	receipts_clear();
	caches_begin();
	stage_peak_reset();
	infer_begin();
}

int reload_begin(const struct arena_scope *scope, uint64_t *id)
{
	int err = begin_claim();

	if (err)
		return err;
	err = scope_copy(scope, &current.scope);
	if (!err && snapshot_take(kept, &current.before))
		err = arena_fail(ARENA_E_NOMEM, "reload: no host memory for the snapshot");
	if (err)
		scope_free(current.scope);
	else
		begin_reset();
	current.begin_ns = now_ns();
	pthread_mutex_lock(&lock);
	state = err ? CLOSED : OPEN;
	if (!err) {
		store_relaxed(&shown_id, current.id);
		store_relaxed(&is_open, true);
		block_watch(true);
		born_watch(true);
		*id = current.id;
	}
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return err;
}

/* Lock held. */
static int check_open(const char *what)
{
	if (state == OPEN)
		return 0;
	if (state == CLOSED)
		return arena_fail(ARENA_E_BUSY,
				  "%s: no reload is open: arena_reload_begin() comes first", what);
	return arena_fail(ARENA_E_BUSY, "%s: reload %" PRIu64 " is being %s", what, current.id,
			  state == OPENING ? "opened" : "closed");
}

int reload_receive(const char *key, uint64_t part, uint64_t bytes)
{
	struct arena *layer = scope_current();
	int err;

	pthread_mutex_lock(&lock);
	err = check_open("receive");
	if (!err)
		err = receipt_add(layer, key, part, bytes);
	if (!err && layer)
		layer->received = true;
	pthread_mutex_unlock(&lock);
	return err;
}

int reload_doubt(const char *why)
{
	int err;

	pthread_mutex_lock(&lock);
	err = check_open("doubt");
	if (!err && !current.doubt)
		current.doubt = interned(intern(why));
	pthread_mutex_unlock(&lock);
	return err;
}

int reload_wrote(uint64_t addr, uint64_t size_bytes)
{
	int err;

	pthread_mutex_lock(&lock);
	err = check_open("wrote");
	pthread_mutex_unlock(&lock);
	if (!err)
		born_written(addr, size_bytes, BORN_WRITTEN);
	return err;
}

/* ---- puts ---- */

int reload_enter_put(uint64_t *id)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	while (state == OPENING)
		pthread_cond_wait(&changed, &lock);
	if (state == CLOSING) {
		err = arena_fail(ARENA_E_BUSY,
				 "put: reload %" PRIu64 " is ending: put after it has ended",
				 current.id);
	} else {
		*id = state == OPEN ? current.id : 0;
		putting++;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

void reload_leave_put(void)
{
	pthread_mutex_lock(&lock);
	if (--putting == 0)
		pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* ---- commit ---- */

/* Lock held. */
static struct layer_commit *commit_of(struct arena *a)
{
	struct layer_commit *l = current.layers;

	while (l && l->arena != a)
		l = l->next;
	if (l)
		return l;
	l = pages_get(sizeof(*l));
	if (!l)
		return NULL;
	l->arena = a;
	l->next = current.layers;
	current.layers = l;
	return l;
}

/* Lock held. */
static int commit_check(const struct arena *a)
{
	const char *path = interned(a->path);
	int err = check_open("commit");

	if (err || scope_covers_layer(current.scope, path))
		return err;
	return arena_fail(ARENA_E_SCOPE,
			  "layer %s is outside the scope of reload %" PRIu64
			  ": declare it at begin, or leave it alone",
			  path, current.id);
}

static int commit_enter(struct arena *a, struct layer_commit **out)
{
	struct layer_commit *l = NULL;
	int err;

	pthread_mutex_lock(&lock);
	err = commit_check(a);
	if (!err) {
		l = commit_of(a);
		if (!l)
			err = arena_fail(ARENA_E_NOMEM, "commit of layer %s: no host memory",
					 interned(a->path));
		else if (l->busy)
			err = arena_fail(
				ARENA_E_BUSY,
				"layer %s is being committed by another thread: wait for it",
				interned(a->path));
	}
	if (!err) {
		a->received |= receipts_arrived(a->path);
		l->busy = true;
		committing++;
		*out = l;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

static void commit_leave(struct layer_commit *l, uint64_t published_bytes)
{
	pthread_mutex_lock(&lock);
	l->busy = false;
	current.published_bytes += published_bytes;
	if (--committing == 0)
		pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

int reload_commit(struct arena *a, uint64_t stream)
{
	struct layer_commit *l;
	uint64_t published_bytes = 0;
	int err = commit_enter(a, &l);

	if (err)
		return err;
	err = commit_run(&current, l, stream, &published_bytes);
	commit_leave(l, published_bytes);
	return err;
}

/* ---- end and abort ---- */

/* Receipts that came outside of their layer; nothing arrives any more. */
static void close_receipts(void)
{
	registry_lock();
	for (struct arena *a = registry_first(); a; a = a->next)
		a->received |= receipts_arrived(a->path);
	registry_unlock();
}

static int close_claim(const char *what, uint64_t id)
{
	int err;

	pthread_mutex_lock(&lock);
	err = check_open(what);
	if (!err && id != current.id)
		err = arena_fail(ARENA_E_UNKNOWN, "reload %" PRIu64 " is not open: %" PRIu64 " is",
				 id, current.id);
	if (!err) {
		state = CLOSING; /* no commit and no put begins any more */
		while (committing || putting)
			pthread_cond_wait(&changed, &lock);
	}
	pthread_mutex_unlock(&lock);
	if (!err)
		close_receipts();
	return err;
}

/* Which layers nobody can vouch for: see arena.in_doubt. */
static void close_doubts(bool passed)
{
	registry_lock();
	for (struct arena *a = registry_first(); a; a = a->next) {
		if (passed && outcome_unrestored(a) == NULL)
			a->in_doubt = false;
		else if (!passed && reload_unsafe() && outcome_reached(a))
			a->in_doubt = true;
		if (!passed && reload_unsafe() && !outcome_restorable(a))
			receipts_doubt(a->path);
	}
	registry_unlock();
	if (passed)
		receipts_trust(scope_full(current.scope));
	else if (reload_unsafe())
		receipts_doubt(0);
}

static void close_release(const struct slot_findings *found)
{
	struct layer_commit *l;

	for (struct arena *a = reload_next_arena(NULL); a; a = reload_next_arena(a))
		stage_discard(a);
	while ((l = current.layers) != NULL) {
		current.layers = l->next;
		slot_findings_free(&l->found);
		pages_put(l, sizeof(*l));
	}
	stage_trim();
	snapshot_free(kept);
	kept = snapshot_keep(current.before, found) ? current.before : NULL;
	if (kept == NULL)
		snapshot_free(current.before);
	receipts_clear();
}

/* What a verdict entails for the process, and the end of the reload. */
static void close_finish(struct reload_outcome *out)
{
	bool passed = out->verdict == RELOAD_PASS ||
		      (out->verdict == RELOAD_UNPROVEN && reload_accepts_unproven);

	if (out->aborted)
		guard_set_unsafe(true);
	close_doubts(passed);
	if (!out->aborted) /* which refuses every launch */
		outcome_withhold(out, passed && scope_full(current.scope));
	if (passed) {
		add_relaxed(&generation, 1);
		if (scope_full(current.scope) && out->verdict == RELOAD_PASS)
			receipts_learn();
		if (scope_full(current.scope))
			guard_set_unsafe(false);
	}
	out->unsafe = reload_unsafe();
	out->generation = reload_generation();
	out->shadow_peak_bytes = stage_peak_bytes();
	out->scope = current.scope;
	close_release(&out->findings);
	out->end_ns = now_ns();
	pthread_mutex_lock(&lock);
	store_relaxed(&last_verdict, out->verdict);
	store_relaxed(&is_open, false);
	block_watch(false);
	born_watch(false);
	state = CLOSED;
	pthread_mutex_unlock(&lock);
}

int reload_end(uint64_t id, struct reload_outcome *out)
{
	int err = close_claim("end", id);

	if (err)
		return err;
	outcome_diagnose(&current, false, out);
	outcome_flush(reload_generation(), out);
	close_finish(out);
	return 0;
}

int reload_abort(uint64_t id, const char *why, struct reload_outcome *out)
{
	int err = close_claim("abort", id);

	if (err)
		return err;
	outcome_diagnose(&current, true, out);
	outcome_stale(out);
	out->why = interned(intern(why));
	out->verdict = RELOAD_FAIL;
	close_finish(out);
	return 0;
}
