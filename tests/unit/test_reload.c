/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions: each refusal path, each failure of a commit, and that nothing is left behind. */
#include "world.h"

#include <pthread.h>
#include <sched.h>

#include "arena/slab.h"
#include "fake_device.h"

#define BYTES 512u
#define BOUND 0x7f0000000000ull

static struct arena *a[2];
static struct slot *w[2], *v[2];

static void start(void)
{
	world_start();
	fake_start();
	a[0] = fake_arena("m.layers.0");
	a[1] = fake_arena("m.layers.1");
	for (int l = 0; l < 2; l++) {
		w[l] = fake_slot(a[l], "w", ARENA_VALUE, BYTES);
		v[l] = fake_slot(a[l], "v", ARENA_VALUE, BYTES);
		cr_assert(w[l] && v[l]);
	}
}

TestSuite(reload, .init = start);

static uint64_t begin(const struct arena_scope *scope)
{
	uint64_t id = 0;

	cr_assert_eq(reload_begin(scope, &id), 0, "%s", arena_message());
	cr_assert_neq(id, 0);
	cr_assert(reload_open());
	cr_assert_eq(reload_id(), id);
	return id;
}

static void stage(int l, int value)
{
	cr_assert_eq(fake_stage(a[l], "w", BYTES, value), 0);
	cr_assert_eq(fake_stage(a[l], "v", BYTES, value), 0);
}

static void commit(int l)
{
	cr_assert_eq(reload_commit(a[l], FAKE_STREAM), 0, "%s", arena_message());
}

static void values(int l, int value)
{
	cr_assert_eq(fake_value(w[l]), value);
	cr_assert_eq(fake_value(v[l]), value);
}

/* @return the outcome, which lives until the next call. */
static struct reload_outcome *end(uint64_t id, enum reload_verdict verdict)
{
	static struct reload_outcome o;

	reload_outcome_free(&o);
	cr_assert_eq(reload_end(id, &o), 0, "%s", arena_message());
	cr_assert_eq(o.id, id);
	cr_assert_eq(o.verdict, verdict, "verdict %d", o.verdict);
	cr_assert_not(reload_open());
	return &o;
}

static struct reload_outcome *stop(uint64_t id, const char *why)
{
	static struct reload_outcome o;

	reload_outcome_free(&o);
	cr_assert_eq(reload_abort(id, why, &o), 0, "%s", arena_message());
	cr_assert(o.aborted);
	cr_assert(o.unsafe);
	cr_assert(reload_unsafe());
	cr_assert_eq(o.verdict, RELOAD_FAIL);
	return &o;
}

static void receive(struct arena *layer, const char *key, uint64_t part)
{
	if (layer)
		cr_assert_eq(scope_enter(layer), 0);
	cr_assert_eq(reload_receive(key, part, 8), 0);
	if (layer)
		cr_assert_eq(scope_leave(), 0);
}

static struct arena_scope layer_scope(const char *const *path)
{
	struct arena_scope s = ARENA_SCOPE_INIT;

	s.layers = path;
	s.layers_count = 1;
	return s;
}

static void full(int value)
{
	uint64_t id = begin(NULL);

	for (int l = 0; l < 2; l++) {
		stage(l, value);
		commit(l);
	}
	end(id, RELOAD_PASS);
}

/* ---- the good way ---- */

Test(reload, publishes_at_commit)
{
	uint64_t id = begin(NULL), generation = reload_generation();
	const struct reload_outcome *o;
	enum reload_verdict last;

	cr_assert_not(reload_last(&last));
	stage(0, 1);
	stage(1, 1);
	values(0, 0);
	commit(0);
	values(0, 1);
	values(1, 0);
	commit(1);
	o = end(id, RELOAD_PASS);
	cr_assert_eq(o->layers_committed, 2);
	cr_assert_eq(o->layers_refused + o->layers_open, 0);
	cr_assert_eq(o->published_bytes, 4 * BYTES);
	cr_assert_eq(o->shadow_peak_bytes, 4 * BYTES);
	cr_assert_eq(o->generation, generation + 1);
	cr_assert_eq(o->findings.count, 0);
	cr_assert_leq(o->begin_ns, o->end_ns);
	cr_assert(reload_last(&last) && last == RELOAD_PASS);
}

Test(reload, peak_is_of_one_layer)
{
	uint64_t id;

	full(1);
	id = begin(NULL);
	for (int l = 0; l < 2; l++) {
		stage(l, 2);
		commit(l);
	}
	cr_assert_eq(end(id, RELOAD_PASS)->shadow_peak_bytes, 2 * BYTES);
}

Test(reload, layer_may_be_committed_again)
{
	uint64_t id = begin(NULL);

	stage(0, 1);
	commit(0);
	stage(0, 2);
	commit(0);
	values(0, 2);
	cr_assert_eq(end(id, RELOAD_PASS)->layers_committed, 1);
}

/* ---- wrong calls: one line, and nothing changes ---- */

Test(reload, does_not_nest)
{
	uint64_t id = begin(NULL), second = 0;
	char number[24];

	stage(0, 1);
	cr_assert_eq(reload_begin(NULL, &second), ARENA_E_BUSY);
	snprintf(number, sizeof(number), "reload %lu", (unsigned long)id);
	cr_assert(strstr(arena_message(), number));
	cr_assert_eq(second, 0);
	commit(0);
	values(0, 1);
	end(id, RELOAD_PASS);
}

/* What a client knows of one reload: it passes not, and the next one does. */
Test(reload, that_the_client_doubts)
{
	uint64_t id = begin(NULL), generation = reload_generation();
	struct reload_outcome *o;

	stage(0, 1);
	commit(0);
	cr_assert_eq(reload_doubt("half of it was seen"), 0);
	cr_assert_eq(reload_doubt("another reason"), 0);
	o = end(id, RELOAD_UNPROVEN);
	cr_assert_str_eq(o->why, "half of it was seen");
	cr_assert_eq(o->generation, generation);
	id = begin(NULL);
	stage(0, 2);
	commit(0);
	stage(1, 2);
	commit(1);
	end(id, RELOAD_PASS);
	cr_assert_eq(reload_doubt("late"), ARENA_E_BUSY);
	cr_assert_not_null(strstr(arena_message(), "no reload is open"));
	/* A failure is one, whatever else is said. */
	id = begin(NULL);
	stage(0, 3);
	reload_doubt("of no importance");
	end(id, RELOAD_FAIL);
}

Test(reload, nothing_is_open)
{
	struct reload_outcome o;

	cr_assert_eq(reload_receive("k", 0, 1), ARENA_E_BUSY);
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_BUSY);
	cr_assert_eq(reload_end(1, &o), ARENA_E_BUSY);
	cr_assert(strstr(arena_message(), "end: no reload is open"));
	cr_assert_eq(reload_abort(1, "why", &o), ARENA_E_BUSY);
	cr_assert(strstr(arena_message(), "abort: no reload is open"));
	cr_assert(strstr(arena_message(), "no reload is open"));
	cr_assert_not(reload_unsafe());
}

Test(reload, another_one_is_open)
{
	struct reload_outcome o;
	uint64_t id = begin(NULL);

	cr_assert_eq(reload_end(id + 1, &o), ARENA_E_UNKNOWN);
	cr_assert_eq(reload_abort(id + 1, "why", &o), ARENA_E_UNKNOWN);
	cr_assert_not(reload_unsafe());
	end(id, RELOAD_PASS);
	cr_assert_eq(reload_end(id, &o), ARENA_E_BUSY);
	cr_assert_gt(begin(NULL), id);
}

Test(reload, bad_scope_opens_nothing)
{
	struct arena_scope s = ARENA_SCOPE_INIT;
	uint64_t id = 0;

	s.role = "referee";
	cr_assert_eq(reload_begin(&s, &id), ARENA_E_INVALID);
	cr_assert_eq(id, 0);
	cr_assert_not(reload_open());
	cr_assert_eq(reload_id(), 0);
	end(begin(NULL), RELOAD_PASS);
}

/* ---- scopes ---- */

Test(reload, scope)
{
	const char *path = "m.layers.0";
	struct arena_scope s = layer_scope(&path);
	uint64_t id;

	full(1);
	id = begin(&s);
	path = "m.layers.1"; /* the copy does not follow */
	stage(0, 2);
	stage(1, 2);
	cr_assert_eq(reload_commit(a[1], FAKE_STREAM), ARENA_E_SCOPE);
	cr_assert(strstr(arena_message(), "m.layers.1"));
	values(1, 1);
	commit(0);
	cr_assert(fake_lists(&end(id, RELOAD_PASS)->findings, FINDING_UNCOMMITTED, NULL));
	values(0, 2);
	values(1, 1);
	full(3); /* what was staged outside is gone */
	values(1, 3);
}

/* What was written cannot be taken back. */
Test(reload, put_directly_outside_the_scope)
{
	const char *path = "m.layers.0";
	struct arena_scope s = layer_scope(&path);
	const struct reload_outcome *o;
	uint64_t id;

	full(1);
	id = begin(&s);
	cr_assert_eq(fake_give(a[1], "w", BYTES, 2, true), 0);
	o = end(id, RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_UNCOMMITTED, "w"));
	id = begin(&s);
	cr_assert_eq(fake_give(a[0], "w", BYTES, 2, true), 0);
	commit(0);
	end(id, RELOAD_PASS);
}

Test(reload, received_and_not_put)
{
	const struct reload_outcome *o;
	struct arena *bare = fake_arena("m.norm");
	uint64_t id = begin(NULL);

	receive(a[0], "w0", 0);
	receive(bare, "norm", 0); /* it has nothing to put */
	o = end(id, RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_UNCOMMITTED, NULL));
	cr_assert_eq(o->findings.count, 1);
	id = begin(NULL);
	receive(a[0], "w0", 0);
	commit(0); /* no better */
	end(id, RELOAD_FAIL);
	world_alloc(BOUND);
	fake_add(a[0], "b", ARENA_BOUND, 64, BOUND);
	id = begin(NULL);
	receive(a[0], "w0", 0);
	commit(0); /* it may be what is bound */
	end(id, RELOAD_PASS);
}

/* ---- findings ---- */

Test(reload, staged_but_not_committed)
{
	uint64_t id = begin(NULL);
	const struct reload_outcome *o;

	stage(0, 1);
	stage(1, 1);
	commit(0);
	o = end(id, RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_UNCOMMITTED, "w"));
	cr_assert_eq(o->layers_open, 1);
	cr_assert_not(o->unsafe);
	values(0, 1);
	values(1, 0);
	id = begin(NULL);
	stage(0, 2);
	commit(0);
	/* What was dropped is missed. */
	cr_assert_eq(reload_commit(a[1], FAKE_STREAM), ARENA_E_REFUSED);
	end(id, RELOAD_FAIL);
	values(1, 0);
	full(3);
}

Test(reload, scratch_alone_needs_no_commit)
{
	struct slot *s = fake_slot(a[0], "ws", ARENA_SCRATCH, BYTES);
	uint64_t id = begin(NULL);

	fake_touch(s);
	cr_assert_eq(end(id, RELOAD_PASS)->findings.count, 0);
}

Test(reload, receipts_refuse_their_own_layer)
{
	uint64_t id = begin(NULL);
	const struct reload_outcome *o;

	receive(a[0], "w0", 0);
	receive(a[1], "w1", 0);
	stage(0, 0);
	stage(1, 0);
	commit(0);
	commit(1);
	end(id, RELOAD_PASS);
	cr_assert(manifest_known());

	id = begin(NULL);
	receive(a[0], "w0", 0);
	stage(0, 1);
	stage(1, 1);
	commit(0);
	cr_assert_eq(reload_commit(a[1], FAKE_STREAM), ARENA_E_REFUSED);
	cr_assert(strstr(arena_message(), "w1"));
	values(0, 1);
	values(1, 0);
	o = end(id, RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_SOURCE_MISSING, "w1"));
	cr_assert_eq(o->only_layers.count + o->only_model.count, 0);
	cr_assert_eq(o->layers_refused, 1);
	cr_assert_eq(o->layers_committed, 1);
	cr_assert_not(o->unsafe);
	cr_assert_not(reload_unsafe());
	cr_assert_eq(o->generation, 1);
	values(1, 0);
}

Test(reload, refused_layer_may_be_repaired)
{
	uint64_t id = begin(NULL);

	receive(a[0], "w0", 0);
	stage(0, 0);
	commit(0);
	end(id, RELOAD_PASS);
	id = begin(NULL);
	stage(0, 1);
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_REFUSED);
	receive(a[0], "w0", 0);
	stage(0, 2); /* the refusal has dropped what was staged */
	commit(0);
	end(id, RELOAD_PASS);
	values(0, 2);
}

/* What a refusal has dropped must be put again, all of it: half a layer is not published. */
Test(reload, refused_layer_is_put_again_whole)
{
	uint64_t id = begin(NULL);

	receive(a[0], "w0", 0);
	stage(0, 1);
	commit(0);
	end(id, RELOAD_PASS);
	id = begin(NULL);
	stage(0, 2);
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_REFUSED);
	cr_assert(strstr(arena_message(), "its live values stay as they were"));
	receive(a[0], "w0", 0);
	cr_assert_eq(fake_stage(a[0], "w", BYTES, 2), 0);
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_REFUSED);
	cr_assert(strstr(arena_message(), "v: its newest put"), "%s", arena_message());
	cr_assert(strstr(arena_message(), "put it again"), "%s", arena_message());
	values(0, 1);
	cr_assert_eq(fake_stage(a[0], "v", BYTES, 2), 0); /* now the other is lost */
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_REFUSED);
	values(0, 1);
	stage(0, 2);
	commit(0);
	end(id, RELOAD_PASS);
	values(0, 2);
}

Test(reload, refused_layer_may_be_put_directly)
{
	uint64_t id = begin(NULL);

	receive(a[0], "w0", 0);
	stage(0, 1);
	commit(0);
	end(id, RELOAD_PASS);
	id = begin(NULL);
	cr_assert_eq(fake_give(a[0], "w", BYTES, 2, true), 0);
	stage(0, 2);
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_REFUSED);
	cr_assert(strstr(arena_message(), "slot w was put directly and has its new value"), "%s",
		  arena_message());
	receive(a[0], "w0", 0);
	cr_assert_eq(fake_give(a[0], "w", BYTES, 2, true), 0);
	cr_assert_eq(fake_give(a[0], "v", BYTES, 2, true), 0);
	commit(0);
	end(id, RELOAD_PASS);
	values(0, 2);
}

/* A put that failed is missed, also by a caller who does not look at errors. */
Test(reload, failed_put_is_lost)
{
	const struct reload_outcome *o;
	uint64_t id = begin(NULL);

	stage(0, 1);
	fake_fail(1);
	cr_assert_eq(fake_stage(a[0], "w", BYTES, 2), ARENA_E_DEVICE);
	fake_fail(0);
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_REFUSED);
	values(0, 0);
	end(id, RELOAD_FAIL);
	full(0);
	id = begin(NULL);
	commit(0);
	fake_fail(1);
	cr_assert_eq(fake_give(a[0], "w", BYTES, 2, true), ARENA_E_DEVICE);
	fake_fail(0);
	o = end(id, RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_UNCOMMITTED, "w"));
	values(0, 0);
}

/* What only one of the two sets has is named: here the model sees what no layer committed. */
Test(reload, views_are_compared)
{
	uint64_t id = begin(NULL);
	const struct reload_outcome *o;

	receive(NULL, "norm", 0);
	receive(a[0], "w0", 0);
	stage(0, 0);
	commit(0);
	end(id, RELOAD_PASS);
	id = begin(NULL);
	stage(0, 1);
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_REFUSED);
	receive(a[0], "w0", 0); /* too late: the layer is not committed again */
	o = end(id, RELOAD_FAIL);
	cr_assert_eq(o->only_layers.count, 1);
	cr_assert(fake_lists(&o->only_layers, FINDING_SOURCE_MISSING, "w0"));
	cr_assert_eq(o->only_model.count, 1);
	cr_assert(fake_lists(&o->only_model, FINDING_SOURCE_MISSING, "norm"));
	cr_assert_eq(o->findings.count, 2);
}

/* What was learned has no roles: nobody can say that the draft model is complete. */
Test(reload, nothing_says_what_is_of_a_role)
{
	struct arena_scope s = ARENA_SCOPE_INIT;
	uint64_t id = begin(NULL);

	receive(a[0], "w0", 0);
	stage(0, 0);
	commit(0);
	end(id, RELOAD_PASS);
	s.role = "draft";
	cr_assert_neq(end(begin(&s), RELOAD_UNPROVEN)->why[0], '\0');
}

Test(reload, nothing_says_how_to_complete_a_part)
{
	const char *path = "m.layers.0";
	struct arena_scope s = layer_scope(&path);
	uint64_t id = begin(&s);
	const struct reload_outcome *o;

	receive(a[0], "w0", 0);
	stage(0, 1);
	commit(0);
	o = end(id, RELOAD_UNPROVEN);
	cr_assert_neq(o->why[0], '\0');
	cr_assert_eq(o->generation, 0);
	cr_assert_not(manifest_known());
	reload_accepts_unproven = true;
	id = begin(&s);
	receive(a[0], "w0", 0);
	stage(0, 1);
	commit(0);
	cr_assert_eq(end(id, RELOAD_UNPROVEN)->generation, 1);
	cr_assert_not(manifest_known());
}

/* A bound tensor that a graph holds has moved. */
Test(reload, moved_slot_refuses_its_layer)
{
	struct slot *b;
	uint64_t id;
	const struct reload_outcome *o;

	world_alloc(BOUND);
	world_alloc(BOUND + MIB);
	b = fake_add(a[0], "b", ARENA_BOUND, 64, BOUND);
	world_exec(1, KERNEL(1, 1, BOUND));
	id = begin(NULL);
	stage(0, 1);
	stage(1, 1);
	fake_bind(b, BOUND + MIB);
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_REFUSED);
	cr_assert(strstr(arena_message(), "b"));
	commit(1);
	o = end(id, RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_MOVED, "b"));
	cr_assert_eq(o->only_layers.count + o->only_model.count, 0);
	cr_assert_not(o->unsafe);
	values(0, 0);
	values(1, 1);
	/* Nothing is sticky. */
	fake_bind(b, BOUND);
	full(2);
}

static int copy_and_commit(const struct device_copy *ops, uint32_t count, uint64_t stream)
{
	device.copy = fake_copy;
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_BUSY);
	cr_assert(strstr(arena_message(), "m.layers.0"));
	commit(1); /* another layer is free */
	return fake_copy(ops, count, stream);
}

Test(reload, one_commit_of_a_layer_at_a_time)
{
	uint64_t id = begin(NULL);

	stage(0, 1);
	stage(1, 1);
	device.copy = copy_and_commit;
	commit(0);
	cr_assert_eq(end(id, RELOAD_PASS)->layers_committed, 2);
	values(0, 1);
	values(1, 1);
}

static struct slot *wanderer;

static int copy_and_move(const struct device_copy *ops, uint32_t count, uint64_t stream)
{
	fake_bind(wanderer, BOUND + MIB);
	return fake_copy(ops, count, stream);
}

/* Found only after the publication: the layer has its new values, and nobody can vouch for it. */
Test(reload, moved_while_it_was_published)
{
	const struct reload_outcome *o;
	uint64_t id;

	world_alloc(BOUND);
	world_alloc(BOUND + MIB);
	wanderer = fake_add(a[0], "b", ARENA_BOUND, 64, BOUND);
	world_exec(1, KERNEL(1, 1, BOUND));
	id = begin(NULL);
	stage(0, 1);
	device.copy = copy_and_move;
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_REFUSED);
	device.copy = fake_copy;
	cr_assert(reload_unsafe());
	o = end(id, RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_MOVED, "b"));
	cr_assert(fake_lists(&o->findings, FINDING_RELOAD_FAILED, NULL));
	id = begin(NULL);
	fake_bind(wanderer, BOUND); /* it is in doubt as well */
	stage(0, 2);
	commit(0);
	end(id, RELOAD_PASS);
	cr_assert_not(reload_unsafe());
}

/* ---- abort and unsafe ---- */

Test(reload, abort_keeps_the_reason)
{
	uint64_t id = begin(NULL);
	char why[] = "loader raised: no such shard";
	const struct reload_outcome *o;

	stage(0, 1);
	stage(1, 1);
	commit(0);
	o = stop(id, why);
	why[0] = 'X';
	cr_assert_str_eq(o->why, "loader raised: no such shard");
	cr_assert_eq(o->findings.count, 0); /* that nothing is complete needs no saying */
	cr_assert_eq(o->layers_open, 1);
	cr_assert_eq(o->generation, 0);
	values(0, 1);
	values(1, 0);
	cr_assert_str_eq(stop(begin(NULL), NULL)->why, "");
}

Test(reload, only_a_full_one_that_passes_recovers)
{
	const char *path = "m.layers.0";
	struct arena_scope s = layer_scope(&path);
	const struct reload_outcome *o;
	uint64_t id = begin(NULL);

	stage(0, 1);
	commit(0);
	stop(id, "cancelled");

	id = begin(&s);
	stage(0, 2);
	commit(0);
	cr_assert(end(id, RELOAD_PASS)->unsafe);

	id = begin(NULL); /* full, but fails */
	stage(0, 2);
	end(id, RELOAD_FAIL);
	cr_assert(reload_unsafe());

	id = begin(NULL); /* full, but leaves out what nobody can vouch for */
	o = end(id, RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_UNCOMMITTED, NULL));
	cr_assert(reload_unsafe());

	id = begin(NULL);
	stage(0, 2);
	commit(0);
	cr_assert_not(end(id, RELOAD_PASS)->unsafe);
	cr_assert_not(reload_unsafe());
}

static int put_half(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t stream)
{
	fake_move(dst, src, bytes / 2);
	return -EREMOTEIO;
}

/* A write that failed half way outside of a reload; and nothing but its whole layer helps. */
Test(reload, half_a_direct_put_is_in_doubt)
{
	const struct reload_outcome *o;
	uint64_t id;

	full(1);
	device.put = put_half;
	cr_assert_eq(fake_give(a[0], "w", BYTES, 2, true), ARENA_E_UNSAFE);
	device.put = fake_put;
	cr_assert(reload_unsafe());
	o = end(begin(NULL), RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_UNCOMMITTED, "w"));
	cr_assert(reload_unsafe());
	id = begin(NULL);
	cr_assert_eq(fake_give(a[0], "w", BYTES, 2, true), 0);
	commit(0); /* the layer, but not all of it */
	o = end(id, RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_UNCOMMITTED, "v"));
	id = begin(NULL);
	cr_assert_eq(fake_give(a[0], "w", BYTES, 2, true), 0);
	cr_assert_eq(fake_give(a[0], "v", BYTES, 2, false), 0);
	commit(0);
	cr_assert_not(end(id, RELOAD_PASS)->unsafe);
	values(0, 2);
}

/* Bound memory is loaded by somebody else: what he tells counts. */
Test(reload, bound_slots_are_in_doubt)
{
	struct arena *bare = fake_arena("m.norm");
	const struct reload_outcome *o;
	struct slot *b;
	uint64_t id;

	world_alloc(BOUND);
	b = fake_add(bare, "b", ARENA_BOUND, 64, BOUND);
	id = begin(NULL);
	receive(bare, "norm", 0);
	stop(id, "cancelled");
	o = end(begin(NULL), RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_UNCOMMITTED, "b"));
	id = begin(NULL);
	fake_bind(b, BOUND);
	cr_assert_not(end(id, RELOAD_PASS)->unsafe);
	id = begin(NULL);
	fake_bind(b, BOUND);
	stop(id, "cancelled");
	end(begin(NULL), RELOAD_FAIL);
	id = begin(NULL);
	receive(bare, "norm", 0);
	cr_assert_not(end(id, RELOAD_PASS)->unsafe);
}

Test(reload, captured_while_unsafe)
{
	guard_refuses = true;
	world_alloc(BOUND);
	stop(begin(NULL), "cancelled");
	world_exec(1, KERNEL(1, 1, BOUND));
	cr_assert_not(guard_launch(1, STREAM));
	end(begin(NULL), RELOAD_PASS);
	cr_assert(guard_launch(1, STREAM));
	guard_launched();
}

Test(reload, unsafe_process_launches_nothing_under_strict)
{
	unsigned before;
	char text[256];

	world_alloc(BOUND);
	world_exec(1, KERNEL(1, 1, BOUND));
	stop(begin(NULL), "cancelled");
	cr_assert(guard_launch(1, STREAM)); /* warn */
	guard_launched();
	cr_assert_eq(world_findings, 0);

	guard_refuses = true;
	full(1);
	cr_assert(guard_launch(1, STREAM));
	guard_launched();
	stop(begin(NULL), "cancelled");
	cr_assert_not(guard_launch(1, STREAM));
	cr_assert_eq(world_found.kind, FINDING_RELOAD_FAILED);
	cr_assert(world_found.refused);
	finding_text(&world_found, text, sizeof(text));
	cr_assert(strstr(text, "was not launched: the process is unsafe"), "%s", text);
	before = world_findings;
	cr_assert_not(guard_launch(1, STREAM)); /* said once */
	cr_assert_eq(world_findings, before);
	world_exec(2, KERNEL(1, 1, BOUND)); /* captured since: no better */
	cr_assert_not(guard_launch(2, STREAM));
	cr_assert_not(guard_launch(99, STREAM)); /* nor is one that we do not know */
	full(2);
	for (uint64_t handle = 1; handle <= 2; handle++) {
		cr_assert(guard_launch(handle, STREAM));
		guard_launched();
	}
	cr_assert(guard_launch(99, STREAM));
}

/* ---- caches ---- */

static unsigned flushes;
static uint64_t flushed_generation;
static int flush_result;

static int flush(void *ctx, uint64_t generation)
{
	++*(unsigned *)ctx;
	flushed_generation = generation;
	/* Callbacks run without locks. */
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_BUSY);
	/* Nor would anything publish what is put now. */
	cr_assert_eq(fake_give(a[0], "w", BYTES, 9, false), ARENA_E_BUSY);
	cr_assert(strstr(arena_message(), "put after it has ended"));
	cr_assert_eq(fake_give(a[0], "w", BYTES, 9, true), ARENA_E_BUSY);
	return flush_result;
}

Test(reload, caches)
{
	const struct reload_outcome *o;
	uint64_t id;

	cr_assert_eq(cache_register("", flush, NULL), ARENA_E_INVALID);
	cr_assert_eq(cache_flushed("prefix"), ARENA_E_UNKNOWN);
	cr_assert_eq(cache_register("prefix", flush, &flushes), 0);
	full(1);
	cr_assert_eq(flushes, 1);
	cr_assert_eq(flushed_generation, reload_generation());

	flush_result = -1;
	id = begin(NULL);
	o = end(id, RELOAD_FAIL);
	cr_assert(fake_lists(&o->findings, FINDING_STALE_CACHE, "prefix"));
	cr_assert_not(o->unsafe);
	cr_assert_eq(reload_generation(), 1);

	cr_assert_eq(cache_register("prefix", NULL, NULL), 0);
	end(begin(NULL), RELOAD_FAIL);
	cr_assert_eq(cache_flushed("prefix"), 0); /* outside: of no reload */
	end(begin(NULL), RELOAD_FAIL);
	id = begin(NULL);
	cr_assert_eq(cache_flushed("prefix"), 0);
	end(id, RELOAD_PASS);
}

Test(reload, caches_are_flushed_when_something_was_published)
{
	uint64_t id;

	cr_assert_eq(cache_register("prefix", flush, &flushes), 0);
	id = begin(NULL);
	stage(0, 1);
	end(id, RELOAD_FAIL);
	cr_assert_eq(flushes, 0);
	id = begin(NULL);
	stage(0, 1);
	stage(1, 1);
	commit(0);
	end(id, RELOAD_FAIL);
	cr_assert_eq(flushes, 1);
	stop(begin(NULL), "cancelled");
	cr_assert_eq(flushes, 1);
}

static _Atomic bool went_on;

static void *begin_and_say(void *id)
{
	cr_assert_eq(reload_begin(NULL, id), 0);
	store_relaxed(&went_on, true);
	return NULL;
}

static void *end_and_say(void *id)
{
	struct reload_outcome o;

	cr_assert_eq(reload_end(*(uint64_t *)id, &o), 0);
	store_relaxed(&went_on, true);
	reload_outcome_free(&o);
	return NULL;
}

/* A put is wholly in a reload, or not at all. */
Test(reload, puts_are_waited_for)
{
	void *(*const steps[])(void *) = { begin_and_say, end_and_say };
	uint64_t id = 0, put;
	pthread_t thread;

	for (int i = 0; i < 2; i++) {
		cr_assert_eq(reload_enter_put(&put), 0);
		cr_assert_eq(put, id);
		store_relaxed(&went_on, false);
		pthread_create(&thread, NULL, steps[i], &id);
		for (int k = 0; k < 2000; k++)
			sched_yield();
		cr_assert_not(load_relaxed(&went_on));
		reload_leave_put();
		pthread_join(thread, NULL);
		cr_assert(load_relaxed(&went_on));
	}
}

/* What comes from nowhere does not surface in a later reload. */
Test(reload, leftovers_are_discarded)
{
	uint64_t id;

	full(1);
	stage(0, 2);
	id = begin(NULL);
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_REFUSED);
	end(id, RELOAD_FAIL);
	values(0, 1);
}

/* ---- the driver fails, at each step ---- */

/* Is every value of the layer the same? */
static int layer_value(int l)
{
	return fake_value(w[l]) == fake_value(v[l]) ? fake_value(w[l]) : -1;
}

Test(reload, driver_errors_at_each_step_of_a_commit)
{
	uint64_t baseline, id;
	int rc = -1;

	full(1);
	baseline = load_relaxed(&fake.bytes_live);
	for (uint64_t nth = 1; rc != 0; nth++) {
		cr_assert_lt(nth, 50);
		id = begin(NULL);
		stage(0, 2);
		fake_fail(nth);
		rc = reload_commit(a[0], FAKE_STREAM);
		fake_fail(0);
		cr_assert(rc == 0 || rc == ARENA_E_DEVICE, "%d", rc);
		cr_assert_eq(layer_value(0), rc == 0 ? 2 : 1);
		cr_assert_not(reload_unsafe());
		end(id, rc == 0 ? RELOAD_PASS : RELOAD_FAIL);
		cr_assert_eq(load_relaxed(&fake.bytes_live), baseline);
	}
}

Test(reload, failed_commit_may_be_tried_again)
{
	uint64_t id = begin(NULL);

	stage(0, 1);
	fake_fail(1);
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_DEVICE);
	fake_fail(0);
	values(0, 0);
	commit(0);
	values(0, 1);
	end(id, RELOAD_PASS);
}

Test(reload, half_a_publication_is_unsafe)
{
	const struct reload_outcome *o;
	uint64_t id = begin(NULL);

	stage(0, 1);
	store_relaxed(&fake.half, true);
	fake_fail(1);
	cr_assert_eq(reload_commit(a[0], FAKE_STREAM), ARENA_E_UNSAFE);
	fake_fail(0);
	cr_assert(reload_unsafe());
	cr_assert_eq(layer_value(0), -1);
	o = end(id, RELOAD_FAIL);
	cr_assert(o->unsafe);
	cr_assert(fake_lists(&o->findings, FINDING_RELOAD_FAILED, NULL));
	full(2);
	cr_assert_not(reload_unsafe());
	values(0, 2);
}

/* ---- nothing is left behind ---- */

Test(reload, reloads_leak_nothing)
{
	uint64_t device_bytes = 0, host_bytes = 0;

	for (int i = 0; i < 2000; i++) {
		uint64_t id = begin(NULL);

		receive(a[0], "w0", (uint64_t)i % 3 ? 0 : 1);
		receive(a[1], "w1", 0);
		stage(0, i & 0x7f);
		stage(1, i & 0x7f);
		reload_commit(a[0], FAKE_STREAM);
		if (i % 2) {
			struct reload_outcome o;

			cr_assert_eq(reload_end(id, &o), 0);
			reload_outcome_free(&o);
		} else {
			stop(id, "cancelled");
		}
		if (i == 300) {
			device_bytes = load_relaxed(&fake.bytes_live);
			host_bytes = slab_bytes();
		}
	}
	cr_assert_eq(load_relaxed(&fake.bytes_live), device_bytes);
	cr_assert_eq(slab_bytes(), host_bytes);
}
