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

#include "arena/binding.h"
#include "arena/born.h"
#include "arena/infer.h"
#include "arena/intern.h"
#include "arena/slab.h"
#include "arena/tag.h"

int reload_verify(const struct reload *r, const struct arena *a, struct slot_findings *out)
{
	int err = snapshot_verify(r->before, a, out);

	if (!err)
		err = born_verify(a, out);
	if (!err)
		err = tag_verify(r->before, a, out);
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

static bool is_staged(const struct slot *s)
{
	return s->shadow != 0;
}

static bool is_lost(const struct slot *s)
{
	return s->lost;
}

static bool is_direct(const struct slot *s)
{
	return s->direct;
}

static bool is_bound(const struct slot *s)
{
	return s->kind == ARENA_BOUND && !slot_is_scratch(s);
}

static bool is_value(const struct slot *s)
{
	return s->kind == ARENA_VALUE;
}

static bool is_put(const struct slot *s)
{
	return s->touched && s->kind == ARENA_VALUE;
}

static bool is_reached(const struct slot *s)
{
	return is_staged(s) || is_put(s) || (s->touched && is_bound(s));
}

static bool is_changed(const struct slot *s)
{
	/* What is loaded in place, nobody sees. */
	return s->direct || (is_bound(s) && (s->touched || s->arena->received));
}

static bool is_restorable(const struct slot *s)
{
	return s->base != 0 && (s->kind == ARENA_VALUE || is_bound(s));
}

/* A value of an earlier reload. */
static bool is_left(const struct slot *s)
{
	return s->kind == ARENA_VALUE && s->base != 0 && !s->touched && !s->tentative;
}

/* Does any graph refer to its memory? Registry lock held. */
static bool is_captured(const struct slot *s)
{
	struct exec_query q = { .old_execs = 0 };
	bool captured;

	ledger_holders_lock();
	captured = binding_extent(s, s->binding, &q.old) &&
		   (exec_answer(&q, 1) != 0 || q.old_execs != 0);
	ledger_holders_unlock();
	return captured;
}

/* Made by a pass that was in vain, and nobody reads it. */
static bool is_in_vain(const struct slot *s)
{
	return s->tentative && !s->touched && !is_captured(s);
}

/* See outcome_unrestored(); what has no storage is the verification's. */
static bool is_unrestored(const struct slot *s)
{
	if (!is_restorable(s) || is_in_vain(s))
		return false;
	if (s->kind == ARENA_BOUND)
		return !s->touched && !s->arena->received;
	if (s->lost)
		return true;
	return !s->restored && !(s->touched && s->first_reload == reload_id());
}

/* NULL: none is. */
static const struct slot *first_slot(const struct arena *a, bool (*is)(const struct slot *))
{
	const struct slot *s = a->slots;

	while (s && !is(s))
		s = s->next;
	return s;
}

bool outcome_reached(const struct arena *a)
{
	return a->committed || a->refused || a->received || first_slot(a, is_reached);
}

const struct slot *outcome_unrestored(const struct arena *a)
{
	return first_slot(a, is_unrestored);
}

bool outcome_restorable(const struct arena *a)
{
	return first_slot(a, is_restorable);
}

uint32_t outcome_lost(const struct arena *a, const struct slot **slot, uint32_t *more)
{
	uint32_t name = 0, count = 0;

	*slot = first_slot(a, is_lost);
	for (const struct slot *s = *slot; s; s = s->next)
		count += s->lost;
	for (const struct missed *m = a->missed; m; m = m->next, count++)
		name = m->name;
	*more = count ? count - 1 : 0;
	return *slot ? (*slot)->name : name;
}

/* ---- layers whose values are wrong ---- */

/* Only other values repair it: no capture, no binding. */
static bool is_of_values(const struct slot_finding *f)
{
	switch (f->kind) {
	case FINDING_ACCUMULATED:
	case FINDING_STALE_VALUE:
	case FINDING_UNCOMMITTED:
	case FINDING_SOURCE_MISSING:
	case FINDING_SOURCE_UNEXPECTED:
	case FINDING_SOURCE_DUPLICATE:
	case FINDING_SOURCE_SHORT:
		return is_blocking(f);
	default:
		return false;
	}
}

/* Registry lock held. */
static bool is_wrong(const struct arena *a, const struct slot_findings *found)
{
	for (uint32_t i = 0; i < found->count; i++)
		if (found->list[i].path == a->path && is_of_values(&found->list[i]))
			return true;
	return false;
}

void outcome_withhold(const struct reload_outcome *out, bool whole)
{
	bool any = false;

	registry_lock();
	ledger_holders_lock();
	for (struct arena *a = registry_first(); a; a = a->next) {
		/* Where nothing has changed, the model of before the reload is whole. */
		bool wrong = out->changed && is_wrong(a, &out->findings);

		if (wrong || whole || (outcome_reached(a) && !a->refused))
			a->withheld = wrong;
		any |= wrong;
	}
	/* Who captures later is judged then: exec_publish(). */
	if (any)
		exec_mark_all();
	ledger_holders_unlock();
	registry_unlock();
}

/* What is to be said of a layer as the end finds it. */
struct judgement {
	const struct slot *slot;
	uint32_t name; /* of a slot that could not be made */
	enum severity severity;
	const char *text; /* NULL: nothing */
};

/* Has this reload to repair what was lost before it? What only sources or a role were declared
 * for need not be of this layer. */
static bool is_due(const struct reload *r, const struct arena *a)
{
	return scope_full(r->scope) || r->scope->layers_count || outcome_reached(a);
}

/* Sources came, but no value. A commit may say that they were for what is bound. */
static bool is_unput(const struct arena *a)
{
	return a->received && !first_slot(a, is_put) && first_slot(a, is_value) &&
	       !(a->committed && first_slot(a, is_bound));
}

/* The same of a layer that is not complete, but not wrong either. */
static const char *judge_part(const struct reload *r, const struct arena *a, struct judgement *j)
{
	const struct slot *put = first_slot(a, is_put);

	j->severity = SEVERITY_WARN;
	j->slot = a->committed ? first_slot(a, is_left) : put;
	if (!put || !j->slot || (a->committed && !scope_full(r->scope)))
		return NULL;
	return a->committed ? "it keeps an earlier value, while others of its layer were put: put "
			      "it too, or declare what is reloaded"
			    : "a value was put, but the layer was not committed";
}

/* The first of these that holds. Registry lock held. */
static const char *judge_covered(const struct reload *r, const struct arena *a, struct judgement *j)
{
	uint32_t more;

	j->severity = SEVERITY_ERROR;
	if (a->in_doubt && scope_full(r->scope) && reload_unsafe() &&
	    (j->slot = outcome_unrestored(a)) != NULL)
		return j->slot->kind == ARENA_BOUND
			       ? "in doubt since an earlier reload failed: bind it again, or "
				 "receive the layer's sources"
			       : "in doubt since an earlier reload or put failed: put it again, "
				 "and commit";
	if ((j->slot = first_slot(a, is_staged)) != NULL)
		return "a value was staged, but the layer was not committed: it is discarded";
	if (a->refused) /* it has failed the reload, and said why */
		return NULL;
	if ((j->name = outcome_lost(a, &j->slot, &more)) != 0 && is_due(r, a))
		return "its newest put failed or was dropped: put it again, and commit";
	j->name = 0;
	j->slot = NULL;
	if (is_unput(a))
		return "sources were received, but nothing was put: put what they give, and commit";
	return judge_part(r, a, j);
}

/* The same outside the declared scope. */
static const char *judge_outside(const struct arena *a, struct judgement *j)
{
	j->severity = SEVERITY_ERROR;
	if ((j->slot = first_slot(a, is_direct)) != NULL)
		return "a value was put directly outside the declared scope: it cannot be taken "
		       "back; declare the layer, or stage";
	j->severity = SEVERITY_WARN;
	j->slot = first_slot(a, is_staged);
	return j->slot ? "a value was staged outside the declared scope: it is discarded" : NULL;
}

/* Count it; of a reload that was not aborted, tell too. @return 0 or != 0: no memory. */
static int check_layer(const struct reload *r, struct arena *a, struct reload_outcome *out)
{
	struct slot_finding f = { .kind = FINDING_UNCOMMITTED, .path = a->path };
	struct judgement j = { .slot = NULL };

	registry_lock();
	j.text = scope_covers_layer(r->scope, interned(a->path)) ? judge_covered(r, a, &j)
								 : judge_outside(a, &j);
	out->layers_refused += a->refused;
	out->layers_committed += a->committed && !a->refused;
	out->layers_open += j.text != NULL;
	out->changed |= a->committed || first_slot(a, is_changed);
	registry_unlock();
	if (!j.text || out->aborted)
		return 0;
	f.severity = j.severity;
	f.slot = j.slot;
	f.name = j.slot ? j.slot->name : j.name;
	f.detail = intern(j.text);
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

/* One that the scope lists, but that neither an arena nor the manifest has; NULL: none. */
static const char *unknown_layer(const struct arena_scope *scope)
{
	for (uint32_t i = 0; scope && i < scope->layers_count; i++) {
		struct arena_scope one = ARENA_SCOPE_INIT;
		struct arena *a = reload_next_arena(NULL);

		one.layers = &scope->layers[i];
		one.layers_count = 1;
		while (a && !scope_covers_layer(&one, interned(a->path)))
			a = reload_next_arena(a);
		if (!a && !manifest_demands(&one))
			return scope->layers[i];
	}
	return NULL;
}

static const char *why_unknown(const char *layer)
{
	char text[256];

	snprintf(text, sizeof(text), "the scope lists layer %.160s, which nothing belongs to",
		 layer);
	return interned(intern(text));
}

static void judge(const struct reload *r, bool seen_all, struct reload_outcome *out)
{
	const char *gap, *layer;

	if (findings_blocking(&out->findings) || out->layers_refused)
		out->verdict = RELOAD_FAIL;
	if (out->verdict == RELOAD_FAIL)
		return;
	if (!seen_all) {
		out->verdict = RELOAD_UNPROVEN;
		out->why = "no host memory to compare everything";
	} else if (r->doubt) {
		out->verdict = RELOAD_UNPROVEN;
		out->why = r->doubt;
	} else if (manifest_blind(r->scope)) {
		out->verdict = RELOAD_UNPROVEN;
		out->why = "the manifest says nothing about this scope";
	} else if ((layer = unknown_layer(r->scope)) != NULL) {
		out->verdict = RELOAD_UNPROVEN;
		out->why = why_unknown(layer);
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
	err |= infer_end(&out->findings);
	slot_findings_normalise(&out->findings);
	judge(r, !err, out);
}

void outcome_flush(uint64_t generation, struct reload_outcome *out)
{
	bool failed = out->verdict == RELOAD_FAIL;

	/* Live values may be new, however the reload ended. */
	if (failed && !out->changed)
		return;
	if (caches_flush(generation + !failed, &out->findings) && !failed) {
		out->verdict = RELOAD_UNPROVEN;
		out->why = "no host memory to tell which caches are stale";
	}
	slot_findings_normalise(&out->findings);
	if (findings_blocking(&out->findings))
		out->verdict = RELOAD_FAIL;
}

void outcome_stale(struct reload_outcome *out)
{
	/* The verdict is as bad as it gets already. */
	if (out->changed)
		caches_stale(&out->findings);
	slot_findings_normalise(&out->findings);
}

void reload_outcome_free(struct reload_outcome *o)
{
	slot_findings_free(&o->findings);
	slot_findings_free(&o->only_layers);
	slot_findings_free(&o->only_model);
	scope_free(o->scope);
}
