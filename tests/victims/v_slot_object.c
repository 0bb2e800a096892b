/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object of somebody else's code, kept in a slot with every range that its factory allocated:
 * the second pass gets the same object, and memory that the object changes inside itself is seen.
 */
#include "slots.h"

static struct arena *a;
static CUdeviceptr out;

struct wrapper {
	CUdeviceptr plan, workspace;
};

static int make_wrapper(void *ctx, void **object)
{
	struct wrapper *w = ctx;

	w->plan = dev_alloc("plan", BIG);
	w->workspace = dev_alloc("workspace", BIG);
	*object = w;
	return 0;
}

static int fail_to_make(void *ctx, void **object)
{
	(void)object;
	return *(int *)ctx;
}

static struct wrapper *start(CUgraphExec *e)
{
	static struct wrapper first;
	struct wrapper *w;

	a = layer("model.layers.0.attn");
	out = dev_alloc("out", BIG);
	poke(out, 0);
	w = slot_object(a, "wrapper", make_wrapper, &first);
	MUST(w == &first);
	poke(w->plan, 1);
	poke(w->workspace, 2);
	CAPTURE_EXEC(*e, run_acc(out, w->plan); run_acc(out, w->workspace));
	replay("E", *e);
	return w;
}

static void kept(void)
{
	struct wrapper never = { 0 };
	struct arena_snapshot *s;
	struct wrapper *w;
	CUgraphExec e;

	arena_needed();
	w = start(&e);
	s = snap();
	MUST(slot_object(a, "wrapper", make_wrapper, &never) == w && !never.plan);
	verify("V", s);
	replay("E", e);
}

/* A longer request: the object grows its workspace, and stays the same object. */
static void grows_inside(void)
{
	CUgraphExec e;
	struct wrapper *w = start(&e);
	struct arena_snapshot *s = snap();

	dev_free(w->workspace);
	w->workspace = dev_alloc("workspace2", 4 * BIG);
	verify("V", s);
	victim_only_harmless(false);
	replay("E", e);
}

/* The factory's own error comes back, and there is no slot afterwards. */
static void factory_fails(void)
{
	struct wrapper second = { 0 };
	int code = -1;
	void *object = NULL;

	arena_needed();
	a = layer("model.layers.0.attn");
	told("make", arena_object(a, "wrapper", "wrapper", fail_to_make, &code, &object));
	MUST(!object);
	MUST(slot_object(a, "wrapper", make_wrapper, &second) == &second);
}

VICTIM({ "kept", kept }, { "grows-inside", grows_inside }, { "factory-fails", factory_fails });
