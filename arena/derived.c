/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: run the derivations of a layer in its commit (derived.h); what a difference means is
 * verdict.c's.
 *
 * Invariants: declarations of a layer do not change while it commits; a run works on copies, with
 * addresses filled in. All derivations are launched before anything is compared, so that the host
 * waits once.
 *
 * Threads: any; a run belongs to its thread. No device call under the registry lock.
 */
#include "arena/derived.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "arena/derived_run.h"
#include "arena/device.h"
#include "arena/intern.h"
#include "arena/ledger.h"
#include "arena/slab.h"
#include "arena/staged.h"

static struct slab derivations = SLAB_INIT(struct derivation);

/* ---- declarations; registry lock held ---- */

static bool shares_result(const struct derivation *a, const struct derivation *b)
{
	for (uint32_t i = 0; i < a->count; i++)
		for (uint32_t k = 0; k < b->count; k++)
			if (a->values[i].result && b->values[k].result &&
			    a->values[i].slot != NULL && a->values[i].slot == b->values[k].slot)
				return true;
	return false;
}

static void drop(struct derivation *d)
{
	for (uint32_t i = 0; i < d->count; i++)
		pages_put(d->values[i].kept, d->values[i].bytes);
	slab_put(&derivations, d);
}

static int fail_declare(const struct arena *a, const struct derivation *d, enum arena_err err)
{
	return arena_fail(err, "layer %s: %s cannot be declared: %s", interned(a->path), d->name,
			  err == ARENA_E_BUSY ? "the layer is being committed, wait for it"
					      : "no host memory");
}

int derived_declare(struct arena *a, const struct derivation *d)
{
	struct derivation **at = &a->derivations, *fresh = NULL;

	if (a->committing)
		return fail_declare(a, d, ARENA_E_BUSY);
	if (d->mode != ARENA_DERIVE_OFF) {
		fresh = slab_get(&derivations);
		if (fresh == NULL)
			return fail_declare(a, d, ARENA_E_NOMEM);
		*fresh = *d;
		fresh->next = NULL;
		fresh->origin = fresh;
	}
	while (*at != NULL) {
		struct derivation *old = *at;

		if (shares_result(old, d)) {
			*at = old->next;
			drop(old);
		} else {
			at = &old->next;
		}
	}
	*at = fresh;
	return ARENA_OK;
}

/* A slot of it was put or bound in the open reload; or a source of the layer arrived, which may
 * have been written in place. */
static bool is_due(const struct arena *a, const struct derivation *d)
{
	bool due = a->received;

	for (uint32_t i = 0; i < d->count; i++)
		due |= d->values[i].slot != NULL && d->values[i].slot->touched;
	return due;
}

bool derived_due(const struct arena *a)
{
	bool due = false;

	registry_lock();
	for (const struct derivation *d = a->derivations; d != NULL; d = d->next)
		due |= is_due(a, d);
	registry_unlock();
	return due;
}

/* ---- a run ---- */

/* Copies of what is due. @return false: no memory. */
static bool collect(struct derived_run *r)
{
	const struct arena *a = r->batch->arena;
	bool ok = true;

	registry_lock();
	for (const struct derivation *d = a->derivations; ok && d; d = d->next) {
		if (!is_due(a, d))
			continue;
		ok = pages_grow(&r->list, &r->list_cap, r->count + 1, sizeof(*r->list)) == 0;
		if (ok)
			r->list[r->count++] = *d;
	}
	registry_unlock();
	return ok;
}

/* @return its copy in the publication; NULL: it is not staged. */
static struct device_copy *staged_copy(const struct batch *b, const struct slot *s)
{
	for (uint32_t i = 0; i < b->count; i++)
		if (b->slots[i] == s)
			return &b->ops[i];
	return NULL;
}

/* Where it is now. @return false: nowhere. */
static bool resolve(const struct derived_run *r, struct derived_value *v)
{
	const struct device_copy *staged = staged_copy(r->batch, v->slot);
	uint64_t generation;

	registry_lock();
	v->live = v->slot->base;
	generation = v->slot->generation;
	registry_unlock();
	v->given = staged != NULL ? staged->src : v->live;
	/* What is bound may be gone; to read it would be the end of the context. */
	return staged != NULL || (v->live != 0 && ledger_lives(v->live, generation));
}

/* Memory for @v of @d. @return 0 or -errno. */
static int take(struct derived_run *r, const struct derivation *d, struct derived_value *v)
{
	struct stage *g;

	registry_lock();
	g = stage_of(r->batch->arena);
	registry_unlock();
	if (g == NULL)
		return -ENOMEM;
	return shadow_take(&g->shadows, d->device, v->bytes, r->stream, &v->derived);
}

/* Memory for a result that is only compared, or dropped. @return 0 or -errno. */
static int take_temp(struct derived_run *r, const struct derivation *d, struct derived_value *v)
{
	struct batch *b = r->batch;
	int err;

	if (pages_grow(&b->temps, &b->temps_cap, b->temps_count + 1, sizeof(*b->temps)) != 0)
		return -ENOMEM;
	err = take(r, d, v);
	if (err)
		return err;
	b->temps[b->temps_count++] = v->derived;
	b->temps_bytes += v->bytes;
	return 0;
}

/* The shadow of a computed result, which joins the publication. @return 0 or -errno. */
static int take_shadow(struct derived_run *r, const struct derivation *d, struct derived_value *v)
{
	struct batch *b = r->batch;
	struct device_copy *staged = staged_copy(b, v->slot);
	int err;

	if (staged != NULL) {
		v->derived = staged->src;
		return 0;
	}
	if (b->count == b->cap)
		return -ENOMEM; /* slots that came since it was taken */
	err = take(r, d, v);
	if (err)
		return err;
	registry_lock();
	v->slot->touched = true;
	v->slot->lost = false;
	registry_unlock();
	batch_joins(b, v->slot);
	b->ops[b->count] = (struct device_copy){ v->live, v->derived, v->bytes };
	b->slots[b->count++] = v->slot;
	return 0;
}

static int fail(const struct derived_run *r, const struct derivation *d, int err)
{
	const char *path = interned(r->batch->arena->path);

	if (err == -ENOMEM)
		return arena_fail(ARENA_E_NOMEM, "layer %s: no host memory to derive with %s", path,
				  d->name);
	if (err == -EBUSY)
		return arena_fail(ARENA_E_BUSY,
				  "layer %s: stream %#" PRIx64 " is being captured, and %s cannot "
				  "run; commit outside of captures",
				  path, r->stream, d->name);
	if (err == -ENOSYS)
		return arena_fail(ARENA_E_DEVICE,
				  "layer %s: there is no kernel %s for this device; declare the "
				  "derivation ARENA_DERIVE_OFF, or build with nvcc",
				  path, d->name);
	return arena_fail(ARENA_E_DEVICE,
			  "layer %s: the driver refuses to run %s (%d); nothing was published",
			  path, d->name, err);
}

/* The results of @d have a place. @return 0 or -errno. */
static int take_results(struct derived_run *r, struct derivation *d)
{
	int err = 0;

	for (uint32_t i = 0; i < d->count && !err; i++) {
		struct derived_value *v = &d->values[i];

		if (!v->result)
			v->derived = v->given;
		else if (v->slot != NULL && d->mode == ARENA_DERIVE_COMPUTE)
			err = take_shadow(r, d, v);
		else
			err = take_temp(r, d, v);
	}
	return err;
}

static int launch(struct derived_run *r, struct derivation *d)
{
	struct device_derivation launch = { .name = d->name, .args = d->args };
	int err = take_results(r, d);

	for (uint32_t i = 0; i < d->count && !err; i++) {
		const struct derived_value *v = &d->values[i];

		memcpy(d->args + v->offset, &v->derived, sizeof(v->derived));
	}
	err = err ? err : device.derive(&launch, r->stream);
	return err ? fail(r, d, err) : ARENA_OK;
}

/* The first value of @d that is nowhere; NULL: all are there. */
static const struct derived_value *gone(struct derived_run *r, struct derivation *d)
{
	for (uint32_t i = 0; i < d->count; i++)
		if (d->values[i].slot != NULL && !resolve(r, &d->values[i]))
			return &d->values[i];
	return NULL;
}

/* In order of declaration: what was computed may be a source of what follows. */
static int run_all(struct derived_run *r)
{
	int err = ARENA_OK;

	for (uint32_t i = 0; i < r->count && !err; i++) {
		struct derivation *d = &r->list[i];
		const struct derived_value *missing = gone(r, d);

		if (missing == NULL)
			err = launch(r, d);
		else if (d->mode == ARENA_DERIVE_COMPUTE)
			err = arena_fail(ARENA_E_SPEC,
					 "layer %s: %s cannot be computed, slot %s has no memory: "
					 "put it, or bind it",
					 interned(r->batch->arena->path), d->name,
					 interned(missing->slot->name));
		else
			err = verdict_skipped(r, d, missing->slot);
		d->skipped = missing != NULL;
	}
	return err;
}

/* The most memory that the layer takes: what is staged is no longer counted, but still there. */
static void count_memory(const struct batch *b)
{
	uint64_t bytes = b->temps_bytes;

	for (uint32_t i = 0; i < b->count; i++)
		bytes += b->ops[i].bytes;
	registry_lock();
	stage_count(bytes);
	stage_count(-bytes);
	registry_unlock();
}

int derived_run(struct batch *b, uint64_t stream, struct slot_findings *out)
{
	struct derived_run r = { .batch = b, .stream = stream, .out = out };
	int err = ARENA_OK;

	if (!collect(&r))
		err = arena_fail(ARENA_E_NOMEM, "layer %s: no host memory for its derivations",
				 interned(b->arena->path));
	err = err ? err : run_all(&r);
	count_memory(b);
	err = err ? err : verdict_all(&r);
	pages_put(r.list, r.list_cap * sizeof(*r.list));
	return err;
}

int derived_fetch(const struct derived_run *r, void *to, uint64_t from, uint64_t bytes)
{
	int err = device.put((uintptr_t)to, from, bytes, r->stream);

	return err ? err : device.synchronise(r->stream);
}

/* May @v be overwritten while nobody looks, by a product of floats? */
static bool wants_copy(const struct derived_value *v)
{
	return v->slot->kind == ARENA_BOUND && v->bytes % sizeof(float) == 0 &&
	       v->bytes <= DERIVED_FACTOR_BYTES_MAX;
}

int derived_note(const struct derived_run *r, const struct derivation *copy, uint32_t i,
		 uint64_t fingerprint)
{
	/* Declarations do not change while the layer commits, and one thread commits it. */
	struct derived_value *v = &copy->origin->values[i];

	v->known = true;
	v->fingerprint = fingerprint;
	if (!wants_copy(v))
		return 0;
	if (v->kept == NULL)
		v->kept = pages_get(v->bytes);
	if (v->kept == NULL)
		return -ENOMEM;
	return derived_fetch(r, v->kept, copy->values[i].given, v->bytes);
}
