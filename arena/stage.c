/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: shadows of slots, and writes past them (stage.h). Taking all of an arena is in publish.c.
 *
 * Invariants: a shadow that slot.shadow names is complete, but for writes that are queued on
 * the streams which its arena's stage lists; the publication waits for those. It belongs to the
 * slot until a publication or a discard takes it away, under the registry lock; whoever took it
 * gives it back to where it came from: a block (shadow.h), a tagged user, the device.
 *
 * Threads: any. Guarded by the registry lock: shadows, stages, the counters. No device call under
 * it.
 */
#include "arena/stage.h"

#include <errno.h>

#include "arena/exec.h"
#include "arena/intern.h"
#include "arena/order.h"
#include "arena/slab.h"
#include "arena/staged.h"
#include "arena/sync.h"
#include "arena/tag.h"

static struct slab stages = SLAB_INIT(struct stage);
static uint64_t in_use_bytes, peak_bytes;

uint64_t stage_thread(void)
{
	/* Not an address, which the next thread may have: its default stream is another one. */
	return sync_thread_key();
}

void stage_count(uint64_t bytes)
{
	in_use_bytes += bytes;
	if (in_use_bytes > peak_bytes)
		peak_bytes = in_use_bytes;
}

static int fail_device(const struct slot *s, int err, uint64_t stream, const char *what)
{
	const char *path = interned(s->arena->path), *name = interned(s->name);

	if (err == -ENOMEM)
		return arena_fail(ARENA_E_NOMEM, "slot %s of %s: no host memory to %s", name, path,
				  what);
	if (err == -EBUSY)
		return arena_fail(ARENA_E_BUSY,
				  "slot %s of %s: stream %#llx is being captured; %s outside of "
				  "captures",
				  name, path, (unsigned long long)stream, what);
	return arena_fail(ARENA_E_DEVICE,
			  "slot %s of %s: the driver refuses to %s %llu bytes on stream %#llx (%d)",
			  name, path, what, (unsigned long long)s->spec.bytes,
			  (unsigned long long)stream, err);
}

int stage_fail_unsafe(const struct arena *a, int err)
{
	return arena_fail(ARENA_E_UNSAFE,
			  "layer %s: the driver gave up half way through its publication (%d); its "
			  "live values may be mixed: reload everything or restart",
			  interned(a->path), err);
}

static int check_bytes(const struct slot *s, uint64_t bytes)
{
	if (bytes <= s->spec.bytes)
		return ARENA_OK;
	return arena_fail(ARENA_E_INVALID, "slot %s of %s: %llu bytes put, it has %llu",
			  interned(s->name), interned(s->arena->path), (unsigned long long)bytes,
			  (unsigned long long)s->spec.bytes);
}

/* ---- shadows ---- */

struct stage *stage_of(struct arena *a)
{
	struct stage *g = load_relaxed(&a->stage);

	if (g == NULL && (g = slab_get(&stages)) != NULL) {
		*g = (struct stage){ .writers = NULL };
		/* Pairs with the load in stage_give(). */
		store_release(&a->stage, g);
	}
	return g;
}

enum sync_state stage_writer_state(const struct writer *w)
{
	/* The names of shared streams stay good. */
	if (w->stream <= device.shared_streams)
		return SYNC_QUEUED;
	return sync_certain(w->stream, w->ticket);
}

bool stage_add_writer(struct stage *g, const struct writer *w)
{
	for (uint32_t i = 0; i < g->writers_count; i++) {
		struct writer *have = &g->writers[i];

		/* A stream that is gone is another one than that which has its handle now. */
		if (have->stream != w->stream || have->thread != w->thread ||
		    have->context != w->context || stage_writer_state(have) == SYNC_GONE)
			continue;
		if (have->ticket < w->ticket)
			have->ticket = w->ticket;
		return true;
	}
	if (pages_grow(&g->writers, &g->writers_cap, g->writers_count + 1, sizeof(*w)))
		return false;
	g->writers[g->writers_count++] = *w;
	return true;
}

/* Before @w queues anything. @return the stage; NULL: no memory. */
static struct stage *note_writer(struct arena *a, const struct writer *w)
{
	struct stage *g;

	registry_lock();
	g = stage_of(a);
	if (g != NULL && !stage_add_writer(g, w))
		g = NULL;
	if (g != NULL)
		g->putting++;
	registry_unlock();
	return g;
}

/* What note_writer() announced to @g is queued, or has failed; NULL: it was not announced. */
static void put_done(struct slot *s, struct stage *g, struct writer *w, bool failed)
{
	registry_lock();
	if (g != NULL) {
		g->putting--;
		/* Only from now on a synchronisation proves it done. There is an entry. */
		w->ticket = load_relaxed(&sync_now);
		stage_add_writer(g, w);
	}
	s->lost = failed;
	registry_unlock();
}

void stage_give(struct arena *a, uint64_t addr, struct order *after)
{
	struct stage *g = load_acquire(&a->stage);

	if (g != NULL && shadow_give(&g->shadows, addr, after))
		return;
	if (!tag_keeps_shadow(addr))
		device.free(addr);
}

bool stage_drop(struct slot *s, uint64_t addr)
{
	bool mine;

	registry_lock();
	mine = s->shadow == addr;
	if (mine) {
		s->shadow = 0;
		stage_count(-s->spec.bytes);
	}
	registry_unlock();
	if (mine)
		stage_give(s->arena, addr, NULL);
	return mine;
}

/* The shadow of @s, made if there is none. @return 0 or -errno. */
static int shadow_of(struct slot *s, struct stage *g, uint64_t stream, uint64_t *addr)
{
	uint64_t fresh;
	int err;

	registry_lock();
	*addr = s->shadow;
	err = tag_check_put(s) ? -EALREADY : 0;
	registry_unlock();
	if (err || *addr != 0)
		return err;
	err = shadow_take(&g->shadows, s->spec.device, s->spec.bytes, stream, &fresh);
	if (err)
		return err;
	registry_lock();
	*addr = s->shadow;
	if (*addr == 0) {
		*addr = s->shadow = fresh;
		stage_count(s->spec.bytes);
	}
	err = tag_check_put(s) ? -EALREADY : 0;
	registry_unlock();
	if (*addr != fresh) /* another thread was faster; nothing was written to ours */
		stage_give(s->arena, fresh, NULL);
	return err;
}

static int zero(uint64_t addr, uint64_t bytes, uint64_t stream)
{
	return device.zero(&(struct device_span){ addr, bytes }, 1, stream);
}

/* @return 0 or -errno. */
static int write_shadow(const struct slot *s, uint64_t addr, uint64_t src, uint64_t bytes,
			uint64_t stream)
{
	int err = 0;

	if (bytes != 0)
		err = device.put(addr, src, bytes, stream);
	if (err == 0 && bytes < s->spec.bytes)
		err = zero(addr + bytes, s->spec.bytes - bytes, stream);
	return err;
}

int stage_put(struct slot *s, uint64_t src, uint64_t bytes, uint64_t stream)
{
	struct writer w = { stream, stage_thread(), load_relaxed(&sync_now),
			    device_place(s->spec.device).context };
	int err = check_bytes(s, bytes);
	struct stage *g;
	uint64_t addr;

	if (err)
		return err;
	g = note_writer(s->arena, &w);
	err = g == NULL ? -ENOMEM : shadow_of(s, g, stream, &addr);
	if (err == 0) {
		err = write_shadow(s, addr, src, bytes, stream);
		if (err)
			stage_drop(s, addr);
	}
	put_done(s, g, &w, err != 0 && err != -EALREADY);
	if (err == -EALREADY) /* a tag's; the message is there */
		return ARENA_E_BUSY;
	return err ? fail_device(s, err, stream, "stage") : ARENA_OK;
}

uint64_t stage_adopt(struct slot *s, uint64_t addr)
{
	uint64_t old = s->shadow;

	s->shadow = addr;
	s->lost = false;
	if (old == 0)
		stage_count(s->spec.bytes);
	return old;
}

void stage_give_back(struct arena *a, uint64_t addr)
{
	stage_give(a, addr, NULL);
}

/* ---- at once ---- */

/* Rewrite the live storage of @s: @bytes from @src, the rest zero. */
static int rewrite(struct slot *s, uint64_t src, uint64_t bytes, uint64_t stream)
{
	struct device_copy op;
	struct order *o;
	int err;

	registry_lock();
	op = (struct device_copy){ .dst = s->base, .src = src, .bytes = s->spec.bytes };
	registry_unlock();
	if (op.dst == 0)
		return arena_fail(ARENA_E_SPEC, "slot %s of %s: it has no storage",
				  interned(s->name), interned(s->arena->path));
	err = order_begin(&(struct order_writes){ .copies = &op, .copies_count = 1 }, stream, &o);
	if (err)
		return err;
	if (bytes != 0)
		err = device.put(op.dst, src, bytes, stream);
	if (err == 0 && bytes < op.bytes) {
		err = zero(op.dst + bytes, op.bytes - bytes, stream);
		if (err != 0 && bytes != 0)
			err = -EREMOTEIO;
	}
	if (err == 0) {
		err = order_queued(o);
		order_put(o);
		return err ? stage_fail_unsafe(s->arena, err) : ARENA_OK;
	}
	order_abandon(o);
	return err == -EREMOTEIO ? stage_fail_unsafe(s->arena, err)
				 : fail_device(s, err, stream, "write");
}

int stage_direct(struct slot *s, uint64_t src, uint64_t bytes, uint64_t stream)
{
	int err = check_bytes(s, bytes);

	return err ? err : rewrite(s, src, bytes, stream);
}

int stage_zero(struct slot *s, uint64_t stream)
{
	return rewrite(s, 0, 0, stream);
}

/* ---- contexts that are gone ---- */

void stage_lost(struct slot *s)
{
	s->shadow = 0;
	s->lost = true;
	stage_count(-s->spec.bytes);
}

/* Its shadows are lost, and nobody may ask for its streams. Registry lock held. */
static void context_gone(struct arena *a, uint64_t context, struct shadow_block **dead)
{
	struct stage *g = load_relaxed(&a->stage);
	uint32_t kept = 0;

	shadow_take_dead(&g->shadows, context, dead);
	for (struct slot *s = a->slots; s != NULL; s = s->next)
		if (s->shadow != 0 && shadow_is_dead(*dead, s->shadow))
			stage_lost(s);
	for (uint32_t i = 0; i < g->writers_count; i++)
		if (g->writers[i].context != context)
			g->writers[kept++] = g->writers[i];
	g->writers_count = kept;
}

void stage_context_gone(uint64_t context)
{
	struct shadow_block *dead = NULL;

	if (context == 0)
		return;
	registry_lock();
	for (struct arena *a = registry_first(); a != NULL; a = a->next)
		if (load_relaxed(&a->stage) != NULL)
			context_gone(a, context, &dead);
	shadow_take_dead(NULL, context, &dead);
	registry_unlock();
	shadow_bury(dead);
}

/* ---- memory ---- */

void stage_trim(void)
{
	shadow_trim();
}

uint64_t stage_peak_bytes(void)
{
	uint64_t bytes;

	registry_lock();
	bytes = peak_bytes;
	registry_unlock();
	return bytes;
}

void stage_peak_reset(void)
{
	registry_lock();
	peak_bytes = in_use_bytes;
	registry_unlock();
}
