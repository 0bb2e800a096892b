/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ledger, births, execs and guard against a model of plain arrays: random programs, and after
 * each launch and each free the causes must be exactly the model's.
 */
#include "world.h"

#include "arena/body.h"
#include "seed.h"

enum { PLAIN = 10, MAPS = 4, PLACES = PLAIN + MAPS, NODES = 6, WORDS = 4, EXECS = 5 };
enum { STEPS = 400000 };

#define PLACE_BASE(p)  (0x7f0000000000ull + (p)*16 * MIB)
#define RESERVED_BASE  PLACE_BASE(PLAIN)
#define RESERVED_BYTES (MAPS * 16 * MIB)
#define GRAPH	       1ull

/* A place is plain memory of its own, or a part of the one reservation. */
static uint64_t plain_generation[PLAIN]; /* 0: nothing there */
static uint64_t reserved_generation;
static bool mapped[MAPS];

struct mref {
	int place;
	uint64_t generation;
}; /* generation 0: no ref */
struct mnode {
	unsigned words_count;
	uint64_t values[WORDS];
	struct mref refs[WORDS];
	bool is_born;	  /* of a template's node: refs are valid */
	bool is_disabled; /* of an exec's node */
};
static struct mnode template[NODES];
static struct {
	bool is_live;
	struct mnode nodes[NODES];
} execs[EXECS];
static uint64_t seed;

static unsigned below(unsigned limit)
{
	return (unsigned)seed_below(&seed, limit);
}

static int place_of(uint64_t value)
{
	uint64_t p = (value - PLACE_BASE(0)) / (16 * MIB);

	/* Only the first MiB of a place is ever memory. */
	return p < PLACES && (value - PLACE_BASE(p)) < MIB ? (int)p : -1;
}

static struct mref resolve(uint64_t value)
{
	int p = place_of(value);

	if (p < 0)
		return (struct mref){ -1, 0 };
	if (p < PLAIN)
		return (struct mref){ p, plain_generation[p] };
	return (struct mref){ p, mapped[p - PLAIN] ? reserved_generation : 0 };
}

/* @return STALE_REASON_COUNT: sound. */
static enum stale_reason health(const struct mref *r)
{
	if (r->place < PLAIN) {
		if (plain_generation[r->place] == r->generation)
			return STALE_REASON_COUNT;
		return plain_generation[r->place] ? STALE_GENERATION : STALE_FREED;
	}
	if (mapped[r->place - PLAIN])
		return reserved_generation == r->generation ? STALE_REASON_COUNT : STALE_GENERATION;
	return reserved_generation == r->generation ? STALE_UNMAPPED : STALE_FREED;
}

/* ---- what was found ---- */

static unsigned freed_total, stale_total;
static struct finding_ref stale_refs[NODES * WORDS];

static void note(const struct finding *f)
{
	if (f->kind == FINDING_FREED_WHILE_REFERENCED)
		freed_total += f->refs_total;
	if (f->kind != FINDING_STALE_LAUNCH)
		return;
	cr_assert_eq(f->refs_count, f->refs_total);
	cr_assert_leq(f->refs_total, NODES * WORDS);
	stale_total = f->refs_total;
	memcpy(stale_refs, f->refs, f->refs_count * sizeof(*f->refs));
}

/* How many refs of enabled nodes of live execs @generation has. */
static unsigned holders_of(uint64_t generation)
{
	unsigned n = 0;

	for (int e = 0; e < EXECS; e++)
		for (int i = 0; execs[e].is_live && i < NODES; i++)
			for (unsigned w = 0; w < execs[e].nodes[i].words_count; w++)
				n += !execs[e].nodes[i].is_disabled &&
				     execs[e].nodes[i].refs[w].generation == generation;
	return n;
}

/* ---- memory ---- */

static void op_plain(void)
{
	unsigned p = below(PLAIN);
	struct range *r;

	if (!plain_generation[p] || below(16) == 0) {
		/* Sometimes over a range whose free was not seen. */
		r = world_open(PLACE_BASE(p), MIB, RANGE_DEVICE);
		plain_generation[p] = load_relaxed(&r->generation);
		return;
	}
	freed_total = 0;
	r = ledger_close_begin(PLACE_BASE(p), 0);
	cr_assert_not_null(r);
	if (below(4) == 0) {
		ledger_close_end(r, false);
		cr_assert_eq(freed_total, 0);
		return;
	}
	ledger_close_end(r, true);
	cr_assert_eq(freed_total, holders_of(plain_generation[p]));
	plain_generation[p] = 0;
}

static void op_reserve(void)
{
	if (!reserved_generation) {
		reserved_generation = load_relaxed(
			&world_open(RESERVED_BASE, RESERVED_BYTES, RANGE_RESERVED)->generation);
	} else if (below(4) == 0) {
		freed_total = 0;
		world_free(RESERVED_BASE);
		cr_assert_eq(freed_total, holders_of(reserved_generation));
		reserved_generation = 0;
		memset(mapped, 0, sizeof(mapped));
	}
}

static void op_map(void)
{
	unsigned m = below(MAPS), last = m + below(MAPS - m);

	if (!reserved_generation)
		return;
	if (!mapped[m]) {
		world_map(PLACE_BASE(PLAIN + m), MIB);
		mapped[m] = true;
		return;
	}
	world_unmap(PLACE_BASE(PLAIN + m), (last - m) * 16 * MIB + MIB);
	for (; m <= last; m++)
		mapped[m] = false;
}

/* ---- graphs ---- */

static void random_values(struct mnode *n)
{
	n->words_count = below(WORDS + 1);
	for (unsigned w = 0; w < n->words_count; w++)
		n->values[w] = PLACE_BASE(below(PLACES)) + below(3) * (MIB / 2);
}

static const struct node_desc *describe(struct world_node *to, const struct mnode *n, int i)
{
	uint64_t values[WORDS + 1] = { 0 };

	memcpy(values, n->values, n->words_count * sizeof(*values));
	world_kernel(to, GRAPH, (uint64_t)i + 1, values);
	to->desc.words_count = n->words_count;
	return &to->desc;
}

static void resolve_all(struct mnode *n)
{
	for (unsigned w = 0; w < n->words_count; w++)
		n->refs[w] = resolve(n->values[w]);
}

static void op_template(void)
{
	int i = (int)below(NODES);
	struct world_node n;

	random_values(&template[i]);
	template[i].is_born = below(4) != 0;
	if (template[i].is_born) {
		resolve_all(&template[i]);
		birth_record(describe(&n, &template[i], i));
	} else {
		birth_forget_node(GRAPH, (uint64_t)i + 1);
	}
}

/* Walk the template into @b, and into @nodes as the model sees it. */
static void walk(struct exec_builder *b, struct mnode *nodes)
{
	struct world_node n;

	for (int i = 0; i < NODES; i++) {
		exec_build_node(b, describe(&n, &template[i], i));
		nodes[i] = template[i];
		if (!nodes[i].is_born)
			resolve_all(&nodes[i]);
	}
}

static void op_exec(unsigned e)
{
	struct exec_builder *b = exec_build_begin();
	struct mnode before[NODES];

	memcpy(before, execs[e].nodes, sizeof(before));
	walk(b, execs[e].nodes);
	if (execs[e].is_live && below(4)) {
		exec_update(e + 1, b);
		for (int i = 0; i < NODES; i++)
			execs[e].nodes[i].is_disabled = before[i].is_disabled;
		return;
	}
	exec_open(e + 1, 1, b);
	execs[e].is_live = true;
}

static void op_set_node(unsigned e)
{
	int i = (int)below(NODES);
	struct mnode *m = &execs[e].nodes[i];
	struct world_node n;

	if (!execs[e].is_live)
		return;
	random_values(m);
	resolve_all(m);
	exec_set_node(e + 1, describe(&n, m, i));
}

static void op_enable(unsigned e)
{
	unsigned i = below(NODES);

	if (!execs[e].is_live)
		return;
	execs[e].nodes[i].is_disabled = !execs[e].nodes[i].is_disabled;
	exec_set_enabled(e + 1, i + 1, !execs[e].nodes[i].is_disabled);
}

static void check_ref(unsigned *at, unsigned node, unsigned word, const struct mnode *n)
{
	const struct finding_ref *r = &stale_refs[*at];
	enum stale_reason reason = STALE_REASON_COUNT;

	if (n->refs[word].generation)
		reason = health(&n->refs[word]);
	if (reason == STALE_REASON_COUNT)
		return;
	cr_assert_lt(*at, stale_total);
	cr_assert_eq(r->node, node);
	cr_assert_eq(r->param, word);
	cr_assert_eq(r->value, n->values[word]);
	cr_assert_eq(r->reason, reason);
	cr_assert_eq(r->old.generation, n->refs[word].generation);
	cr_assert_eq(r->now.base != 0, reason == STALE_GENERATION);
	++*at;
}

static void op_launch(unsigned e)
{
	unsigned expected = 0;
	bool ok;

	if (!execs[e].is_live) {
		cr_assert_null(exec_find(e + 1));
		return;
	}
	stale_total = 0;
	guard_refuses = below(2);
	exec_find(e + 1)->body->reported = 0; /* let each launch tell its causes */
	ok = guard_launch(e + 1, STREAM);
	for (unsigned i = 0; i < NODES; i++)
		for (unsigned w = 0; w < execs[e].nodes[i].words_count; w++)
			if (!execs[e].nodes[i].is_disabled)
				check_ref(&expected, i, w, &execs[e].nodes[i]);
	cr_assert_eq(stale_total, expected);
	cr_assert_eq(ok, !expected || !guard_refuses);
}

static void step(void)
{
	unsigned e = below(EXECS);

	switch (below(12)) {
	case 0:
	case 1:
		op_plain();
		break;
	case 2:
		op_reserve();
		break;
	case 3:
		op_map();
		break;
	case 4:
		op_template();
		break;
	case 5:
		op_exec(e);
		break;
	case 6:
	case 7:
		op_set_node(e);
		break;
	case 8:
		op_enable(e);
		break;
	case 9:
		if (below(8) == 0) {
			exec_close(e + 1);
			execs[e].is_live = false;
		}
		break;
	default:
		op_launch(e);
	}
}

Test(model, random_programs, .init = world_start, .timeout = 120)
{
	seed = seed_start("graph_model");
	device.finding = note;
	for (unsigned i = 0; i < STEPS; i++)
		step();
	cr_assert_eq(world_counters().dropped, 0);
	cr_assert_gt(world_counters().launches_refused, STEPS / 100);
	cr_assert_gt(finding_kind_count(FINDING_FREED_WHILE_REFERENCED), STEPS / 1000);
	/* Everything let go: nothing is held or pinned any more. */
	for (unsigned e = 0; e < EXECS; e++)
		exec_close(e + 1);
	birth_forget_graph(GRAPH);
	cr_assert_eq(world_counters().bytes, 0);
}
