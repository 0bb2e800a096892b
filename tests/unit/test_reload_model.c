/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random reloads against a reference model, with a printed seed (ARENA_TEST_SEED): arrays, no
 * sets, no locks. Compared are results, live values, verdicts, sets of findings, unsafe,
 * which launches are refused, and the device memory that is left.
 */
#include "world.h"

#include "fake_device.h"
#include "seed.h"

#define STEPS  20000
#define LAYERS 3
#define VALUES 3
#define PARTS  2
#define BYTES  300u
#define NONE   (-1)
#define MIXED  (-2) /* nobody knows */

#define BOUND(l, at) (0x7f0000000000ull + ((uint64_t)(l)*2 + (at)) * 2 * MIB)

/* The findings of one layer, as bits. */
enum {
	MISSING_SOURCE = 1,
	UNEXPECTED = 2,
	DUPLICATE = 4,
	SHORT = 8,
	MOVED = 16,
	FAILED = 32,
	UNCOMMITTED = 64,
	BLOCKING = MISSING_SOURCE | UNEXPECTED | DUPLICATE | SHORT | MOVED | FAILED | UNCOMMITTED,
};

struct layer {
	int live[VALUES], staged[VALUES]; /* staged: NONE, or the value */
	int wanted[VALUES];		  /* of the newest put in the open reload; NONE: none */
	bool direct[VALUES];		  /* written at once in it */
	bool lost[VALUES];		  /* put, and nowhere, in it or before */
	bool rebound;			  /* in it */
	bool committed, refused, in_doubt, in_scope;
	bool withheld;		     /* its graphs are refused for its values */
	bool tried;		     /* a commit verified it */
	unsigned found, again_found; /* by its newest commit; how many duplicates it saw */
	int bound, bound_before;     /* which of two places, now and at begin */
	bool moved;		     /* the reload before found it elsewhere: so it stays */
	unsigned got, again;	     /* receipts: mask of parts, how many came again */
	unsigned expected;	     /* parts that the manifest names, 0: not in it */
};

static struct layer layers[LAYERS];
static struct {
	bool open, full, unsafe, flush_fails, known;
	uint64_t id, generation, last_id;
} now;

static struct arena *arenas[LAYERS];
static struct slot *slots[LAYERS][VALUES], *bounds[LAYERS];
static const char *const paths[LAYERS] = { "m.layers.0", "m.layers.1", "m.layers.10" };
static const char *const names[VALUES] = { "w", "v", "scale" };
static const char *const keys[LAYERS] = { "k0", "k1", "k2" };
static uint64_t seed;
static unsigned passes, fails, unprovens, aborts, breaks, refusals, recoveries, withheld;

static unsigned below(unsigned limit)
{
	return (unsigned)seed_below(&seed, limit);
}

static int flush(void *ctx, uint64_t generation)
{
	return now.flush_fails;
}

static void start(void)
{
	world_start();
	fake_start();
	device.finding = NULL; /* there are thousands */
	seed = seed_start("reload_model");
	for (int l = 0; l < LAYERS; l++) {
		arenas[l] = fake_arena(paths[l]);
		for (int i = 0; i < VALUES; i++) {
			slots[l][i] = fake_slot(arenas[l], names[i], ARENA_VALUE, BYTES);
			layers[l].staged[i] = NONE;
		}
		world_alloc(BOUND(l, 0));
		world_alloc(BOUND(l, 1));
		bounds[l] = fake_add(arenas[l], "bound", ARENA_BOUND, 64, BOUND(l, 0));
		world_exec((uint64_t)l + 1, KERNEL(1, 1, BOUND(l, 0)));
	}
	cr_assert_eq(cache_register("prefix", flush, NULL), 0);
	guard_refuses = true;
}

TestSuite(reload_model, .init = start, .timeout = 120);

/* ---- the model's judgement ---- */

static unsigned judge_source(const struct layer *y)
{
	unsigned bits = 0;

	if (!y->got)
		return y->expected && y->in_scope ? MISSING_SOURCE : 0;
	if (!y->in_scope || (now.known && !y->expected))
		bits |= UNEXPECTED;
	if (y->again)
		bits |= DUPLICATE;
	if (y->expected && y->expected != (unsigned)__builtin_popcount(y->got))
		bits |= SHORT;
	return bits;
}

static unsigned judge_layer(const struct layer *y)
{
	/* The exec has the first place, so that only leaving it matters. */
	return judge_source(y) | (y->bound_before == 0 && y->bound == 1 ? MOVED : 0);
}

static bool has_staged(const struct layer *y)
{
	for (int i = 0; i < VALUES; i++)
		if (y->staged[i] != NONE)
			return true;
	return false;
}

static bool has_put(const struct layer *y)
{
	for (int i = 0; i < VALUES; i++)
		if (y->wanted[i] != NONE)
			return true;
	return false;
}

static bool has_direct(const struct layer *y)
{
	for (int i = 0; i < VALUES; i++)
		if (y->direct[i])
			return true;
	return false;
}

/* Is there a slot whose newest value is neither live nor staged? */
static bool has_lost(const struct layer *y)
{
	for (int i = 0; i < VALUES; i++)
		if (y->lost[i])
			return true;
	return false;
}

/* Was each slot put in this reload? */
static bool has_all(const struct layer *y)
{
	for (int i = 0; i < VALUES; i++)
		if (y->wanted[i] == NONE)
			return false;
	return true;
}

/* May the layer have other values than at begin? */
static bool is_changed(const struct layer *y)
{
	return y->committed || has_direct(y) || y->rebound || y->got;
}

/* Has every slot what was asked for in this reload? */
static bool is_whole(const struct layer *y)
{
	for (int i = 0; i < VALUES; i++)
		if (y->wanted[i] == NONE || y->wanted[i] != y->live[i])
			return false;
	return y->rebound || y->got;
}

/* @return 0, 1: told, 2: and it fails the reload. */
static int judge_open(const struct layer *y)
{
	if (!y->in_scope)
		return has_direct(y) ? 2 : has_staged(y);
	if (now.full && now.unsafe && y->in_doubt && !is_whole(y))
		return 2;
	if (has_staged(y) || (has_lost(y) && !y->refused))
		return 2;
	if (y->refused)
		return 0;
	if (y->committed)
		return now.full && has_put(y) && !has_all(y);
	return has_put(y) ? 1 : y->got ? 2 : 0;
}

/* Something arrived, and nothing says what else must. */
static bool is_blind(void)
{
	bool received = false;

	for (int l = 0; l < LAYERS; l++) {
		received |= layers[l].got != 0;
		if (layers[l].expected && layers[l].in_scope)
			return false;
	}
	return received && !now.full;
}

/* ---- what the implementation says ---- */

static unsigned bit_of(const struct slot_finding *f)
{
	switch (f->kind) {
	case FINDING_SOURCE_MISSING:
		return MISSING_SOURCE;
	case FINDING_SOURCE_UNEXPECTED:
		return UNEXPECTED;
	case FINDING_SOURCE_DUPLICATE:
		return DUPLICATE;
	case FINDING_SOURCE_SHORT:
		return SHORT;
	case FINDING_RELOAD_FAILED:
		return FAILED;
	case FINDING_UNCOMMITTED:
		return UNCOMMITTED;
	/* What no exec refers to is at most information. */
	case FINDING_MOVED:
		return f->severity == SEVERITY_ERROR ? MOVED : 0;
	default:
		return 0;
	}
}

static unsigned bits_of(const struct slot_findings *f, int l)
{
	unsigned bits = 0;

	for (uint32_t i = 0; i < f->count; i++)
		if (strcmp(interned(f->list[i].path), paths[l]) == 0)
			bits |= bit_of(&f->list[i]);
	return bits;
}

static void check_values(void)
{
	for (int l = 0; l < LAYERS; l++)
		for (int i = 0; i < VALUES; i++)
			cr_assert_eq(fake_value(slots[l][i]), layers[l].live[i]);
}

/* ---- steps ---- */

/* A value that the slot has nowhere. */
static int fresh_value(const struct layer *y, int i)
{
	int value = (int)below(250);

	while (value == y->live[i] || value == y->staged[i])
		value = (value + 1) % 250;
	return value;
}

static void step_stage(int l, int i)
{
	struct layer *y = &layers[l];
	int value = fresh_value(y, i);
	bool armed = below(12) == 0;
	int rc;

	if (!now.open) /* the API stages only in a reload */
		return;
	fake_fail(armed ? 1 + below(2) : 0);
	rc = fake_stage(arenas[l], names[i], BYTES, value);
	fake_fail(0);
	cr_assert(rc == 0 || (armed && rc == ARENA_E_DEVICE), "%d", rc);
	y->wanted[i] = value;
	y->lost[i] = rc != 0;
	/* A put that failed half way has spoilt the shadow; one that found none made none. */
	y->staged[i] = rc == 0 ? value : NONE;
}

static void step_direct(int l)
{
	struct layer *y = &layers[l];
	int i = (int)below(VALUES), value = fresh_value(y, i);
	bool armed = below(8) == 0;
	int rc;

	fake_fail(armed ? 1 : 0);
	rc = fake_give(arenas[l], names[i], BYTES, value, true);
	fake_fail(0);
	cr_assert(rc == 0 || (armed && rc == ARENA_E_DEVICE), "%d", rc);
	if (rc == 0) {
		y->live[i] = value;
		y->staged[i] = NONE;
		y->lost[i] = false;
	}
	if (!now.open)
		return;
	y->lost[i] = rc != 0;
	y->wanted[i] = value;
	y->direct[i] |= rc == 0;
}

static void rebind(int l, int at)
{
	layers[l].bound = at;
	layers[l].rebound = now.open;
	fake_bind(bounds[l], BOUND(l, at));
}

static void step_bind(int l)
{
	rebind(l, (int)below(4) == 0);
}

static void step_receive(int l)
{
	struct layer *y = &layers[l];
	unsigned part = below(PARTS);
	int rc;

	/* Mostly what is still missing. */
	if (y->got & 1u << part && below(8))
		part = !part;
	if (y->got & 1u << part && below(8))
		return;
	cr_assert_eq(scope_enter(arenas[l]), 0);
	rc = reload_receive(keys[l], part, 8);
	cr_assert_eq(scope_leave(), 0);
	cr_assert_eq(rc, now.open ? 0 : ARENA_E_BUSY);
	if (rc)
		return;
	y->again += (y->got & 1u << part) != 0;
	y->got |= 1u << part;
}

static void step_launch(int l)
{
	bool refused = now.unsafe || layers[l].bound != 0 || layers[l].withheld;

	withheld += layers[l].withheld;
	cr_assert_eq(guard_launch((uint64_t)l + 1, STREAM), !refused);
	guard_launched();
}

static void scope_choose(const char **list, struct arena_scope *scope)
{
	now.full = below(5) < 3;
	for (int l = 0; l < LAYERS; l++) {
		layers[l].in_scope = now.full || below(2);
		if (!now.full && layers[l].in_scope)
			list[scope->layers_count++] = paths[l];
	}
	scope->layers = list;
	if (scope->layers_count == 0) { /* an empty list is everything */
		now.full = true;
		for (int l = 0; l < LAYERS; l++)
			layers[l].in_scope = true;
	}
}

static void step_begin(void)
{
	struct arena_scope scope = ARENA_SCOPE_INIT;
	const char *list[LAYERS];
	uint64_t id = 0;

	if (now.open) {
		cr_assert_eq(reload_begin(NULL, &id), ARENA_E_BUSY);
		return;
	}
	scope_choose(list, &scope);
	cr_assert_eq(reload_begin(&scope, &id), 0);
	cr_assert_gt(id, now.last_id);
	now.open = true;
	now.id = now.last_id = id;
	for (int l = 0; l < LAYERS; l++) {
		struct layer *y = &layers[l];

		y->committed = y->refused = y->tried = false;
		y->found = y->again_found = 0;
		y->bound_before = y->moved ? y->bound_before : y->bound;
		y->got = y->again = 0;
		y->rebound = false;
		for (int i = 0; i < VALUES; i++) {
			y->wanted[i] = NONE;
			y->direct[i] = false;
		}
	}
}

static void drop_staged(struct layer *y)
{
	for (int i = 0; i < VALUES; i++) {
		y->lost[i] |= y->staged[i] != NONE;
		y->staged[i] = NONE;
	}
}

/* The driver gave up half way: each value is the old or the new one. */
static void accept_half(int l)
{
	struct layer *y = &layers[l];

	for (int i = 0; i < VALUES; i++) {
		int value = fake_value(slots[l][i]);

		cr_assert(value == y->live[i] || value == y->staged[i]);
		y->live[i] = value;
		if (y->staged[i] != NONE)
			y->wanted[i] = MIXED;
	}
	drop_staged(y);
	y->found |= FAILED;
	y->refused = y->committed = true;
	now.unsafe = true;
	breaks++;
}

static void accept_commit(int l)
{
	struct layer *y = &layers[l];

	for (int i = 0; i < VALUES; i++)
		if (y->staged[i] != NONE)
			y->live[i] = y->staged[i];
	for (int i = 0; i < VALUES; i++)
		y->staged[i] = NONE;
	y->committed = true;
	y->refused = false;
}

static void step_commit(int l)
{
	struct layer *y = &layers[l];
	bool armed = below(10) == 0, half = below(2);
	int rc;

	store_relaxed(&fake.half, half);
	fake_fail(armed ? 1 + below(3) : 0);
	rc = reload_commit(arenas[l], FAKE_STREAM);
	fake_fail(0);
	if (!now.open) {
		cr_assert_eq(rc, ARENA_E_BUSY);
		return;
	}
	if (!y->in_scope) {
		cr_assert_eq(rc, ARENA_E_SCOPE);
		return;
	}
	y->tried = true;
	y->found = judge_layer(y) | (has_lost(y) ? UNCOMMITTED : 0);
	y->again_found = y->again;
	if (y->found) {
		cr_assert_eq(rc, ARENA_E_REFUSED, "layer %d: %d, not refused for %x", l, rc,
			     y->found);
		y->refused = true;
		drop_staged(y);
		refusals++;
	} else if (rc == 0) {
		accept_commit(l);
	} else if (rc == ARENA_E_UNSAFE) {
		cr_assert(armed && half);
		accept_half(l);
	} else {
		cr_assert(armed && rc == ARENA_E_DEVICE, "%d: %s", rc, arena_message());
	}
}

/* Sets of findings: what the layers and the model have in common, and what only one has. */
static void check_findings(const struct reload_outcome *o, bool aborted)
{
	for (int l = 0; l < LAYERS; l++) {
		const struct layer *y = &layers[l];
		unsigned model = judge_layer(y), common = model & y->found;
		unsigned all = model | y->found;

		/* How many came again is told, so that other numbers are other findings. */
		if (common & DUPLICATE && y->again != y->again_found)
			common &= ~(unsigned)DUPLICATE;
		if (!aborted && judge_open(y))
			all |= UNCOMMITTED;
		cr_assert_eq(bits_of(&o->findings, l), all, "layer %d: %x, not %x", l,
			     bits_of(&o->findings, l), all);
		cr_assert_eq(bits_of(&o->only_layers, l), y->found & ~common);
		cr_assert_eq(bits_of(&o->only_model, l), model & ~common);
	}
}

static enum reload_verdict expect(bool *flushed)
{
	bool failed = false, changed = false;

	for (int l = 0; l < LAYERS; l++) {
		const struct layer *y = &layers[l];

		failed |= y->refused || ((judge_layer(y) | y->found) & BLOCKING) != 0;
		failed |= judge_open(y) == 2;
		changed |= is_changed(y);
	}
	*flushed = !failed || changed;
	if (failed || now.flush_fails)
		return RELOAD_FAIL;
	return is_blind() ? RELOAD_UNPROVEN : RELOAD_PASS;
}

static bool is_reached(const struct layer *y)
{
	return y->committed || y->refused || y->got || y->rebound || has_put(y);
}

/* Whose values are wrong, in a reload that changed anything. */
static void close_withheld(bool passed)
{
	const unsigned sources = MISSING_SOURCE | UNEXPECTED | DUPLICATE | SHORT;
	bool changed = false;

	for (int l = 0; l < LAYERS; l++)
		changed |= is_changed(&layers[l]);
	for (int l = 0; l < LAYERS; l++) {
		struct layer *y = &layers[l];
		bool wrong = changed && (judge_open(y) == 2 || (y->found & UNCOMMITTED) ||
					 ((judge_layer(y) | y->found) & sources));

		if (wrong || (passed && now.full) || (is_reached(y) && !y->refused))
			y->withheld = wrong;
	}
}

/* What stays of the reload. */
static void close_model(enum reload_verdict verdict)
{
	bool passed = verdict == RELOAD_PASS, any = false;

	for (int l = 0; l < LAYERS; l++) {
		struct layer *y = &layers[l];

		if (passed && is_whole(y))
			y->in_doubt = false;
		if (!passed && now.unsafe && is_reached(y))
			y->in_doubt = true;
		y->moved = ((judge_layer(y) | y->found) & MOVED) != 0;
		drop_staged(y);
		any |= y->got != 0;
	}
	now.open = false;
	now.generation += passed;
	if (!passed || !now.full)
		return;
	recoveries += now.unsafe;
	now.unsafe = false;
	for (int l = 0; l < LAYERS && !now.known; l++)
		layers[l].expected = (unsigned)__builtin_popcount(layers[l].got);
	now.known |= any;
}

static void check_closed(const struct reload_outcome *o)
{
	cr_assert_not(reload_open());
	cr_assert_eq(o->unsafe, now.unsafe);
	cr_assert_eq(reload_unsafe(), now.unsafe);
	cr_assert_eq(o->generation, now.generation);
	cr_assert_eq(manifest_known(), now.known);
	/* No shadow is left. */
	cr_assert_eq(load_relaxed(&fake.bytes_live), storage_bytes());
}

static void step_end(void)
{
	struct reload_outcome o;
	enum reload_verdict want;
	bool flushed;

	if (!now.open) {
		cr_assert_eq(reload_end(now.last_id, &o), ARENA_E_BUSY);
		return;
	}
	if (below(8) == 0)
		cr_assert_eq(reload_end(now.id + 1, &o), ARENA_E_UNKNOWN);
	now.flush_fails = below(8) == 0;
	want = expect(&flushed);
	cr_assert_eq(reload_end(now.id, &o), 0);
	cr_assert_eq(o.verdict, want, "verdict %d, not %d", o.verdict, want);
	check_findings(&o, false);
	cr_assert_eq(fake_lists(&o.findings, FINDING_STALE_CACHE, "prefix"),
		     flushed && now.flush_fails);
	passes += want == RELOAD_PASS;
	fails += want == RELOAD_FAIL;
	unprovens += want == RELOAD_UNPROVEN;
	close_withheld(want == RELOAD_PASS);
	close_model(want);
	check_closed(&o);
	reload_outcome_free(&o);
}

static void step_abort(void)
{
	struct reload_outcome o;
	bool changed = false;

	if (!now.open)
		return;
	for (int l = 0; l < LAYERS; l++)
		changed |= is_changed(&layers[l]);
	cr_assert_eq(reload_abort(now.id, "cancelled", &o), 0);
	cr_assert_eq(o.verdict, RELOAD_FAIL);
	cr_assert_str_eq(o.why, "cancelled");
	check_findings(&o, true);
	cr_assert_eq(fake_lists(&o.findings, FINDING_STALE_CACHE, "prefix"), changed);
	aborts++;
	now.unsafe = true;
	close_model(RELOAD_FAIL);
	check_closed(&o);
	reload_outcome_free(&o);
}

static void step_forget_manifest(void)
{
	if (now.open)
		return;
	manifest_clear();
	now.known = false;
	for (int l = 0; l < LAYERS; l++)
		layers[l].expected = 0;
}

/* A reload as it should be, so that the good way is not a matter of luck. */
static void step_whole(void)
{
	if (now.open)
		return;
	step_begin();
	for (int l = 0; l < LAYERS; l++) {
		if (layers[l].bound != layers[l].bound_before)
			rebind(l, layers[l].bound_before);
		for (int part = 0; part < PARTS; part++)
			if (layers[l].in_scope)
				step_receive(l);
		for (int i = 0; i < VALUES; i++)
			step_stage(l, i);
		step_commit(l);
	}
	if (below(2))
		step_end();
}

static void step(void)
{
	int l = (int)below(LAYERS);

	switch (below(24)) {
	case 0:
	case 1:
	case 2:
		step_stage(l, (int)below(VALUES));
		break;
	case 3:
		step_direct(l);
		break;
	case 4:
		step_bind(l);
		break;
	case 5:
	case 6:
	case 7:
	case 8:
	case 9:
		step_receive(l);
		break;
	case 10:
	case 11:
	case 12:
		step_launch(l);
		break;
	case 13:
	case 14:
		step_begin();
		break;
	case 15:
	case 16:
	case 17:
	case 18:
		step_commit(l);
		break;
	case 19:
	case 20:
		step_end();
		break;
	case 21:
		if (below(4) == 0)
			step_abort();
		break;
	case 22:
		if (below(20) == 0)
			step_forget_manifest();
		break;
	default:
		step_whole();
	}
}

Test(reload_model, random)
{
	for (unsigned i = 0; i < STEPS; i++) {
		step();
		check_values();
		cr_assert_eq(reload_open(), now.open);
		cr_assert_eq(reload_unsafe(), now.unsafe);
	}
	fprintf(stderr,
		"# %u passed, %u failed, %u unproven, %u aborted; %u commits refused, %u half "
		"way, %u recoveries\n",
		passes, fails, unprovens, aborts, refusals, breaks, recoveries);
	cr_assert(passes > 50 && fails > 100 && unprovens > 0 && aborts > 20);
	cr_assert(refusals > 100 && breaks > 5 && recoveries > 20 && withheld > 20);
}
