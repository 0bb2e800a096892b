/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host knows to be finished: tickets of streams and of recorded events (sync.h).
 *
 * A table is an open-addressing hash with a fixed size: a key, once entered, stays, its ticket
 * only grows (a forgotten stream is one that is done with all it ever did; its handle may come
 * back). When a table is full it says so, and what it does not know counts as proven: doubt goes
 * to the application.
 *
 * Any thread; no lock.
 */
#include <stddef.h>

#include "arena/sync.h"
#include "arena/device.h"
#include "arena/exec.h"

#define SLOTS  16384 /* handles that one process uses in its life, most are reused */
#define PROBES 64

struct slot {
	_Atomic uint64_t key; /* handle + 1, 0: unused */
	/* Of a stream: its launches before this are done. Of an event: when it was recorded, 0:
	 * not known; the tuple with the two below is read by event_read(). */
	_Atomic uint64_t ticket;
	_Atomic uint64_t stream;  /* of an event: where it was recorded */
	_Atomic uint64_t awaited; /* newest ticket that was waited for on the way here */
	/* Of a stream: newest synchronisation proper, the newest destruction and the one before,
	 * and how far it was synchronised when it was destroyed. */
	_Atomic uint64_t synced, gone, gone_before, synced_at_gone;
	_Atomic uint64_t event; /* of a stream: recorded last, handle + 1, 0: none */
};

struct table {
	struct slot slots[SLOTS];
	_Atomic bool full;
};

/* Untouched pages of these cost nothing. */
static struct table streams, events;
static _Atomic uint64_t all_done;
static _Atomic uint64_t all_synced; /* by a synchronisation of the context */

_Atomic uint64_t sync_now;

/* Keys are never used twice: a thread's stream may still run when the thread is gone. */
static _Atomic uint64_t threads;
static _Thread_local uint64_t thread_key __attribute__((tls_model("initial-exec")));

static struct slot *find(struct table *t, uint64_t handle, bool make)
{
	uint64_t hash = (handle + 1) * 0x9e3779b97f4a7c15u;

	for (size_t i = 0; i < PROBES; i++) {
		struct slot *s = &t->slots[((hash >> 32) + i) % SLOTS];
		/* Keys order nothing: a ticket is valid by itself. */
		uint64_t key = load_relaxed(&s->key);

		if (key == 0 && make && cas_acq_rel(&s->key, &key, handle + 1))
			return s;
		if (key == handle + 1)
			return s;
		if (key == 0)
			return NULL;
	}
	if (make)
		store_relaxed(&t->full, true);
	return NULL;
}

/* Tickets only grow: two threads that report one stream keep the newer. */
static void raise_to(_Atomic uint64_t *ticket, uint64_t to)
{
	uint64_t have = load_relaxed(ticket);

	/* Pairs with the acquire in is_after(): what the synchroniser saw done is seen. */
	while (have < to && !cas_acq_rel(ticket, &have, to))
		;
}

static bool is_after(const _Atomic uint64_t *proof, uint64_t ticket)
{
	return load_acquire(proof) > ticket;
}

uint64_t sync_begin(void)
{
	/* Launches stamped before this have an older ticket, later ones this or a newer. */
	return add_acq_rel(&sync_now, 1) + 1;
}

uint64_t sync_thread_key(void)
{
	if (thread_key == 0)
		thread_key = SYNC_THREAD_BIT | (add_relaxed(&threads, 1) + 1);
	return thread_key;
}

static struct slot *find_stream(uint64_t stream, bool make)
{
	return find(&streams, sync_key(stream), make);
}

/* ---- streams ---- */

uint64_t sync_awaited(uint64_t stream)
{
	const struct slot *s = find_stream(stream, false);

	/* Relaxed: a wait that another thread queues meanwhile may count or not. */
	return s != NULL ? load_relaxed(&s->awaited) : 0;
}

void sync_stream_done(uint64_t stream, uint64_t ticket)
{
	struct slot *s = find_stream(stream, true);

	if (s == NULL)
		return;
	raise_to(&s->synced, ticket);
	raise_to(&s->ticket, ticket);
}

void sync_others_done(uint64_t awaited)
{
	raise_to(&all_done, awaited);
}

void sync_all_done(uint64_t ticket)
{
	raise_to(&all_synced, ticket);
	raise_to(&all_done, ticket);
}

void sync_stream_forget(uint64_t stream)
{
	struct slot *s = find_stream(stream, true);
	uint64_t ticket = sync_begin();

	if (s == NULL)
		return;
	/* The next one with this handle has recorded nothing, and waited for nothing. */
	store_relaxed(&s->event, 0);
	store_relaxed(&s->awaited, 0);
	store_relaxed(&s->synced_at_gone, load_relaxed(&s->synced));
	store_relaxed(&s->gone_before, load_relaxed(&s->gone));
	/* Pairs with the load in sync_certain(): the two above are its own. */
	raise_to(&s->gone, ticket);
	raise_to(&s->ticket, ticket);
}

/* ---- events ---- */

/* What an event stands for. */
struct record {
	uint64_t ticket, stream, awaited;
};

/* @return false: not known, or somebody is recording it at this moment. */
static bool event_read(const struct slot *s, struct record *r)
{
	/* Pairs with the stores in sync_event_recorded(). */
	r->ticket = load_acquire(&s->ticket);
	r->stream = load_relaxed(&s->stream);
	r->awaited = load_relaxed(&s->awaited);
	fence_acquire();
	return r->ticket != 0 && load_relaxed(&s->ticket) == r->ticket;
}

void sync_event_recorded(uint64_t event, uint64_t stream, uint64_t ticket)
{
	struct slot *s = find(&events, event, true), *on = find_stream(stream, true);

	if (s != NULL) {
		store_relaxed(&s->ticket, 0);
		/* Pairs with the fence in event_read(): no new half under the old ticket. */
		fence_release();
		store_relaxed(&s->stream, sync_key(stream));
		store_relaxed(&s->awaited, on != NULL ? load_relaxed(&on->awaited) : ticket);
		/* Newest wins, as in the driver. Pairs with the load in event_read(). */
		store_release(&s->ticket, ticket);
	}
	if (on != NULL)
		/* Pairs with the load in sync_event_after(). */
		store_release(&on->event, event + 1);
}

void sync_event_awaited(uint64_t event, uint64_t stream)
{
	const struct slot *s = find(&events, event, false);
	struct slot *on = find_stream(stream, true);
	struct record r;

	if (on == NULL)
		return;
	if (s == NULL && load_relaxed(&events.full))
		raise_to(&on->awaited, load_relaxed(&sync_now));
	if (s == NULL || !event_read(s, &r))
		return;
	/* A stream is behind its own work anyway. */
	if (r.stream != sync_key(stream))
		raise_to(&on->awaited, r.ticket);
	raise_to(&on->awaited, r.awaited);
}

void sync_event_done(uint64_t event)
{
	const struct slot *s = find(&events, event, false);
	struct slot *on;
	struct record r;

	if (s == NULL && load_relaxed(&events.full))
		raise_to(&all_done, sync_begin());
	if (s == NULL || !event_read(s, &r))
		return;
	on = find_stream(r.stream, false);
	if (on != NULL)
		raise_to(&on->ticket, r.ticket);
	raise_to(&all_done, r.awaited);
}

void sync_event_forget(uint64_t event)
{
	struct slot *s = find(&events, event, false);

	if (s != NULL)
		store_relaxed(&s->ticket, 0);
}

uint64_t sync_event_after(uint64_t stream, uint64_t ticket)
{
	const struct slot *on = find_stream(stream, false), *s;
	uint64_t event;
	struct record r;

	/* Pairs with the store in sync_event_recorded(). */
	event = on != NULL ? load_acquire(&on->event) : 0;
	if (event == 0)
		return 0;
	s = find(&events, event - 1, false);
	if (s == NULL || !event_read(s, &r) || r.stream != sync_key(stream) || r.ticket <= ticket)
		return 0;
	return event - 1;
}

/* ---- questions ---- */

bool sync_proven(uint64_t stream, uint64_t ticket)
{
	const struct slot *s;

	if (is_after(&all_done, ticket))
		return true;
	s = find_stream(stream, false);
	return s != NULL ? is_after(&s->ticket, ticket) : load_relaxed(&streams.full);
}

enum sync_state sync_certain(uint64_t stream, uint64_t ticket)
{
	const struct slot *s;

	if (is_after(&all_synced, ticket))
		return SYNC_DONE;
	if (stream <= device.shared_streams || stream & SYNC_THREAD_BIT)
		return SYNC_GONE;
	s = find_stream(stream, false);
	if (s == NULL) /* destroyed without a trace? Then asking it could be fatal. */
		return load_relaxed(&streams.full) ? SYNC_GONE : SYNC_QUEUED;
	/* A synchronisation since then is that of another stream with its handle. */
	if (is_after(&s->gone, ticket))
		return is_after(&s->synced_at_gone, ticket) && !is_after(&s->gone_before, ticket)
			       ? SYNC_DONE
			       : SYNC_GONE;
	return is_after(&s->synced, ticket) ? SYNC_DONE : SYNC_QUEUED;
}
