/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: keep publications and launches apart (order.h).
 *
 * Invariants: a publication is in the list from its begin until its fence is passed; every exec
 * that holds one of its ranges is marked MARK_ORDER meanwhile (whoever comes later is marked by
 * order_mark()). Marks go lazily: a marked launch that no publication concerns clears its own.
 * A launch waits only while it is not in the launcher, so a publisher that waits for launches
 * and a launch that waits for publishers never wait for each other.
 *
 * Threads: any. Guarded by the holders lock: the list, departed. State and pins are atomic.
 */
#include "arena/order.h"

#include <errno.h>
#include <time.h>

#include "arena/body.h"
#include "arena/registry.h"
#include "arena/slab.h"
#include "arena/sync.h"

#define LAUNCH_LIMIT_MS 10000 /* for a launch to come back from the driver */
#define POLL_NS		20000

enum order_state { ORDER_BEGUN, ORDER_QUEUED, ORDER_OVER };

struct order {
	struct order *next;
	uint64_t serial; /* never used twice, grows along the list */
	uint64_t stream;
	uint64_t fence; /* constant once queued */
	bool is_listed;
	_Atomic uint32_t state; /* enum order_state */
	_Atomic uint32_t pins;	/* the caller's, the list's, and whoever looks at the fence */
	struct range **owners;	/* that it writes; pinned */
	uint32_t owners_count, owners_cap;
};

/* A stream on which something may be running that has to come first. */
struct runner {
	uint64_t stream, context, ticket;
	bool is_gone;
};

struct runners {
	struct runner *list;
	uint32_t count, cap;
};

static struct slab orders = SLAB_INIT(struct order);
static struct order *first, **last = &first;
static uint64_t serial_last;
static struct runners departed;

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
}

/* ---- life ---- */

static void order_drop(struct order *o)
{
	if (o->fence)
		device.fence_free(o->fence);
	for (uint32_t i = 0; i < o->owners_count; i++)
		ledger_unpin(o->owners[i]);
	pages_put(o->owners, o->owners_cap * sizeof(*o->owners));
	slab_put(&orders, o);
}

void order_get(struct order *o)
{
	add_relaxed(&o->pins, 1);
}

void order_put(struct order *o)
{
	/* The last one sees what all others did. */
	if (o != NULL && sub_acq_rel(&o->pins, 1) == 1)
		order_drop(o);
}

/* @return false: no memory. */
static bool add_owner(struct order *o, uint64_t addr)
{
	struct range_view v;

	if (!ledger_find_inner(addr, &v))
		return true;
	/* Neighbours share a chunk; the rest of the list is short. */
	for (uint32_t i = o->owners_count; i > 0; i--)
		if (o->owners[i - 1] == v.owner)
			return true;
	if (pages_grow(&o->owners, &o->owners_cap, o->owners_count + 1, sizeof(*o->owners)))
		return false;
	if (ledger_pin(&v))
		o->owners[o->owners_count++] = v.owner;
	return true;
}

static struct order *order_new(const struct order_writes *w, uint64_t stream)
{
	struct order *o = slab_get(&orders);
	bool ok = true;

	if (o == NULL)
		return NULL;
	*o = (struct order){ .stream = stream };
	store_relaxed(&o->state, ORDER_BEGUN);
	store_relaxed(&o->pins, 1);
	for (uint32_t i = 0; ok && i < w->copies_count; i++)
		ok = add_owner(o, w->copies[i].dst);
	for (uint32_t i = 0; ok && i < w->zeros_count; i++)
		ok = add_owner(o, w->zeros[i].addr);
	if (ok)
		return o;
	order_put(o);
	return NULL;
}

/* ---- the list; holders lock held ---- */

static void enlist(struct order *o)
{
	o->serial = ++serial_last;
	o->is_listed = true;
	*last = o;
	last = &o->next;
	order_get(o);
	for (uint32_t i = 0; i < o->owners_count; i++) {
		const struct range *r = o->owners[i];
		uint32_t count = load_relaxed(&r->holders_count);

		/* Pairs with the acquire in guard_launch(). */
		for (uint32_t k = 0; k < count; k++)
			or_release(&r->holders[k].exec->mark, MARK_ORDER);
	}
}

/* @return false: somebody else did it. The list's pin is now the caller's. */
static bool unlist(struct order *o)
{
	struct order **at = &first;

	if (!o->is_listed)
		return false;
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	if (last == &o->next)
		last = at;
	o->is_listed = false;
	return true;
}

static bool concerns(const struct order *o, const struct exec *e)
{
	for (uint32_t i = 0; i < o->owners_count; i++)
		if (body_owner(e->body, o->owners[i]) != OWNER_NONE)
			return true;
	return false;
}

static bool overlap(const struct order *a, const struct order *b)
{
	for (uint32_t i = 0; i < a->owners_count; i++)
		for (uint32_t k = 0; k < b->owners_count; k++)
			if (a->owners[i] == b->owners[k])
				return true;
	return false;
}

void order_mark(struct exec *e)
{
	if (first != NULL)
		or_release(&e->mark, MARK_ORDER);
}

/* ---- publications, no lock held ---- */

static void retire(struct order *o)
{
	bool mine;

	ledger_holders_lock();
	mine = unlist(o);
	ledger_holders_unlock();
	if (mine)
		order_put(o);
}

bool order_done(struct order *o)
{
	/* Acquire pairs with the release in order_queued(): the fence is there. */
	uint32_t state = load_acquire(&o->state);

	if (state == ORDER_QUEUED && device.fence_done(o->fence)) {
		store_release(&o->state, ORDER_OVER);
		state = ORDER_OVER;
		retire(o);
	}
	return state == ORDER_OVER;
}

void order_follow(struct order *o, uint64_t stream)
{
	if (order_done(o) || device.wait(o->fence, stream) == 0)
		return;
	while (!order_done(o))
		nap();
}

/* The first publication after number @serial that is queued, and concerns @e or overlaps with @o
 * (NULL: either); pinned. */
static struct order *next_queued(uint64_t serial, const struct exec *e, const struct order *with)
{
	struct order *o;

	ledger_holders_lock();
	for (o = first; o != NULL; o = o->next)
		if (o->serial > serial && load_acquire(&o->state) == ORDER_QUEUED &&
		    (e == NULL || (load_relaxed(&e->handle) && concerns(o, e))) &&
		    (with == NULL || overlap(o, with)))
			break;
	if (o != NULL)
		order_get(o);
	ledger_holders_unlock();
	return o;
}

/* What is done goes. */
static void reap(void)
{
	struct order *o;

	for (uint64_t serial = 0; (o = next_queued(serial, NULL, NULL)) != NULL;) {
		serial = o->serial;
		order_done(o);
		order_put(o);
	}
}

/* @stream waits for earlier publications of what @with rewrites (NULL: of whatever). */
static void follow_queued(const struct order *with, uint64_t stream)
{
	struct order *o;

	for (uint64_t serial = 0; (o = next_queued(serial, NULL, with)) != NULL;) {
		serial = o->serial;
		order_follow(o, stream);
		order_put(o);
	}
}

void order_follow_all(uint64_t stream)
{
	follow_queued(NULL, stream);
}

/* ---- launches in flight ---- */

/* Holders lock held. @return false: no memory. */
static bool runners_add(struct runners *s, const struct runner *r)
{
	enum sync_state state = sync_certain(r->stream, r->ticket);
	bool is_gone = state == SYNC_GONE;

	if (state == SYNC_DONE)
		return true;
	for (uint32_t i = 0; i < s->count; i++) {
		struct runner *have = &s->list[i];

		if (have->is_gone != is_gone || have->context != r->context ||
		    (!is_gone && have->stream != r->stream))
			continue;
		if (have->ticket < r->ticket)
			*have = *r;
		have->is_gone = is_gone;
		return true;
	}
	if (pages_grow(&s->list, &s->cap, s->count + 1, sizeof(*s->list)))
		return false;
	s->list[s->count] = *r;
	s->list[s->count++].is_gone = is_gone;
	return true;
}

static struct runner runner_of(const struct exec *e)
{
	/* Relaxed: the launcher ordered the stamps, or the launch has begun after the mark. */
	return (struct runner){
		.stream = load_relaxed(&e->last_stream) - 1,
		.context = e->context,
		.ticket = load_relaxed(&e->last_ticket),
	};
}

static bool was_launched(const struct exec *e)
{
	return load_relaxed(&e->last_stream) != 0;
}

void order_departed(const struct exec *e)
{
	struct runner r = runner_of(e);
	uint32_t kept = 0;

	if (!was_launched(e))
		return;
	for (uint32_t i = 0; i < departed.count; i++)
		if (sync_certain(departed.list[i].stream, departed.list[i].ticket) != SYNC_DONE)
			departed.list[kept++] = departed.list[i];
	departed.count = kept;
	if (!runners_add(&departed, &r))
		counter_bump(&launcher_lost);
}

void order_context_gone(uint64_t context)
{
	uint32_t kept = 0;

	ledger_holders_lock();
	for (uint32_t i = 0; i < departed.count; i++)
		if (departed.list[i].context != context)
			departed.list[kept++] = departed.list[i];
	departed.count = kept;
	ledger_holders_unlock();
}

static bool collect(const struct order *o, struct runners *s)
{
	bool ok = true;

	ledger_holders_lock();
	for (uint32_t i = 0; i < o->owners_count; i++) {
		const struct range *r = o->owners[i];
		uint32_t count = load_relaxed(&r->holders_count);

		for (uint32_t k = 0; ok && k < count; k++) {
			struct runner runner = runner_of(r->holders[k].exec);

			if (was_launched(r->holders[k].exec))
				ok = runners_add(s, &runner);
		}
	}
	for (uint32_t i = 0; ok && i < departed.count; i++)
		ok = runners_add(s, &departed.list[i]);
	ledger_holders_unlock();
	return ok;
}

/* @stream waits for what @r stands for. @return 0 or -errno. */
static int follow_runner(const struct runner *r, uint64_t stream)
{
	uint64_t fence = 0;
	int err = -EINVAL;

	if (!r->is_gone)
		err = device.fence(r->stream, &fence);
	if (err != 0 && err != -EBUSY)
		err = device.fence_context(r->context, &fence);
	if (err == 0) {
		err = device.wait(fence, stream);
		device.fence_free(fence);
	}
	return err;
}

static int follow_launches(const struct order *o, uint64_t stream)
{
	struct runners s = { .list = NULL };
	int err = collect(o, &s) ? 0 : -ENOMEM;

	for (uint32_t i = 0; err == 0 && i < s.count; i++)
		if (s.list[i].is_gone || s.list[i].stream != stream)
			err = follow_runner(&s.list[i], stream);
	pages_put(s.list, s.cap * sizeof(*s.list));
	return err;
}

/* ---- begin and end ---- */

static int begin_failed(struct order *o, int err)
{
	order_abandon(o);
	if (err == -ENOMEM)
		return arena_fail(ARENA_E_NOMEM, "no host memory for a publication");
	if (err == -EBUSY)
		return arena_fail(ARENA_E_BUSY,
				  "a stream that a publication must wait for is being captured; "
				  "publish after the capture has ended");
	return arena_fail(ARENA_E_DEVICE,
			  "the driver does not let stream %#llx wait for the graphs in flight "
			  "(%d); nothing was published",
			  (unsigned long long)o->stream, err);
}

int order_begin(const struct order_writes *w, uint64_t stream, struct order **out)
{
	struct order *o = order_new(w, stream);
	int err;

	*out = NULL;
	if (o == NULL)
		return arena_fail(ARENA_E_NOMEM, "no host memory for a publication");
	reap();
	ledger_holders_lock();
	enlist(o);
	ledger_holders_unlock();
	if (!launcher_wait(MARK_ORDER, LAUNCH_LIMIT_MS)) {
		order_abandon(o);
		return arena_fail(ARENA_E_BUSY,
				  "a graph launch has not come back from the driver for %d s; "
				  "nothing was published",
				  LAUNCH_LIMIT_MS / 1000);
	}
	follow_queued(o, stream);
	err = follow_launches(o, stream);
	if (err)
		return begin_failed(o, err);
	*out = o;
	return ARENA_OK;
}

int order_queued(struct order *o)
{
	int err = device.fence(o->stream, &o->fence);

	if (err == 0) {
		/* Pairs with the acquires of state: the fence is there. */
		store_release(&o->state, ORDER_QUEUED);
		return 0;
	}
	o->fence = 0;
	err = device.synchronise(o->stream);
	store_release(&o->state, ORDER_OVER);
	retire(o);
	return err;
}

void order_abandon(struct order *o)
{
	store_release(&o->state, ORDER_OVER);
	retire(o);
	order_put(o);
}

/* ---- launches ---- */

/* A publication that has begun, concerns @e and is not queued; pinned. */
static struct order *find_begun(const struct exec *e)
{
	struct order *o;

	ledger_holders_lock();
	for (o = first; o != NULL; o = o->next)
		if (load_relaxed(&o->state) == ORDER_BEGUN && load_relaxed(&e->handle) &&
		    concerns(o, e))
			break;
	if (o != NULL)
		order_get(o);
	ledger_holders_unlock();
	return o;
}

static void unmark(struct exec *e)
{
	struct order *o;

	ledger_holders_lock();
	for (o = first; o != NULL; o = o->next)
		if (load_relaxed(&e->handle) && concerns(o, e))
			break;
	if (o == NULL)
		and_release(&e->mark, ~(uint32_t)MARK_ORDER);
	ledger_holders_unlock();
}

void order_launch(struct exec *e, uint64_t stream)
{
	struct order *o;

	while ((o = find_begun(e)) != NULL) {
		/* Outside, or the publisher would wait for us. */
		launcher_leave();
		while (load_acquire(&o->state) == ORDER_BEGUN)
			nap();
		order_put(o);
		launcher_enter(e);
	}
	/* Who begins from here on sees us in the launcher, and waits. */
	for (uint64_t serial = 0; (o = next_queued(serial, e, NULL)) != NULL;) {
		serial = o->serial;
		order_follow(o, stream);
		order_put(o);
	}
	unmark(e);
}
