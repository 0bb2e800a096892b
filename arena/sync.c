/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host knows to be finished: tickets of streams and of recorded events.
 *
 * A table is an open-addressing hash with a fixed size: a key, once entered, stays, its ticket
 * only grows (a forgotten stream is one that is done with all it ever did; its handle may come
 * back). When a table is full it says so, and what it does not know counts as proven: doubt goes
 * to the application.
 *
 * Any thread; no lock.
 */
#include <stddef.h>

#include "arena/exec.h"
#include "arena/sync.h"

#define SLOTS  16384 /* handles that one process uses in its life, most are reused */
#define PROBES 64

struct slot {
	_Atomic uint64_t key; /* handle + 1, 0: unused */
	_Atomic uint64_t ticket;
};

struct table {
	struct slot slots[SLOTS];
	_Atomic bool full;
};

/* Untouched pages of these cost nothing. */
static struct table streams; /* newest synchronisation of the stream */
static struct table events;  /* when it was recorded, 0: not known */
static _Atomic uint64_t all_done;

_Atomic uint64_t sync_now;

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

void sync_stream_done(uint64_t stream, uint64_t ticket)
{
	struct slot *s = find(&streams, stream, true);

	if (s != NULL)
		raise_to(&s->ticket, ticket);
}

void sync_all_done(uint64_t ticket)
{
	raise_to(&all_done, ticket);
}

void sync_stream_forget(uint64_t stream)
{
	sync_stream_done(stream, sync_begin());
}

void sync_event_recorded(uint64_t event)
{
	struct slot *s = find(&events, event, true);

	/* Newest wins, as in the driver. Pairs with the load in sync_event_done(). */
	if (s != NULL)
		store_release(&s->ticket, sync_begin());
}

void sync_event_done(uint64_t event)
{
	struct slot *s = find(&events, event, false);

	if (s != NULL)
		/* Pairs with the store in sync_event_recorded(). */
		sync_all_done(load_acquire(&s->ticket));
	else if (load_relaxed(&events.full))
		sync_all_done(sync_begin());
}

void sync_event_forget(uint64_t event)
{
	struct slot *s = find(&events, event, false);

	if (s != NULL)
		store_relaxed(&s->ticket, 0);
}

bool sync_proven(uint64_t stream, uint64_t ticket)
{
	const struct slot *s;

	if (is_after(&all_done, ticket))
		return true;
	s = find(&streams, stream, false);
	return s != NULL ? is_after(&s->ticket, ticket) : load_relaxed(&streams.full);
}
