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

#include "arena/intern.h"
#include "arena/launcher.h"
#include "arena/order.h"
#include "arena/slab.h"
#include "arena/staged.h"
#include "arena/tag.h"

static struct slab stages = SLAB_INIT(struct stage);
static uint64_t in_use_bytes, peak_bytes;

uint64_t stage_thread(void)
{
	return (uint64_t)(uintptr_t)&launcher_self;
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

/* Registry lock held. @return NULL: no memory. */
static struct stage *stage_of(struct arena *a)
{
	if (a->stage == NULL) {
		a->stage = slab_get(&stages);
		if (a->stage != NULL)
			*a->stage = (struct stage){ .writers = NULL };
	}
	return a->stage;
}

bool stage_add_writer(struct stage *g, const struct writer *w)
{
	for (uint32_t i = 0; i < g->writers_count; i++)
		if (g->writers[i].stream == w->stream && g->writers[i].thread == w->thread)
			return true;
	if (pages_grow(&g->writers, &g->writers_cap, g->writers_count + 1, sizeof(*w)))
		return false;
	g->writers[g->writers_count++] = *w;
	return true;
}

/* Before anything is queued on @stream. @return the stage; NULL: no memory. */
static struct stage *note_writer(struct arena *a, uint64_t stream)
{
	const struct writer w = { stream, stage_thread() };
	struct stage *g;

	registry_lock();
	g = stage_of(a);
	if (g != NULL && !stage_add_writer(g, &w))
		g = NULL;
	if (g != NULL)
		g->putting++;
	registry_unlock();
	return g;
}

/* What note_writer() announced is queued, or has failed. */
static void put_done(struct stage *g)
{
	registry_lock();
	g->putting--;
	registry_unlock();
}

void stage_give(struct arena *a, uint64_t addr, struct order *after)
{
	if (a->stage != NULL && shadow_give(&a->stage->shadows, addr, after))
		return;
	if (!tag_keeps_shadow(addr))
		device.free(addr);
}

/* Take the shadow of @s away if it is @addr. */
static void drop(struct slot *s, uint64_t addr)
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
}

void stage_drop(struct slot *s)
{
	uint64_t addr;

	registry_lock();
	addr = s->shadow;
	registry_unlock();
	if (addr != 0)
		drop(s, addr);
}

/* The shadow of @s, made if there is none. @return 0 or -errno. */
static int shadow_of(struct slot *s, struct stage *g, uint64_t stream, uint64_t *addr)
{
	uint64_t fresh;
	int err;

	registry_lock();
	*addr = s->shadow;
	registry_unlock();
	if (*addr != 0)
		return 0;
	err = shadow_take(&g->shadows, s->spec.device, s->spec.bytes, stream, &fresh);
	if (err)
		return err;
	registry_lock();
	*addr = s->shadow;
	if (*addr == 0) {
		*addr = s->shadow = fresh;
		stage_count(s->spec.bytes);
	}
	registry_unlock();
	if (*addr != fresh) /* another thread was faster; nothing was written to ours */
		stage_give(s->arena, fresh, NULL);
	return 0;
}

/* @return 0 or -errno. */
static int write_shadow(const struct slot *s, uint64_t addr, uint64_t src, uint64_t bytes,
			uint64_t stream)
{
	int err = 0;

	if (bytes != 0)
		err = device.put(addr, src, bytes, stream);
	if (err == 0 && bytes < s->spec.bytes)
		err = device.zero(addr + bytes, s->spec.bytes - bytes, stream);
	return err;
}

int stage_put(struct slot *s, uint64_t src, uint64_t bytes, uint64_t stream)
{
	int err = check_bytes(s, bytes);
	struct stage *g;
	uint64_t addr;

	if (err)
		return err;
	g = note_writer(s->arena, stream);
	if (g == NULL)
		return fail_device(s, -ENOMEM, stream, "stage");
	err = shadow_of(s, g, stream, &addr);
	if (err == 0) {
		err = write_shadow(s, addr, src, bytes, stream);
		if (err)
			drop(s, addr);
	}
	put_done(g);
	return err ? fail_device(s, err, stream, "stage") : ARENA_OK;
}

uint64_t stage_adopt(struct slot *s, uint64_t addr)
{
	uint64_t old = s->shadow;

	s->shadow = addr;
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
	err = order_begin(&op, 1, stream, &o);
	if (err)
		return err;
	if (bytes != 0)
		err = device.put(op.dst, src, bytes, stream);
	if (err == 0 && bytes < op.bytes) {
		err = device.zero(op.dst + bytes, op.bytes - bytes, stream);
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
