/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the value of a put goes, and what the reload remembers of it (reload.h).
 *
 * Threads: any, inside a claim, so that the reload stays open, or none is, until the value is
 * where it goes. Marks of slots are guarded by the registry lock.
 */
#include "arena/exec.h"
#include "arena/intern.h"
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

/*
 * May a put write @s, which its caller found at @base? From here on it is a slot that was put: no
 * pass makes it anew (tag_slot_renew()), neither while this goes on nor after it.
 * @param staged out: its shadow.
 */
static int claim_slot(struct slot *s, uint64_t base, uint64_t *staged)
{
	int err;

	registry_lock();
	err = tag_check_put(s);
	if (!err && s->base != base && s->base != 0)
		err = arena_fail(ARENA_E_BUSY,
				 "slot %s of %s: it has got other storage meanwhile; put it again",
				 interned(s->name), interned(s->arena->path));
	s->tentative &= err != 0;
	*staged = s->shadow;
	registry_unlock();
	return err;
}

int reload_put(struct slot *s, uint64_t base, uint64_t src, bool direct, uint64_t stream)
{
	uint64_t staged;
	int err = claim_slot(s, base, &staged);

	if (err)
		return err;
	if (!direct && reload_open())
		return stage_put(s, src, s->spec.bytes, stream);
	err = stage_direct(s, src, s->spec.bytes, stream);
	note_direct(s, err);
	if (err == ARENA_E_UNSAFE)
		guard_set_unsafe(true);
	/* The newest value counts, not one that was staged before. */
	if (!err && staged != 0)
		stage_drop(s, staged);
	return err;
}
