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

#include "arena/device.h"
#include "arena/intern.h"
#include "arena/order.h"
#include "arena/slab.h"
#include "arena/stage.h"
#include "arena/staged.h"

#define POLL_NS 20000 /* a put takes about as long */

/* What a publication, or a discard, took from the slots of one arena. */
struct batch {
	struct arena *arena;
	struct slot **slots;
	struct device_copy *ops;
	uint32_t count, cap;
	struct writer *writers;
	uint32_t writers_count, writers_cap;
	bool mixed; /* slots of two devices */
};

/* ---- taking all shadows of an arena ---- */

static void batch_free(struct batch *b)
{
	pages_put(b->slots, b->cap * sizeof(*b->slots));
	pages_put(b->ops, b->cap * sizeof(*b->ops));
	pages_put(b->writers, b->writers_cap * sizeof(*b->writers));
}

/* Registry lock held. @return false: no memory. */
static bool batch_room(struct batch *b, struct arena *a)
{
	b->arena = a;
	b->cap = a->slots_count ? a->slots_count : 1;
	b->slots = pages_get(b->cap * sizeof(*b->slots));
	b->ops = pages_get(b->cap * sizeof(*b->ops));
	return b->slots != NULL && b->ops != NULL;
}

/* @return false: no memory, nothing was taken. */
static bool batch_take(struct batch *b, struct arena *a)
{
	bool ok;

	registry_lock();
	/* A put that has chosen its shadow would write what is somebody else's by then. */
	while (a->stage != NULL && a->stage->putting != 0) {
		registry_unlock();
		nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
		registry_lock();
	}
	ok = batch_room(b, a);
	for (struct slot *s = a->slots; ok && s != NULL; s = s->next) {
		if (s->shadow == 0)
			continue;
		b->mixed |= b->count != 0 && s->spec.device != b->slots[0]->spec.device;
		b->ops[b->count] = (struct device_copy){ s->base, s->shadow, s->spec.bytes };
		b->slots[b->count++] = s;
		s->shadow = 0;
		stage_count(-s->spec.bytes);
	}
	if (ok && a->stage != NULL) {
		struct stage *g = a->stage;

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
	struct stage *g = b->arena->stage;
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

/* As if it had never been taken; a slot that was staged again meanwhile keeps the newer bytes. */
static void batch_restore(struct batch *b)
{
	bool ok;

	registry_lock();
	ok = restore_writers(b);
	for (uint32_t i = 0; ok && i < b->count; i++) {
		struct slot *s = b->slots[i];

		if (s->shadow != 0)
			continue;
		s->shadow = b->ops[i].src;
		b->ops[i].src = 0;
		stage_count(s->spec.bytes);
	}
	registry_unlock();
	for (uint32_t i = 0; i < b->count; i++)
		if (b->ops[i].src != 0)
			stage_give(b->arena, b->ops[i].src, NULL);
}

static void batch_give_back(struct batch *b, struct order *after)
{
	for (uint32_t i = 0; i < b->count; i++)
		stage_give(b->arena, b->ops[i].src, after);
}

/* The same without memory for a batch. */
static void drop_each(struct arena *a)
{
	struct slot *s;

	registry_lock();
	s = a->slots;
	registry_unlock();
	while (s != NULL) {
		stage_drop(s);
		registry_lock();
		s = s->next;
		registry_unlock();
	}
}

void stage_discard(struct arena *a)
{
	struct batch b = { .arena = NULL };

	if (batch_take(&b, a))
		batch_give_back(&b, NULL);
	else
		drop_each(a);
	batch_free(&b);
}

/* ---- publication ---- */

/* @stream waits for what is still being written to the shadows. @return 0 or -errno. */
static int follow_writers(const struct batch *b, uint64_t stream)
{
	int err = 0;

	for (uint32_t i = 0; err == 0 && i < b->writers_count; i++) {
		const struct writer *w = &b->writers[i];
		bool mine = w->thread == stage_thread();
		uint64_t fence;

		if (w->stream == stream && (mine || stream > device.shared_streams))
			continue;
		/* Another thread's stream of a shared name can only be waited for as a whole. */
		if (mine || w->stream > device.shared_streams)
			err = device.fence(w->stream, &fence);
		else
			err = device.fence_context(0, &fence);
		if (err == 0) {
			err = device.wait(fence, stream);
			device.fence_free(fence);
		}
	}
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
			  "layer %s: the driver refuses to copy its %u slots on stream %#llx (%d); "
			  "nothing was published",
			  path, b->count, (unsigned long long)stream, err);
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

/* @return 0, or an error; unless it is ARENA_E_UNSAFE nothing was queued. */
static int publish(struct batch *b, uint64_t stream, struct order **out)
{
	int err = check_batch(b);

	if (err)
		return err;
	err = order_begin(b->ops, b->count, stream, out);
	if (err)
		return err;
	err = follow_writers(b, stream);
	if (err == 0)
		err = device.copy(b->ops, b->count, stream);
	if (err == 0) {
		err = order_queued(*out);
		return err ? stage_fail_unsafe(b->arena, err) : ARENA_OK;
	}
	order_abandon(*out);
	*out = NULL;
	return err == -EREMOTEIO ? stage_fail_unsafe(b->arena, err) : fail_publish(b, err, stream);
}

int stage_publish(struct arena *a, uint64_t stream)
{
	struct batch b = { .arena = NULL };
	struct order *o = NULL;
	int err = ARENA_OK;

	if (!batch_take(&b, a)) {
		batch_free(&b);
		return fail_publish(&b, -ENOMEM, stream);
	}
	if (b.count != 0)
		err = publish(&b, stream, &o);
	if (err == ARENA_OK || err == ARENA_E_UNSAFE)
		batch_give_back(&b, o);
	else
		batch_restore(&b);
	order_put(o);
	batch_free(&b);
	return err;
}
