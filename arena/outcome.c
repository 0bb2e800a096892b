/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a reload came out: the model against the begin snapshot, and against what the layers'
 * commits said of it. Sets are compared, never counts.
 *
 * Threads: reload_verify() any; the rest the one thread that closes the reload.
 */
#include "arena/outcome.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "arena/intern.h"
#include "arena/slab.h"
#include "arena/tag.h"

int reload_verify(const struct reload *r, const struct arena *a, struct slot_findings *out)
{
	int err = snapshot_verify(r->before, a, out);

	if (!err)
		err = tag_verify(a, out);
	if (!err)
		err = manifest_verify(r->scope, a, out);
	slot_findings_normalise(out);
	return err;
}

static bool is_blocking(const struct slot_finding *f)
{
	switch (f->kind) {
	case FINDING_SOURCE_MISSING:
	case FINDING_SOURCE_UNEXPECTED:
	case FINDING_SOURCE_DUPLICATE:
	case FINDING_SOURCE_SHORT:
		return true;
	default:
		return f->severity == SEVERITY_ERROR;
	}
}

const struct slot_finding *findings_blocking(const struct slot_findings *f)
{
	for (uint32_t i = 0; i < f->count; i++)
		if (is_blocking(&f->list[i]))
			return &f->list[i];
	return NULL;
}

/* ---- layers that were not committed ---- */

static enum touched slot_touched(const struct slot *s)
{
	if (s->shadow)
		return TOUCHED_STAGED;
	/* What is no value has nothing to publish. */
	return s->touched && s->kind == ARENA_VALUE ? TOUCHED_VALUE : TOUCHED_NOT;
}

/* The slot that was touched most; NULL: none was. */
static const struct slot *most_touched(const struct arena *a)
{
	enum touched most = TOUCHED_NOT;
	const struct slot *found = NULL;

	for (const struct slot *s = a->slots; s; s = s->next)
		if (slot_touched(s) > most) {
			most = slot_touched(s);
			found = s;
		}
	return found;
}

enum touched reload_touched(const struct arena *a)
{
	const struct slot *s = most_touched(a);
	enum touched most = s ? slot_touched(s) : TOUCHED_NOT;

	return most < TOUCHED_VALUE && (a->committed || a->refused) ? TOUCHED_VALUE : most;
}

/*
 * What is to be said of a layer that the end finds like this: NULL, or the text and how bad it
 * is. Registry lock held.
 */
static const char *judge_layer(const struct reload *r, const struct arena *a, const struct slot *s,
			       enum severity *severity)
{
	bool covered = scope_covers_layer(r->scope, interned(a->path));
	enum touched most = s ? slot_touched(s) : TOUCHED_NOT;

	*severity = SEVERITY_ERROR;
	if (covered && a->in_doubt && !a->committed && scope_full(r->scope) && reload_unsafe())
		return "in doubt since an earlier reload failed, and not committed";
	if (most == TOUCHED_STAGED && covered)
		return "a value was staged, but the layer was not committed: it is discarded";
	*severity = SEVERITY_WARN;
	if (most == TOUCHED_STAGED)
		return "a value was staged outside the declared scope: it is discarded";
	if (a->committed || a->refused || !covered)
		return NULL;
	return most == TOUCHED_VALUE ? "a value was put, but the layer was not committed" : NULL;
}

/* Count it; of a reload that was not aborted, tell too. @return 0 or != 0: no memory. */
static int check_layer(const struct reload *r, struct arena *a, struct reload_outcome *out)
{
	struct slot_finding f = { .kind = FINDING_UNCOMMITTED };
	const char *wrong;

	registry_lock();
	f.slot = most_touched(a);
	wrong = judge_layer(r, a, f.slot, &f.severity);
	out->layers_refused += a->refused;
	out->layers_committed += a->committed && !a->refused;
	out->layers_open += wrong != NULL;
	registry_unlock();
	if (!wrong || out->aborted)
		return 0;
	f.path = a->path;
	f.name = f.slot ? f.slot->name : 0;
	f.detail = intern(wrong);
	return slot_findings_add(&out->findings, &f);
}

/* ---- the two views ---- */

int findings_append(struct slot_findings *to, const struct slot_findings *from)
{
	int err = 0;

	for (uint32_t i = 0; i < from->count && !err; i++)
		err = slot_findings_add(to, &from->list[i]);
	return err;
}

/* @return 0 or != 0: no memory. */
static int compare(const struct reload *r, struct reload_outcome *out)
{
	struct slot_findings model = { .list = NULL }, layers = { .list = NULL };
	int err = reload_verify(r, NULL, &model);

	for (const struct layer_commit *l = r->layers; l && !err; l = l->next)
		err = findings_append(&layers, &l->found);
	/* Judged apart: of two that say the same with different severity, one will be left. */
	if (findings_blocking(&model) || findings_blocking(&layers))
		out->verdict = RELOAD_FAIL;
	slot_findings_normalise(&layers);
	err |= slot_findings_minus(&layers, &model, &out->only_layers);
	err |= slot_findings_minus(&model, &layers, &out->only_model);
	err |= findings_append(&out->findings, &model);
	err |= findings_append(&out->findings, &layers);
	slot_findings_free(&model);
	slot_findings_free(&layers);
	return err;
}

static void judge(const struct reload *r, bool seen_all, struct reload_outcome *out)
{
	const char *gap;

	if (findings_blocking(&out->findings) || out->layers_refused)
		out->verdict = RELOAD_FAIL;
	if (out->verdict == RELOAD_FAIL)
		return;
	if (!seen_all) {
		out->verdict = RELOAD_UNPROVEN;
		out->why = "no host memory to compare everything";
	} else if (manifest_blind(r->scope)) {
		out->verdict = RELOAD_UNPROVEN;
		out->why = "the manifest says nothing about this scope";
	} else if (reload_gap && (gap = reload_gap()) != NULL) {
		out->verdict = RELOAD_UNPROVEN;
		out->why = gap;
	}
}

void outcome_diagnose(const struct reload *r, bool aborted, struct reload_outcome *out)
{
	int err;

	*out = (struct reload_outcome){ .id = r->id,
					.verdict = RELOAD_PASS,
					.why = "",
					.aborted = aborted,
					.published_bytes = r->published_bytes,
					.begin_ns = r->begin_ns };
	receipts_count(&out->receipts);
	err = compare(r, out);
	for (struct arena *a = reload_next_arena(NULL); a; a = reload_next_arena(a))
		err |= check_layer(r, a, out);
	slot_findings_normalise(&out->findings);
	judge(r, !err, out);
}

void outcome_flush(uint64_t generation, struct reload_outcome *out)
{
	bool failed = out->verdict == RELOAD_FAIL;

	/* A layer that was published has new values, however the others ended. */
	if (failed && !out->layers_committed)
		return;
	if (caches_flush(generation + !failed, &out->findings) && !failed) {
		out->verdict = RELOAD_UNPROVEN;
		out->why = "no host memory to tell which caches are stale";
	}
	slot_findings_normalise(&out->findings);
	if (findings_blocking(&out->findings))
		out->verdict = RELOAD_FAIL;
}

void reload_outcome_free(struct reload_outcome *o)
{
	slot_findings_free(&o->findings);
	slot_findings_free(&o->only_layers);
	slot_findings_free(&o->only_model);
	scope_free(o->scope);
}
