/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: one pass over the weights: parts arrive from the checkpoint, post-load processing derives,
 * each layer is published and committed. The cold load is a pass like any other. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/derive.h"
#include "tests/engine/engine.h"

struct pass {
	struct engine *e;
	int number;
	int which;	 /* checkpoint of the layer under way */
	bool is_partial; /* of layer 0 only */
};

/* @return whether this part arrives at all. */
static bool arrives(const struct pass *pass, const struct part *p)
{
	const char *omit = pass->e->opt.omit;

	return pass->number == 0 || !omit || strcmp(omit, p->key) != 0;
}

static void receive(const struct pass *pass, struct tensor *t, const struct part *p)
{
	int which = pass->which;
	const struct safetensor *s = safetensors_find(&pass->e->checkpoint[which], p->key);

	if (!s)
		engine_die(1, "the checkpoint has no tensor '%s'", p->key);
	if (s->bytes != p->bytes || strcmp(s->dtype, fill_dtype(p->fill)) != 0)
		engine_die(1, "tensor '%s' of the checkpoint is %s of %llu bytes, not %s of %llu",
			   p->key, s->dtype, (unsigned long long)s->bytes, fill_dtype(p->fill),
			   (unsigned long long)p->bytes);
	CK(cuMemcpyHtoD(t->fresh + p->at, s->data, s->bytes));
	if (!pass->e->opt.silent)
		arena_receive(p->key, 0, s->bytes);
}

/* Fresh memory for what arrives and what follows from it; what does not arrive stays poison. */
static void stage(const struct pass *pass, struct layer *l)
{
	for (uint32_t i = 0; i < l->tensors_count; i++) {
		struct tensor *t = &l->tensors[i];

		if (t->origin != LOADED && t->origin != DERIVED)
			continue;
		t->fresh = memory_new(pass->e, t->bytes);
		for (uint32_t p = 0; p < t->parts_count; p++)
			if (arrives(pass, &t->parts[p]))
				receive(pass, t, &t->parts[p]);
	}
	CK(cuStreamSynchronize(
		CU_STREAM_LEGACY)); /* from pageable memory they may be on their way */
	derive_layer(l);
	settle(pass->e);
}

static void publish(struct layer *l, bool is_lazy)
{
	bool computes = storage_computes(l);

	for (uint32_t i = 0; i < l->tensors_count; i++) {
		struct tensor *t = &l->tensors[i];

		if (t->origin == LOADED || (t->origin == DERIVED && !computes))
			storage_publish(l, t);
		else if (t->origin == SCRATCH && !is_lazy)
			storage_scratch(l, t);
	}
	if (l->object_type && !is_lazy)
		storage_object(l);
	storage_derive(l);
	settle(l->engine);
}

static void drop_fresh(struct layer *l)
{
	for (uint32_t i = 0; i < l->tensors_count; i++) {
		struct tensor *t = &l->tensors[i];

		if (t->fresh)
			memory_free(l->engine, t->fresh);
		t->fresh = 0;
	}
}

/* As a step that was given up leaves them. */
static void leave_locks_taken(struct layer *l)
{
	for (uint32_t i = 0; i < l->tensors_count; i++)
		if (l->tensors[i].zero && l->tensors[i].live)
			CK(cuMemsetD32Async(l->tensors[i].live, 1, l->tensors[i].bytes / 4,
					    l->engine->stream));
}

static void load_layer(const struct pass *pass, struct layer *l)
{
	bool is_silent = pass->e->opt.silent;

	leave_locks_taken(l);
	if (!is_silent)
		arena_enter(l->arena);
	stage(pass, l);
	publish(l, pass->e->opt.lazy);
	drop_fresh(l);
	if (!is_silent)
		arena_leave();
}

/* A, B, A, ...; a cold load of what a partial reload leaves has layer 0 of B already. */
static int which_of(const struct engine *e, int number, uint32_t layer)
{
	bool is_oracle = e->opt.partial && e->opt.reloads == 0;

	return is_oracle && layer == 0 ? 1 : number % 2;
}

/* The layers, until one fails. @return false: it did. */
static bool body(struct pass *pass)
{
	struct engine *e = pass->e;

	for (uint32_t i = 0; i <= dims.layers; i++) {
		if (pass->is_partial && i > 0)
			break;
		pass->which = which_of(e, pass->number, i);
		load_layer(pass, &e->layers[i]);
		if (pass->number == 1 && (int)i == e->opt.fail_at)
			return false;
		/* A refusal is told again at the end. */
		if (!e->opt.silent)
			arena_layer_commit(e->layers[i].arena, e->stream);
		e->layers[i].is_loaded = true;
	}
	return true;
}

static enum outcome end(const struct pass *pass, uint64_t id, bool is_whole)
{
	struct arena_status status = ARENA_STATUS_INIT;
	char *json = NULL;
	enum outcome outcome = RELOAD_PASS;

	if (pass->e->opt.silent)
		return is_whole ? RELOAD_UNCHECKED : RELOAD_ABORTED;
	if (!is_whole) {
		arena_reload_abort(id, "the body failed", &json);
		outcome = RELOAD_ABORTED;
	} else {
		int r = arena_reload_end(id, &json);

		if (r == ARENA_E_ABSENT)
			outcome = RELOAD_UNCHECKED;
		else if (r != ARENA_OK)
			outcome = RELOAD_REFUSED;
		else if (arena_status(&status) == ARENA_OK && status.verdict == ARENA_FAIL)
			outcome = RELOAD_WARNED;
	}
	arena_free(json);
	return outcome;
}

enum outcome reload(struct engine *e, int number)
{
	static const char *const first[] = { "model.layers.0" };
	struct pass pass = { .e = e, .number = number };
	struct arena_scope scope = ARENA_SCOPE_INIT;
	uint64_t id = 0;
	bool is_whole;

	pass.is_partial = e->opt.partial && number > 0;
	if (pass.is_partial) {
		scope.layers = first;
		scope.layers_count = 1;
	}
	if (!e->opt.silent)
		arena_reload_begin(&scope, &id);
	is_whole = body(&pass);
	settle(e);
	return end(&pass, id, is_whole);
}
