/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: publish or drop everything that is staged in an arena (stage.h).
 *
 * A batch takes all shadows away from their slots at once, and waits for puts that are just being
 * queued; from then on they are its own. They go back to the slots when nothing was published.
 *
 * Threads: any. Slots and stages are guarded by the registry lock; no device call under it.
 */
#include <errno.h>
#include <time.h>

#include "arena/derived.h"
#include "arena/device.h"
#include "arena/intern.h"
#include "arena/order.h"
#include "arena/slab.h"
#include "arena/stage.h"
#include "arena/staged.h"

#define POLL_NS 20000 /* a put takes about as long */

/* ---- taking all shadows of an arena ---- */

static void batch_free(struct batch *b)
{
	pages_put(b->slots, b->cap * sizeof(*b->slots));
	pages_put(b->ops, b->cap * sizeof(*b->ops));
	pages_put(b->zeros, b->cap * sizeof(*b->zeros));
	pages_put(b->writers, b->writers_cap * sizeof(*b->writers));
	pages_put(b->temps, b->temps_cap * sizeof(*b->temps));
}

/* Registry lock held. @return false: no memory. */
static bool batch_room(struct batch *b, struct arena *a)
{
	b->arena = a;
	b->cap = a->slots_count ? a->slots_count : 1;
	b->slots = pages_get(b->cap * sizeof(*b->slots));
	b->ops = pages_get(b->cap * sizeof(*b->ops));
	b->zeros = pages_get(b->cap * sizeof(*b->zeros));
	return b->slots != NULL && b->ops != NULL && b->zeros != NULL;
}

/* Registry lock held. */
static void batch_take_zeros(struct batch *b, const struct arena *a)
{
	for (struct slot *s = a->slots; s != NULL; s = s->next) {
		if (s->kind != ARENA_SCRATCH || !(s->spec.flags & ARENA_SPEC_ZERO) || s->base == 0)
			continue;
		batch_joins(b, s);
		b->zeros[b->zeros_count++] = (struct device_span){ s->base, s->spec.bytes };
	}
}

/* @return false: no memory, nothing was taken. */
static bool batch_take(struct batch *b, struct arena *a)
{
	bool ok;

	registry_lock();
	/* A put that has chosen its shadow would write what is somebody else's by then. */
	while (load_relaxed(&a->stage) != NULL && load_relaxed(&a->stage)->putting != 0) {
		registry_unlock();
		nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
		registry_lock();
	}
	ok = batch_room(b, a);
	for (struct slot *s = a->slots; ok && s != NULL; s = s->next) {
		if (s->shadow == 0)
			continue;
		batch_joins(b, s);
		b->ops[b->count] = (struct device_copy){ s->base, s->shadow, s->spec.bytes };
		b->slots[b->count++] = s;
		s->shadow = 0;
		s->lost |= b->lost;
		stage_count(-s->spec.bytes);
	}
	if (ok && !b->lost)
		batch_take_zeros(b, a);
	if (ok && load_relaxed(&a->stage) != NULL) {
		struct stage *g = load_relaxed(&a->stage);

		b->writers = g->writers;
		b->writers_count = g->writers_count;
		b->writers_cap = g->writers_cap;
		g->writers = NULL;
		g->writers_count = g->writers_cap = 0;
	}
	registry_unlock();
	return ok;
}

/* On what the shadows are being written. Registry lock held. @return false: no memory. */
static bool restore_writers(struct batch *b)
{
	struct stage *g = load_relaxed(&b->arena->stage);
	bool ok = true;

	if (g == NULL || b->writers == NULL)
		return true;
	if (g->writers == NULL) {
		g->writers = b->writers;
		g->writers_count = b->writers_count;
		g->writers_cap = b->writers_cap;
		b->writers = NULL;
		b->writers_count = b->writers_cap = 0;
	}
	for (uint32_t i = 0; ok && i < b->writers_count; i++)
		ok = stage_add_writer(g, &b->writers[i]);
	return ok;
}

static void temps_give_back(struct batch *b, struct order *after)
{
	for (uint32_t i = 0; i < b->temps_count; i++)
		stage_give(b->arena, b->temps[i], after);
	b->temps_count = 0;
}

/* As if it had never been taken; a slot that was staged again meanwhile keeps the newer bytes. */
static void batch_restore(struct batch *b)
{
	bool ok;

	registry_lock();
	ok = restore_writers(b);
	for (uint32_t i = 0; i < b->count; i++) {
		struct slot *s = b->slots[i];

		if (s->shadow != 0)
			continue;
		s->lost |= !ok;
		if (!ok)
			continue;
		s->shadow = b->ops[i].src;
		b->ops[i].src = 0;
		stage_count(s->spec.bytes);
	}
	registry_unlock();
	for (uint32_t i = 0; i < b->count; i++)
		if (b->ops[i].src != 0)
			stage_give(b->arena, b->ops[i].src, NULL);
	temps_give_back(b, NULL);
}

/* What the live values are now; a slot that was staged again meanwhile is not lost. */
static void batch_settle(const struct batch *b, bool published)
{
	registry_lock();
	for (uint32_t i = 0; i < b->count; i++) {
		b->slots[i]->restored = published;
		b->slots[i]->lost |= !published && b->slots[i]->shadow == 0;
	}
	registry_unlock();
}

static void batch_give_back(struct batch *b, struct order *after)
{
	for (uint32_t i = 0; i < b->count; i++)
		stage_give(b->arena, b->ops[i].src, after);
	temps_give_back(b, after);
}

/* The same without memory for a batch. */
static void drop_each(struct arena *a)
{
	registry_lock();
	for (struct slot *s = a->slots; s != NULL; s = s->next) {
		uint64_t addr = s->shadow;
		bool had;

		registry_unlock();
		had = addr != 0 && stage_drop(s, addr);
		registry_lock();
		/* As in batch_settle(). */
		s->lost |= had && s->shadow == 0;
	}
	registry_unlock();
}

void stage_discard(struct arena *a)
{
	struct batch b = { .lost = true };

	if (batch_take(&b, a))
		batch_give_back(&b, NULL);
	else
		drop_each(a);
	batch_free(&b);
}

/* ---- publication ---- */

/* @stream waits for what @w has queued. @return 0 or -errno. */
static int follow_writer(const struct writer *w, uint64_t stream)
{
	enum sync_state state = stage_writer_state(w);
	bool mine = w->thread == stage_thread(), is_named = w->stream > device.shared_streams;
	uint64_t fence;
	int err;

	if (state == SYNC_DONE)
		return 0;
	if (state == SYNC_QUEUED && w->stream == stream && (mine || is_named))
		return 0;
	/* A stream that is gone, or another thread's of a shared name, can only be waited for with
	 * all others. */
	if (state == SYNC_QUEUED && (mine || is_named))
		err = device.fence(w->stream, &fence);
	else
		err = device.fence_context(w->context, &fence);
	if (err == 0) {
		err = device.wait(fence, stream);
		device.fence_free(fence);
	}
	return err;
}

/* @stream waits for what is still being written to the shadows. @return 0 or -errno. */
static int follow_writers(const struct batch *b, uint64_t stream)
{
	int err = 0;

	for (uint32_t i = 0; err == 0 && i < b->writers_count; i++)
		err = follow_writer(&b->writers[i], stream);
	return err;
}

static int fail_publish(const struct batch *b, int err, uint64_t stream)
{
	const char *path = interned(b->arena->path);

	if (err == -ENOMEM)
		return arena_fail(ARENA_E_NOMEM, "layer %s: no host memory to publish it", path);
	if (err == -EBUSY)
		return arena_fail(ARENA_E_BUSY,
				  "layer %s: stream %#llx, or one that wrote to it, is being "
				  "captured; publish outside of captures",
				  path, (unsigned long long)stream);
	return arena_fail(ARENA_E_DEVICE,
			  "layer %s: the driver refuses to write its %u slots on stream %#llx "
			  "(%d); nothing was published",
			  path, b->count + b->zeros_count, (unsigned long long)stream, err);
}

static int check_batch(const struct batch *b)
{
	if (b->mixed)
		return arena_fail(ARENA_E_SPEC,
				  "layer %s: it has staged slots on two devices; "
				  "use an arena for each",
				  interned(b->arena->path));
	for (uint32_t i = 0; i < b->count; i++)
		if (b->ops[i].dst == 0)
			return arena_fail(ARENA_E_SPEC,
					  "slot %s of %s: staged, but it has no storage",
					  interned(b->slots[i]->name), interned(b->arena->path));
	return ARENA_OK;
}

/* Zeroes first: while no value has been copied, a failure leaves the layer as it was.
 * @param any anything was queued. @return 0 or -errno; -EREMOTEIO: values are half copied. */
static int write_batch(const struct batch *b, uint64_t stream, bool *any)
{
	int err = follow_writers(b, stream);

	*any = false;
	if (err == 0 && b->zeros_count != 0) {
		err = device.zero(b->zeros, b->zeros_count, stream);
		*any = err == 0 || err == -EREMOTEIO;
		err = err == -EREMOTEIO ? -EIO : err;
	}
	if (err == 0 && b->count != 0) {
		err = device.copy(b->ops, b->count, stream);
		*any |= err == 0 || err == -EREMOTEIO;
	}
	return err;
}

/* @return 0, or an error; unless it is ARENA_E_UNSAFE no value was queued. */
static int publish(struct batch *b, uint64_t stream, struct order **out)
{
	const struct order_writes w = { b->ops, b->zeros, b->count, b->zeros_count };
	int err = check_batch(b), lost = 0;
	bool any;

	err = err ? err : order_begin(&w, stream, out);
	if (err)
		return err;
	err = write_batch(b, stream, &any);
	if (any) {
		/* Also when it failed: no launch may meet what is zeroed. */
		lost = order_queued(*out);
	} else {
		order_abandon(*out);
		*out = NULL;
	}
	if (err == -EREMOTEIO || lost)
		return stage_fail_unsafe(b->arena, err ? err : lost);
	return err ? fail_publish(b, err, stream) : ARENA_OK;
}

/* What follows from what was taken. @return 0, or an error: nothing may be published. */
static int derive(struct batch *b, uint64_t stream, struct slot_findings *found)
{
	int err;

	if (!derived_due(b->arena))
		return ARENA_OK;
	err = follow_writers(b, stream);
	if (err)
		return fail_publish(b, err, stream);
	/* Sources, and what is checked, may be live values. */
	order_follow_all(stream);
	return derived_run(b, stream, found);
}

/* @found NULL: without derivations. */
static int publish_all(struct batch *b, uint64_t stream, struct slot_findings *found)
{
	struct order *o = NULL;
	int err = found != NULL ? derive(b, stream, found) : ARENA_OK;

	if (!err && b->count + b->zeros_count != 0)
		err = publish(b, stream, &o);
	if (err == ARENA_OK || err == ARENA_E_UNSAFE) {
		batch_settle(b, err == ARENA_OK);
		batch_give_back(b, o);
	} else {
		batch_restore(b);
	}
	order_put(o);
	return err;
}

int stage_commit(struct arena *a, uint64_t stream, struct slot_findings *found, uint64_t *bytes)
{
	struct batch b = { .arena = NULL };
	int err;

	if (batch_take(&b, a))
		err = publish_all(&b, stream, found);
	else
		err = fail_publish(&b, -ENOMEM, stream);
	*bytes = 0;
	for (uint32_t i = 0; !err && i < b.count; i++)
		*bytes += b.ops[i].bytes;
	batch_free(&b);
	return err;
}

int stage_publish(struct arena *a, uint64_t stream)
{
	uint64_t bytes;

	return stage_commit(a, stream, NULL, &bytes);
}
