/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: is what was given for a slot what its sources give, and if not, what is it? (derived.h)
 *
 * All results are compared by fingerprint, in one launch. Only what differs is looked at again: is
 * it the value of before, or that value times one of the others, as a scale is that was multiplied
 * in place?
 *
 * Threads: any; a run belongs to its thread. No lock held.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "arena/derived_run.h"
#include "arena/device.h"
#include "arena/intern.h"
#include "arena/slab.h"

/* A result to be compared. */
struct check {
	struct derivation *d;
	uint32_t value;
};

struct checks {
	struct check *list;
	struct device_span *spans; /* two each: derived, given */
	uint64_t *prints;	   /* of the spans */
	uint32_t count, cap;
};

static const struct derived_value *value_of(const struct check *c)
{
	return &c->d->values[c->value];
}

static bool is_checked(const struct derivation *d, const struct derived_value *v)
{
	return !d->skipped && d->mode == ARENA_DERIVE_CHECK && v->result && v->slot != NULL;
}

static int fail(const struct derived_run *r, int err)
{
	const char *path = interned(r->batch->arena->path);

	if (err == -ENOMEM)
		return arena_fail(ARENA_E_NOMEM, "layer %s: no host memory to compare its values",
				  path);
	return arena_fail(err == -EBUSY ? ARENA_E_BUSY : ARENA_E_DEVICE,
			  "layer %s: its values cannot be compared with what their sources give "
			  "(%d); nothing was published",
			  path, err);
}

/* ---- findings ---- */

static int tell(struct derived_run *r, const struct slot_finding *like, const char *text)
{
	struct slot_finding f = *like;

	f.path = r->batch->arena->path;
	f.name = f.slot->name;
	f.detail = intern(text);
	return slot_findings_add(r->out, &f) ? fail(r, -ENOMEM) : ARENA_OK;
}

int verdict_skipped(struct derived_run *r, const struct derivation *d, const struct slot *slot)
{
	struct slot_finding f = { .kind = FINDING_STALE_VALUE, .severity = SEVERITY_WARN };
	char text[512];

	for (uint32_t i = 0; i < d->count && f.slot == NULL; i++)
		if (d->values[i].result)
			f.slot = d->values[i].slot;
	snprintf(text, sizeof(text), "not checked with %s: slot %s has no memory any more", d->name,
		 interned(slot->name));
	return tell(r, &f, text);
}

/* ---- what is wrong ---- */

static bool same_floats(const float *is, const float *old, const float *factor, uint64_t count)
{
	bool any = false;

	for (uint64_t i = 0; i < count; i++) {
		if (is[i] != old[i] * factor[i])
			return false;
		any |= is[i] != 0;
	}
	return any;
}

/* Where the value of before is; 0: nobody knows. */
static uint64_t old_value(const struct derived_value *v)
{
	return v->given != v->live ? v->live : (uint64_t)(uintptr_t)v->kept;
}

/* What the old value was multiplied with, of the same size in floats; NULL: it was not. */
static const struct derived_value *factor_of(struct derived_run *r, const struct check *c,
					     float *room)
{
	const struct derived_value *v = value_of(c);
	uint64_t count = v->bytes / sizeof(float);
	float *is = room, *old = is + count, *factor = old + count;

	if (derived_fetch(r, is, v->given, v->bytes) != 0 ||
	    derived_fetch(r, old, old_value(v), v->bytes) != 0)
		return NULL;
	for (uint32_t i = 0; i < c->d->count; i++) {
		const struct derived_value *f = &c->d->values[i];

		if (f != v && f->bytes == v->bytes &&
		    derived_fetch(r, factor, f->derived, f->bytes) == 0 &&
		    same_floats(is, old, factor, count))
			return f;
	}
	return NULL;
}

static const struct derived_value *find_factor(struct derived_run *r, const struct check *c)
{
	uint64_t bytes = 3 * value_of(c)->bytes;
	float *room = pages_get(bytes);
	const struct derived_value *found = room != NULL ? factor_of(r, c, room) : NULL;

	pages_put(room, bytes);
	return found;
}

static bool may_be_product(const struct derived_value *v)
{
	return old_value(v) != 0 && v->bytes % sizeof(float) == 0 &&
	       v->bytes <= DERIVED_FACTOR_BYTES_MAX;
}

/* Is it the value of before? What was written in place, and is known of no earlier commit, might be
 * anything. */
static bool is_unchanged(const struct derived_value *v, uint64_t given, bool is_live)
{
	if (v->given != v->live)
		return is_live;
	if (v->known)
		return v->fingerprint == given;
	return v->slot->kind == ARENA_VALUE && !v->slot->direct;
}

/* The first bytes in which it differs from what it should be, and from the live value. */
static int differences(struct derived_run *r, const struct derived_value *v, uint64_t first[2])
{
	const struct device_copy pairs[2] = { { v->derived, v->given, v->bytes },
					      { v->live, v->given, v->bytes } };

	first[1] = 0;
	return device.compare(pairs, v->given != v->live && v->live != 0 ? 2 : 1, r->stream, first);
}

/* @c has @given as fingerprint, which is wrong. */
static int tell_wrong(struct derived_run *r, const struct check *c, uint64_t given)
{
	const struct derived_value *v = value_of(c), *factor = NULL;
	struct slot_finding f = { .kind = FINDING_STALE_VALUE,
				  .severity = SEVERITY_ERROR,
				  .slot = v->slot };
	uint64_t first[2];
	char text[512];
	int err = differences(r, v, first);

	if (err)
		return fail(r, err);
	if (is_unchanged(v, given, first[1] == UINT64_MAX)) {
		snprintf(text, sizeof(text),
			 "it has its old value: %s of the new sources differs from byte %" PRIu64,
			 c->d->name, first[0]);
		return tell(r, &f, text);
	}
	factor = may_be_product(v) ? find_factor(r, c) : NULL;
	f.kind = factor ? FINDING_ACCUMULATED : FINDING_STALE_VALUE;
	if (factor)
		snprintf(text, sizeof(text),
			 "it is its old value times %s, not what %s makes of the new sources",
			 factor->slot ? interned(factor->slot->name) : "a factor", c->d->name);
	else
		snprintf(text, sizeof(text),
			 "it is not what %s makes of its sources, from byte %" PRIu64 " on",
			 c->d->name, first[0]);
	return tell(r, &f, text);
}

/* ---- all ---- */

static int add(struct checks *s, struct derivation *d, uint32_t i)
{
	const struct derived_value *v = &d->values[i];

	if (s->count == s->cap)
		return -ENOMEM;
	s->list[s->count] = (struct check){ d, i };
	s->spans[2 * s->count] = (struct device_span){ v->derived, v->bytes };
	s->spans[2 * s->count + 1] = (struct device_span){ v->given, v->bytes };
	s->count++;
	return 0;
}

static bool checks_room(struct checks *s, uint32_t cap)
{
	s->cap = cap;
	s->list = pages_get(cap * sizeof(*s->list));
	s->spans = pages_get(2 * cap * sizeof(*s->spans));
	s->prints = pages_get(2 * cap * sizeof(*s->prints));
	return s->list != NULL && s->spans != NULL && s->prints != NULL;
}

static void checks_free(struct checks *s)
{
	pages_put(s->list, s->cap * sizeof(*s->list));
	pages_put(s->spans, 2 * s->cap * sizeof(*s->spans));
	pages_put(s->prints, 2 * s->cap * sizeof(*s->prints));
}

static int judge(struct derived_run *r, const struct checks *s)
{
	bool wrong = false;
	int err = device.fingerprint(s->spans, 2 * s->count, r->stream, s->prints);

	if (err)
		return fail(r, err);
	for (uint32_t i = 0; i < s->count && !err; i++) {
		const struct check *c = &s->list[i];

		if (s->prints[2 * i] == s->prints[2 * i + 1]) {
			err = derived_note(r, c->d, c->value, s->prints[2 * i]);
			err = err ? fail(r, err) : ARENA_OK;
			continue;
		}
		wrong = true;
		err = tell_wrong(r, c, s->prints[2 * i + 1]);
	}
	if (!err && wrong)
		err = arena_fail(ARENA_E_REFUSED, "layer %s: a value is not what its sources give",
				 interned(r->batch->arena->path));
	return err;
}

int verdict_all(struct derived_run *r)
{
	struct checks s = { .list = NULL };
	uint32_t count = 0;
	int err = 0;

	for (uint32_t i = 0; i < r->count; i++)
		for (uint32_t k = 0; k < r->list[i].count; k++)
			count += is_checked(&r->list[i], &r->list[i].values[k]);
	if (count == 0)
		return ARENA_OK;
	if (!checks_room(&s, count))
		err = -ENOMEM;
	for (uint32_t i = 0; i < r->count; i++)
		for (uint32_t k = 0; k < r->list[i].count && !err; k++)
			if (is_checked(&r->list[i], &r->list[i].values[k]))
				err = add(&s, &r->list[i], k);
	err = err ? fail(r, err) : judge(r, &s);
	checks_free(&s);
	return err;
}
