/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: where a tensor lives from pass to pass. Without an arena: as engines had it when the faults
 * of public reports were found (enum naive), or as it was repaired; each tensor is bound as a slot,
 * so that a library that is there can compare. With one: slots. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/derive.h"
#include "tests/engine/engine.h"

/* A call that has to succeed: without it there is no storage. */
static void must(int r, const char *what, const char *name)
{
	char why[512] = "";

	if (r == ARENA_OK)
		return;
	arena_last_message(why, sizeof(why));
	engine_die(r == ARENA_E_ABSENT ? 77 : 1, "%s of %s: %s%s%s", what, name, arena_strerror(r),
		   *why ? ": " : "", why);
}

static struct arena_spec spec_of(const struct tensor *t)
{
	struct arena_spec spec = ARENA_SPEC_INIT;

	spec.bytes = t->bytes;
	return spec;
}

/* ---- without an arena ---- */

/* Without the library, or when it is told nothing, nothing happens. */
static void watch(struct layer *l, const struct tensor *t)
{
	struct arena_spec spec = spec_of(t);

	if (t->origin == SCRATCH)
		spec.flags = ARENA_SPEC_SCRATCH;
	if (!l->engine->opt.silent)
		arena_bind(l->arena, t->name, &spec, (void *)t->live);
}

static void rebind(struct layer *l, struct tensor *t, CUdeviceptr to)
{
	CUdeviceptr old = t->live;

	t->live = to;
	watch(l, t);
	if (old && t->naive != HELD)
		memory_free(l->engine, old);
}

/* to = live * factor: a multiplication of what the last pass left. */
static void accumulate(struct layer *l, struct tensor *t, CUdeviceptr to)
{
	const struct tensor *f = layer_find(l, t->factor);
	uint64_t n = t->bytes / sizeof(float);
	float *value = malloc(2 * t->bytes), *by = value + n;

	if (!value)
		engine_die(1, "no host memory for %s", t->name);
	CK(cuMemcpyDtoH(value, t->live, t->bytes));
	CK(cuMemcpyDtoH(by, f->fresh ? f->fresh : f->live, t->bytes));
	for (uint64_t i = 0; i < n; i++)
		value[i] *= by[i];
	CK(cuMemcpyHtoD(to, value, t->bytes));
	CK(cuStreamSynchronize(
		CU_STREAM_LEGACY)); /* from pageable memory it may still be on its way */
	free(value);
}

/* As in memory that held something else: not numbers, behind each row. */
static void pad_badly(struct layer *l, const struct tensor *t, CUdeviceptr rows)
{
	CK(cuMemsetD2D8Async(rows + t->width, t->pitch, 0xff, t->pitch - t->width,
			     t->bytes / t->pitch, l->engine->stream));
}

/* --storage=copied: whatever it was, it is copied back now. */
static enum naive naive_of(const struct layer *l, const struct tensor *t)
{
	return l->engine->opt.copied ? COPY_BACK : t->naive;
}

static void naive_publish(struct layer *l, struct tensor *t)
{
	const char *keep = l->engine->opt.keep;
	bool is_left = keep && !strcmp(keep, t->name);
	enum naive naive = naive_of(l, t);

	if (!t->live || naive == REBIND || naive == HELD) {
		rebind(l, t, t->fresh);
		t->fresh = 0;
		return;
	}
	if ((naive == COPY_BACK && !is_left) || naive == PADDED)
		CK(cuMemcpyDtoDAsync(t->live, t->fresh, t->bytes, l->engine->stream));
	if (naive == PADDED)
		pad_badly(l, t, t->live);
	if (naive == ACCUMULATE)
		accumulate(l, t, t->live);
	watch(l, t);
}

static void naive_scratch(struct layer *l, struct tensor *t)
{
	bool is_kept = t->live && naive_of(l, t) != REBIND;
	CUdeviceptr p = is_kept ? t->live : memory_new(l->engine, t->bytes);

	if (t->zero)
		CK(cuMemsetD8Async(p, 0, t->bytes, l->engine->stream));
	settle(l->engine);
	if (!is_kept)
		rebind(l, t, p);
}

/* ---- with one ---- */

static void arena_publish_tensor(struct layer *l, struct tensor *t)
{
	struct arena_spec spec = spec_of(t);
	bool errs = l->engine->opt.mistakes && l->is_loaded;
	void *live = NULL;

	if (errs && t->naive == ONCE)
		return;
	if (errs && t->naive == ACCUMULATE)
		accumulate(l, t, t->fresh);
	if (errs && t->naive == PADDED)
		pad_badly(l, t, t->fresh);
	must(arena_put(l->arena, t->name, &spec, (void *)t->fresh, ARENA_STAGED, &live,
		       l->engine->stream),
	     "put", t->name);
	t->live = (CUdeviceptr)live;
}

static void arena_scratch(struct layer *l, struct tensor *t)
{
	struct arena_spec spec = spec_of(t);
	void *live = NULL;

	if (t->zero)
		spec.flags = ARENA_SPEC_ZERO;
	must(arena_get_or_alloc(l->arena, t->name, &spec, ARENA_EMPTY, &live, l->engine->stream),
	     "storage", t->name);
	t->live = (CUdeviceptr)live;
}

/* ---- either ---- */

void storage_publish(struct layer *l, struct tensor *t)
{
	(l->engine->opt.arena ? arena_publish_tensor : naive_publish)(l, t);
}

void storage_scratch(struct layer *l, struct tensor *t)
{
	(l->engine->opt.arena ? arena_scratch : naive_scratch)(l, t);
}

/* The constructor of the object: it allocates its parts itself. */
static int make(void *ctx, void **object)
{
	struct layer *l = ctx;

	*object = malloc(1);
	if (!*object)
		return ARENA_E_NOMEM;
	for (uint32_t i = 0; i < l->tensors_count; i++)
		if (l->tensors[i].origin == PART)
			l->tensors[i].live = memory_new(l->engine, l->tensors[i].bytes);
	return 0;
}

static int object(struct layer *l)
{
	if (l->engine->opt.silent)
		return make(l, &l->object);
	return arena_object(l->arena, "wrapper", l->object_type, make, l, &l->object);
}

/* The object of the last pass is dropped with all that it had, once the new one is there. */
static void naive_object(struct layer *l)
{
	struct tensor old[TENSORS_MAX];
	void *last = l->object;
	int r;

	if (last && l->engine->opt.copied)
		return;
	memcpy(old, l->tensors, sizeof(old));
	if (last && !l->engine->opt.silent)
		arena_unbind(l->arena, "wrapper");
	r = object(l);
	if (r == ARENA_E_ABSENT)
		r = make(l, &l->object);
	must(r, "object", l->path);
	for (uint32_t i = 0; last && i < l->tensors_count; i++)
		if (old[i].origin == PART)
			memory_free(l->engine, old[i].live);
	free(last);
}

void storage_object(struct layer *l)
{
	if (!l->engine->opt.arena)
		naive_object(l);
	else
		must(object(l), "object", l->path);
}

/* Both ways are used: layer 0 is checked against what the engine computed, layer 1 computed. */
bool storage_computes(const struct layer *l)
{
	return l->engine->opt.arena && l->is_loaded && l->index % 2 == 1 &&
	       !l->engine->opt.mistakes;
}

static void declare_one(struct layer *l, const struct derivation *from)
{
	struct arena_derive_arg args[ARGS_MAX];
	struct arena_derivation d = ARENA_DERIVATION_INIT;
	int r;

	for (uint32_t i = 0; i < from->args_count; i++)
		args[i] = (struct arena_derive_arg){
			.name = from->args[i].param,
			.slot = *from->args[i].tensor ? from->args[i].tensor : NULL,
			.value = from->args[i].value,
		};
	d.name = from->kernel;
	d.mode = storage_computes(l) ? ARENA_DERIVE_COMPUTE : ARENA_DERIVE_CHECK;
	d.args = args;
	d.args_count = from->args_count;
	r = arena_derive(l->arena, &d);
	if (r != ARENA_E_ABSENT || l->engine->opt.arena)
		must(r, from->kernel, l->path);
}

void storage_derive(struct layer *l)
{
	for (uint32_t i = 0; i < l->derives_count && !l->engine->opt.silent; i++)
		declare_one(l, &l->derives[i]);
}
