/* SPDX-License-Identifier: Apache-2.0 */
/* What a reload leaves to be repaired: values that are lost, sources in doubt, stale caches. */
#include "world.h"

#include "fake_device.h"

#define BYTES 512u
#define BOUND 0x7f0000000000ull

static struct arena *layer, *other;
static struct slot *w, *v;

static void start(void)
{
	world_start();
	fake_start();
	layer = fake_arena("m.layers.0");
	other = fake_arena("m.layers.1");
	w = fake_slot(layer, "w", ARENA_VALUE, BYTES);
	v = fake_slot(layer, "v", ARENA_VALUE, BYTES);
	cr_assert(w && v);
}

TestSuite(reload_debts, .init = start);

static uint64_t begin(const struct arena_scope *scope)
{
	uint64_t id = 0;

	cr_assert_eq(reload_begin(scope, &id), 0, "%s", arena_message());
	return id;
}

static struct arena_scope scope_of(const char *const *path, const char *const *source)
{
	struct arena_scope s = ARENA_SCOPE_INIT;

	s.layers = path;
	s.layers_count = path != NULL;
	s.sources = source;
	s.sources_count = source != NULL;
	return s;
}

static void stage(struct arena *a, const char *name, int value)
{
	cr_assert_eq(fake_stage(a, name, BYTES, value), 0, "%s", arena_message());
}

static void receive(struct arena *a, const char *key)
{
	if (a)
		cr_assert_eq(scope_enter(a), 0);
	cr_assert_eq(reload_receive(key, 0, 8), 0);
	if (a)
		cr_assert_eq(scope_leave(), 0);
}

static void commit(struct arena *a)
{
	cr_assert_eq(reload_commit(a, FAKE_STREAM), 0, "%s", arena_message());
}

static void refused(struct arena *a, const char *words)
{
	cr_assert_eq(reload_commit(a, FAKE_STREAM), ARENA_E_REFUSED);
	cr_assert(strstr(arena_message(), words), "%s", arena_message());
}

/* @return the outcome, which lives until the next call. */
static struct reload_outcome *end(uint64_t id, enum reload_verdict verdict)
{
	static struct reload_outcome o;

	reload_outcome_free(&o);
	cr_assert_eq(reload_end(id, &o), 0, "%s", arena_message());
	cr_assert_eq(o.verdict, verdict, "verdict %d", o.verdict);
	return &o;
}

static struct reload_outcome *stop(uint64_t id)
{
	static struct reload_outcome o;

	reload_outcome_free(&o);
	cr_assert_eq(reload_abort(id, "cancelled", &o), 0, "%s", arena_message());
	return &o;
}

static void full(int value)
{
	uint64_t id = begin(NULL);

	stage(layer, "w", value);
	stage(layer, "v", value);
	commit(layer);
	end(id, RELOAD_PASS);
}

/* ---- values that are lost ---- */

/* A refused commit is not forgotten at the next begin: half a layer stays unpublished. */
Test(reload_debts, lost_in_an_earlier_reload)
{
	const char *source = "other";
	struct arena_scope s = scope_of(NULL, &source);
	struct slot *b;
	uint64_t id;

	full(1);
	world_alloc(BOUND);
	world_alloc(BOUND + MIB);
	b = fake_add(layer, "b", ARENA_BOUND, 64, BOUND);
	world_exec(1, KERNEL(1, 1, BOUND));
	id = begin(NULL);
	stage(layer, "w", 2);
	stage(layer, "v", 2);
	fake_bind(b, BOUND + MIB);
	refused(layer, "moved");
	end(id, RELOAD_FAIL);
	fake_bind(b, BOUND);

	id = begin(&s); /* it is of others */
	receive(other, source);
	end(id, RELOAD_PASS);
	id = begin(NULL);
	stage(layer, "w", 2);
	refused(layer, "v: its newest put failed or was dropped");
	cr_assert(fake_lists(&end(id, RELOAD_FAIL)->findings, FINDING_UNCOMMITTED, "v"));
	cr_assert_eq(fake_value(w), 1);
	cr_assert(fake_lists(&end(begin(NULL), RELOAD_FAIL)->findings, FINDING_UNCOMMITTED, NULL));
	full(3);
	cr_assert_eq(fake_value(w), 3);
}

/* Between reloads there is only the live storage. */
Test(reload_debts, put_outside_of_a_reload)
{
	uint64_t id = begin(NULL);

	stage(layer, "w", 1);
	end(id, RELOAD_FAIL);
	cr_assert_eq(fake_give(layer, "w", BYTES, 2, false), 0);
	end(begin(NULL), RELOAD_PASS);
}

static void fail_put(struct arena *a, const char *name)
{
	uint64_t reload;

	cr_assert_eq(reload_enter_put(&reload), 0);
	reload_put_failed(a, name);
	reload_leave_put();
}

/* A put that failed before it had a slot. */
Test(reload_debts, failed_before_it_had_a_slot)
{
	const struct reload_outcome *o;
	uint64_t id;

	fail_put(layer, "v"); /* outside of a reload its caller knows */
	full(1);
	id = begin(NULL);
	stage(layer, "w", 2);
	fail_put(layer, "v");
	refused(layer, "v: its newest put failed");
	end(id, RELOAD_FAIL);
	full(2);

	id = begin(NULL);
	fail_put(layer, "late");
	fail_put(layer, "later");
	fail_put(layer, "later");
	stage(layer, "w", 3);
	stage(layer, "v", 3);
	refused(layer, "1 more slots");
	o = end(id, RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_UNCOMMITTED, NULL));
	id = begin(NULL);
	stage(layer, "w", 3);
	stage(layer, "v", 3);
	stage(layer, "late", 3);
	refused(layer, "later: its newest put failed");
	end(id, RELOAD_FAIL);
	id = begin(NULL);
	stage(layer, "later", 3);
	stage(layer, "late", 3);
	stage(layer, "w", 3);
	stage(layer, "v", 3);
	commit(layer);
	end(id, RELOAD_PASS);
}

/* No put can succeed in a slot of another kind: it would be waited for in vain. */
Test(reload_debts, failed_for_its_kind)
{
	uint64_t id;

	cr_assert_not_null(fake_slot(layer, "ws", ARENA_SCRATCH, BYTES));
	id = begin(NULL);
	fail_put(layer, "ws");
	stage(layer, "w", 1);
	stage(layer, "v", 1);
	commit(layer);
	end(id, RELOAD_PASS);
}

/* Nobody declared a part. */
Test(reload_debts, a_value_keeps_its_old_one)
{
	const char *path = "m.layers.0";
	struct arena_scope s = scope_of(&path, NULL);
	const struct reload_outcome *o;
	uint64_t id;

	full(1);
	id = begin(&s);
	stage(layer, "w", 2);
	commit(layer);
	cr_assert_eq(end(id, RELOAD_PASS)->findings.count, 0);
	id = begin(NULL);
	stage(layer, "w", 3);
	commit(layer);
	o = end(id, RELOAD_PASS);
	cr_assert_eq(o->findings.count, 1);
	cr_assert(fake_lists(&o->findings, FINDING_UNCOMMITTED, "v"));
	cr_assert_eq(o->findings.list[0].severity, SEVERITY_WARN);
	id = begin(NULL);
	commit(layer); /* nothing of it changes */
	cr_assert_eq(end(id, RELOAD_PASS)->findings.count, 0);
}

/* ---- receipts ---- */

/* The manifest says whose the source is. */
Test(reload_debts, received_outside_of_its_layer)
{
	uint64_t id = begin(NULL);

	receive(layer, "k");
	stage(layer, "w", 1);
	stage(layer, "v", 1);
	commit(layer);
	end(id, RELOAD_PASS);
	id = begin(NULL);
	receive(NULL, "k");
	cr_assert(fake_lists(&end(id, RELOAD_FAIL)->findings, FINDING_UNCOMMITTED, NULL));
	id = begin(NULL);
	receive(layer, "k");
	commit(layer);
	cr_assert(fake_lists(&end(id, RELOAD_FAIL)->findings, FINDING_UNCOMMITTED, NULL));
}

/* No slot shows when it is repaired, so it must arrive again. */
Test(reload_debts, sources_in_doubt)
{
	const char *path = "m.layers.1";
	struct arena_scope s = scope_of(&path, NULL);
	const struct reload_outcome *o;
	uint64_t id = begin(NULL);

	receive(other, "norm");
	receive(NULL, "embedding");
	receive(layer, "w"); /* of which slots tell */
	stop(id);
	o = end(begin(NULL), RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_SOURCE_MISSING, "norm"));
	cr_assert(fake_lists(&o->findings, FINDING_SOURCE_MISSING, "embedding"));
	cr_assert_not(fake_lists(&o->findings, FINDING_SOURCE_MISSING, "w"));
	cr_assert(o->unsafe);
	reload_accepts_unproven = true;
	id = begin(&s); /* a part that is not the part: no finding, and no recovery */
	o = end(id, RELOAD_PASS);
	cr_assert(o->unsafe);

	id = begin(NULL);
	receive(other, "norm");
	receive(NULL, "embedding");
	stage(layer, "w", 1);
	stage(layer, "v", 1);
	commit(layer);
	cr_assert_not(end(id, RELOAD_PASS)->unsafe);
}

/* A layer is in doubt until a reload passes that restores it; unsafe until a full one passes. */
Test(reload_debts, a_part_ends_the_doubt)
{
	const char *path = "m.layers.0";
	struct arena_scope s = scope_of(&path, NULL);
	uint64_t id;

	full(1);
	id = begin(NULL);
	stage(layer, "w", 2);
	stage(layer, "v", 2);
	commit(layer);
	stop(id);
	end(begin(NULL), RELOAD_FAIL);
	id = begin(&s);
	stage(layer, "w", 3);
	stage(layer, "v", 3);
	commit(layer);
	cr_assert(end(id, RELOAD_PASS)->unsafe);
	cr_assert_not(end(begin(NULL), RELOAD_PASS)->unsafe);
}

/* A name that was spelt wrong covers nothing, so that nothing can be wrong with it. */
Test(reload_debts, scope_of_an_unknown_layer)
{
	const char *paths[] = { "m.layer.0", "m.layers" };
	struct arena_scope s = scope_of(paths, NULL);

	cr_assert(strstr(end(begin(&s), RELOAD_UNPROVEN)->why, "m.layer.0"));
	s.layers_count = 2;
	end(begin(&s), RELOAD_UNPROVEN);
	s.layers++;
	s.layers_count = 1;
	end(begin(&s), RELOAD_PASS);
}

/* ---- caches ---- */

static unsigned flushes;

static int flush(void *ctx, uint64_t generation)
{
	flushes++;
	return 0;
}

/* Live values are new, however the layer ended. */
Test(reload_debts, caches_of_changed_values)
{
	uint64_t id;

	cr_assert_eq(cache_register("prefix", flush, NULL), 0);
	id = begin(NULL);
	cr_assert_eq(fake_give(layer, "w", BYTES, 2, true), 0);
	fail_put(layer, "v");
	refused(layer, "v");
	end(id, RELOAD_FAIL);
	cr_assert_eq(flushes, 1);

	id = begin(NULL);
	stage(layer, "w", 3);
	stage(layer, "v", 3);
	commit(layer);
	fail_put(layer, "v");
	refused(layer, "v");
	end(id, RELOAD_FAIL);
	cr_assert_eq(flushes, 2);

	id = begin(NULL);
	stage(layer, "w", 4);
	end(id, RELOAD_FAIL);
	cr_assert_eq(flushes, 2, "nothing has changed");

	world_alloc(BOUND);
	fake_add(other, "b", ARENA_BOUND, 64, BOUND);
	id = begin(NULL);
	receive(other, "k"); /* loaded in place */
	stage(layer, "w", 5);
	end(id, RELOAD_FAIL);
	cr_assert_eq(flushes, 3);
}

/* An abort calls nobody, and says who is stale. */
Test(reload_debts, caches_in_an_abort)
{
	const struct reload_outcome *o;
	uint64_t id;

	cr_assert_eq(cache_register("prefix", flush, NULL), 0);
	cr_assert_eq(cache_register("mm", NULL, NULL), 0);
	id = begin(NULL);
	stage(layer, "w", 1);
	o = stop(id);
	cr_assert_not(fake_lists(&o->findings, FINDING_STALE_CACHE, NULL));
	id = begin(NULL);
	stage(layer, "w", 1);
	stage(layer, "v", 1);
	commit(layer);
	cr_assert_eq(cache_flushed("mm"), 0);
	o = stop(id);
	cr_assert(fake_lists(&o->findings, FINDING_STALE_CACHE, "prefix"));
	cr_assert_not(fake_lists(&o->findings, FINDING_STALE_CACHE, "mm"));
	cr_assert_eq(flushes, 0);
}

/* ---- slots that are not what graphs were captured with ---- */

static struct slot *captured(void)
{
	struct slot *b;

	world_alloc(BOUND);
	world_alloc(BOUND + MIB);
	b = fake_add(other, "b", ARENA_BOUND, 64, BOUND);
	world_exec(1, KERNEL(1, 1, BOUND));
	return b;
}

static void moves(struct slot *b)
{
	uint64_t id = begin(NULL);

	stage(layer, "w", 1);
	stage(layer, "v", 1);
	commit(layer);
	fake_bind(b, BOUND + MIB);
	cr_assert(fake_lists(&end(id, RELOAD_FAIL)->findings, FINDING_MOVED, "b"));
}

/* What is wrong stays wrong, however often one tries again. */
Test(reload_debts, trying_again_does_not_pass)
{
	struct slot *b = captured();

	moves(b);
	for (int i = 0; i < 3; i++) {
		uint64_t id = begin(NULL);
		struct reload_outcome *o;

		/* An abort is no way out of it. */
		o = i == 1 ? stop(id) : end(id, RELOAD_FAIL);
		cr_assert(fake_lists(&o->findings, FINDING_MOVED, "b"));
	}
	fake_bind(b, BOUND);
	full(2);
	full(3);
}

Test(reload_debts, putting_back_passes)
{
	struct slot *b = captured();
	uint64_t id;

	moves(b);
	id = begin(NULL);
	stage(layer, "w", 2);
	stage(layer, "v", 2);
	commit(layer);
	fake_bind(b, BOUND);
	cr_assert_eq(end(id, RELOAD_PASS)->findings.count, 0);
	full(3);
}

Test(reload_debts, capturing_again_passes)
{
	struct slot *b = captured();
	uint64_t id;

	moves(b);
	exec_close(1);
	world_exec(2, KERNEL(2, 2, BOUND + MIB));
	full(2);
	/* From here on the new place is what it has to keep. */
	id = begin(NULL);
	fake_bind(b, BOUND);
	cr_assert(fake_lists(&end(id, RELOAD_FAIL)->findings, FINDING_MOVED, "b"));
	fake_bind(b, BOUND + MIB);
	full(3);
}
