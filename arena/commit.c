/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit of one layer: verify identities and values, publish, verify again.
 *
 * A commit that fails before it has published leaves live values as they were, and may be tried
 * again; a finding refuses it and drops what was staged. What is dropped is lost, and as long as
 * it is not put again, commits of the layer are refused: half of it would be new. If the driver
 * gave up half way, or the layer is not found as it should be after the publication, the process is
 * unsafe.
 *
 * Threads: any, one a layer (reload.c); no lock held. What is read of the reload does not change
 * while a commit runs.
 */
#include <inttypes.h>
#include <stdio.h>

#include "arena/exec.h"
#include "arena/intern.h"
#include "arena/outcome.h"
#include "arena/stage.h"
#include "arena/tag.h"

static void commit_settle(struct arena *a, bool refused)
{
	registry_lock();
	a->refused = refused;
	a->committed |= !refused;
	registry_unlock();
	if (refused)
		stage_discard(a);
}

/* One that the open reload has put past the commit; NULL: none. */
static const struct slot *slot_direct(const struct arena *a)
{
	const struct slot *s;

	registry_lock();
	s = a->slots;
	while (s && !s->direct)
		s = s->next;
	registry_unlock();
	return s;
}

static int commit_refuse(struct layer_commit *l)
{
	const struct slot_finding *f = findings_blocking(&l->found);
	const struct slot *direct = slot_direct(l->arena);
	char text[512];

	commit_settle(l->arena, true);
	slot_finding_text(f, text, sizeof(text));
	if (direct)
		return arena_fail(ARENA_E_REFUSED,
				  "layer %s is not published, but slot %s was put directly and has "
				  "its new value: %s",
				  interned(l->arena->path), interned(direct->name), text);
	return arena_fail(ARENA_E_REFUSED,
			  "layer %s is not published, its live values stay as they were: %s",
			  interned(l->arena->path), text);
}

static int commit_broken(struct layer_commit *l, enum arena_err err, const char *why)
{
	char cause[512];
	struct slot_finding f = { .kind = FINDING_RELOAD_FAILED,
				  .severity = finding_severity(FINDING_RELOAD_FAILED),
				  .path = l->arena->path,
				  .detail = intern(why) };

	snprintf(cause, sizeof(cause), "%s", why);
	guard_set_unsafe(true);
	slot_findings_add(&l->found, &f); /* without memory the layer is refused all the same */
	commit_settle(l->arena, true);
	registry_lock();
	l->arena->committed = true; /* some of its live values are new */
	registry_unlock();
	return arena_fail(err,
			  "layer %s failed half way, the process is unsafe until a full reload "
			  "passes: %s",
			  interned(l->arena->path), cause);
}

/* Slots of @a that were to have a new value, and have none. @return 0 or != 0: no memory. */
static int tell_lost(const struct arena *a, struct slot_findings *out)
{
	struct slot_finding f = { .kind = FINDING_UNCOMMITTED,
				  .severity = SEVERITY_ERROR,
				  .path = a->path };
	uint32_t more;
	char text[128];
	int length;

	registry_lock();
	f.name = outcome_lost(a, &f.slot, &more);
	registry_unlock();
	if (!f.name)
		return 0;
	length = snprintf(text, sizeof(text),
			  "its newest put failed or was dropped: put it again before the commit");
	if (more)
		snprintf(text + length, sizeof(text) - (size_t)length, "; %" PRIu32 " more slots",
			 more);
	f.detail = intern(text);
	return slot_findings_add(out, &f);
}

/* Identity, sequences of tags, receipts, slots. On failure the findings are what they were. */
static int commit_verify(const struct reload *r, struct layer_commit *l)
{
	struct slot_findings found = { .list = NULL };

	if (reload_verify(r, l->arena, &found) || tell_lost(l->arena, &found)) {
		slot_findings_free(&found);
		return arena_fail(
			ARENA_E_NOMEM,
			"commit of layer %s: no host memory to verify it; nothing changed",
			interned(l->arena->path));
	}
	slot_findings_free(&l->found);
	l->found = found;
	return 0;
}

/* After the publication: is everything still where it was? */
static int commit_verify_again(const struct reload *r, struct layer_commit *l)
{
	struct slot_findings again = { .list = NULL };
	int err = snapshot_verify(r->before, l->arena, &again);
	char text[512] = "no host memory to verify it again";
	const struct slot_finding *f = findings_blocking(&again);

	if (f)
		slot_finding_text(f, text, sizeof(text));
	if (!err)
		err = findings_append(&l->found, &again);
	slot_findings_normalise(&l->found);
	slot_findings_free(&again);
	if (f || err)
		return commit_broken(l, f ? ARENA_E_REFUSED : ARENA_E_NOMEM, text);
	commit_settle(l->arena, false);
	return 0;
}

static int commit_closed(const struct reload *r, struct layer_commit *l, uint64_t stream,
			 uint64_t *published_bytes)
{
	int err = commit_verify(r, l);

	if (err)
		return err;
	if (findings_blocking(&l->found))
		return commit_refuse(l);
	err = stage_commit(l->arena, stream, &l->found, published_bytes);
	if (err == ARENA_E_REFUSED)
		return commit_refuse(l);
	if (err == ARENA_E_UNSAFE)
		return commit_broken(l, ARENA_E_UNSAFE, arena_message());
	if (err)
		return err;
	return commit_verify_again(r, l);
}

int commit_run(const struct reload *r, struct layer_commit *l, uint64_t stream,
	       uint64_t *published_bytes)
{
	int err = tag_commit_begin(l->arena);

	if (err)
		return err;
	err = commit_closed(r, l, stream, published_bytes);
	tag_commit_end(l->arena, !err);
	return err;
}
