/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit of one layer: verify, publish, verify again.
 *
 * A commit that fails before it has published leaves live values as they were, and may be tried
 * again; a finding refuses it and drops what was staged. If the driver gave up half way, or the
 * layer is not found as it should be after the publication, the process is unsafe.
 *
 * Threads: any, one a layer (reload.c); no lock held. What is read of the reload does not change
 * while a commit runs.
 */
#include <stdio.h>

#include "arena/exec.h"
#include "arena/intern.h"
#include "arena/outcome.h"
#include "arena/stage.h"

static void commit_settle(struct arena *a, bool refused)
{
	registry_lock();
	a->refused = refused;
	a->committed |= !refused;
	registry_unlock();
	if (refused)
		stage_discard(a);
}

static int commit_refuse(struct layer_commit *l)
{
	const struct slot_finding *f = findings_blocking(&l->found);
	char text[512];

	commit_settle(l->arena, true);
	slot_finding_text(f, text, sizeof(text));
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
	return arena_fail(err,
			  "layer %s failed half way, the process is unsafe until a full reload "
			  "passes: %s",
			  interned(l->arena->path), cause);
}

static uint64_t staged_bytes(const struct arena *a)
{
	uint64_t bytes = 0;

	registry_lock();
	for (const struct slot *s = a->slots; s; s = s->next)
		bytes += s->shadow ? s->spec.bytes : 0;
	registry_unlock();
	return bytes;
}

/* Identity, sequences of tags, receipts. On failure the layer's findings are what they were. */
static int commit_verify(const struct reload *r, struct layer_commit *l)
{
	struct slot_findings found = { .list = NULL };

	if (reload_verify(r, l->arena, &found)) {
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

int commit_run(const struct reload *r, struct layer_commit *l, uint64_t stream,
	       uint64_t *published_bytes)
{
	int err = commit_verify(r, l);
	uint64_t bytes;

	if (err)
		return err;
	if (findings_blocking(&l->found))
		return commit_refuse(l);
	bytes = staged_bytes(l->arena);
	err = stage_publish(l->arena, stream);
	if (err == ARENA_E_UNSAFE)
		return commit_broken(l, ARENA_E_UNSAFE, arena_message());
	if (err)
		return err;
	*published_bytes = bytes;
	return commit_verify_again(r, l);
}
