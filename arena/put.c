/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the value of a put goes, and what the reload remembers of it (reload.h).
 *
 * Threads: any, inside a claim, so that the reload stays open, or none is, until the value is
 * where it goes. Marks of slots are guarded by the registry lock.
 */
#include "arena/exec.h"
#include "arena/reload.h"
#include "arena/stage.h"
#include "arena/tag.h"

/* A write to the live storage of @s came to @err. */
static void note_direct(struct slot *s, int err)
{
	bool half = err == ARENA_E_UNSAFE;

	registry_lock();
	s->arena->in_doubt |= half;
	if (reload_open()) {
		s->direct |= err == ARENA_OK || half;
		s->restored = err == ARENA_OK || (s->restored && !half);
		s->lost = err != ARENA_OK;
	} else if (!err) {
		s->lost = false;
	}
	registry_unlock();
}

void reload_put_failed(struct arena *a, const char *name)
{
	struct slot *s;

	registry_lock();
	s = slot_find(a, name);
	/* No put can succeed in a slot of another kind, so none is waited for. */
	if (reload_open() && s != NULL)
		s->lost |= s->kind == ARENA_VALUE;
	else if (reload_open())
		slot_miss(a, name);
	registry_unlock();
}

int reload_put(struct slot *s, uint64_t src, bool direct, uint64_t stream)
{
	int err;

	if (!direct && reload_open())
		return stage_put(s, src, s->spec.bytes, stream);
	registry_lock();
	err = tag_check_put(s);
	registry_unlock();
	if (err)
		return err;
	err = stage_direct(s, src, s->spec.bytes, stream);
	note_direct(s, err);
	if (err == ARENA_E_UNSAFE)
		guard_set_unsafe(true);
	/* The newest value counts, not one that was staged before. */
	if (!err)
		stage_drop(s);
	return err;
}
