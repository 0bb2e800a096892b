/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items of both sides are sorted by set and identity and walked together. Items that have one
 * identity (a finding on every rank, a kernel in the graphs of several batch sizes) become one,
 * whose state lists all of theirs.
 *
 * Threads: one.
 */
#include "diff.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "merge.h"
#include "place.h"
#include "term.h"

const char *const diff_set_names[] = {
	[DIFF_FINDINGS] = "finding",  [DIFF_SLOTS] = "slot",	  [DIFF_RANGES] = "range",
	[DIFF_RELOADS] = "reload",    [DIFF_VERIFIES] = "verify", [DIFF_PROCESSES] = "process",
	[DIFF_COVERAGE] = "coverage", [DIFF_GRAPHS] = "graphs",
};

const char *const diff_how_names[] = {
	[DIFF_NEW] = "new",
	[DIFF_GONE] = "gone",
	[DIFF_CHANGED] = "changed",
	[DIFF_SAME] = "same",
};

/* What is being gathered from. */
struct gathering {
	struct pool *pool;
	struct diff_side *side;
	const struct report *report;
	size_t process;
	/* The last kernel and place in words: most refs have those of the one before. */
	const char *kernel, *holder, *place;
	uint64_t stack;
};

static void add(struct gathering *g, struct diff_item item)
{
	item.process = g->process;
	LIST_ADD(g->pool, g->side->items, item);
}

/* ---- slots and captured ranges, as findings name them ---- */

static const char *dims_text(struct pool *p, const int64_t *v, size_t count)
{
	const char *text = "";

	for (size_t i = 0; i < count; i++)
		text = pool_print(p, "%s%s%" PRId64, text, i ? "," : "", v[i]);
	return text;
}

static void add_slot(struct gathering *g, const char *layer, const char *slot,
		     const struct report_binding *b)
{
	char bytes[UNIT_SIZE];
	struct diff_item item = { .set = DIFF_SLOTS, .state = "bound to nothing" };

	if (b)
		item.state = pool_print(g->pool, "%s %s [%s]%s%s, device %" PRIu64,
					unit_bytes(bytes, b->bytes), b->dtype,
					dims_text(g->pool, b->shape, b->shape_count),
					*b->layout ? " " : "", b->layout, b->device);
	item.identity = item.what = pool_print(g->pool, "%s / %s", layer, slot);
	add(g, item);
}

static const char *holder_of(struct gathering *g, const struct report_ref *r)
{
	if (!r->kernel)
		return r->node_kind;
	if (g->kernel != r->kernel)
		g->holder = place_kernel(g->pool, r->kernel);
	g->kernel = r->kernel;
	return g->holder;
}

static const char *place_of(struct gathering *g, const struct report_range *range)
{
	if (!range)
		return "";
	if (!g->place || g->stack != range->stack_open)
		g->place = place_stable(g->pool, g->report, range->stack_open);
	g->stack = range->stack_open;
	return g->place;
}

static void add_range(struct gathering *g, const struct report_ref *ref)
{
	const char *place = place_of(g, ref->old);
	const char *slot =
		ref->slot ? pool_print(g->pool, " in %s / %s", ref->arena, ref->slot) : "";
	char bytes[UNIT_SIZE];
	struct diff_item item = { .set = DIFF_RANGES };
	const char *where =
		pool_print(g->pool, "param %" PRIu64 " (+%" PRIu64 ")%s%s%s", ref->param,
			   ref->offset, slot, *place ? ", from " : "", place);

	/* Kernels may differ in their parameters only, which are in the mangled name. */
	item.identity =
		pool_print(g->pool, "%s %s", ref->kernel ? ref->kernel : ref->node_kind, where);
	item.what = pool_print(g->pool, "%s %s", holder_of(g, ref), where);
	item.state = pool_print(g->pool, "%s %s, %s, %s",
				ref->old ? unit_bytes(bytes, ref->old->size) : "0 B",
				ref->old ? ref->old->kind : "memory", ref->confidence, ref->reason);
	add(g, item);
}

/* ---- findings ---- */

/* Without addresses: the slot, source or cache, else who holds the memory. */
static const char *subject(struct gathering *g, const struct report_finding *f)
{
	const char *name = *f->slot ? f->slot : *f->source ? f->source : f->cache;
	const struct report_ref *r = f->refs;

	if (*f->layer || *name)
		return pool_print(g->pool, "%s%s%s", f->layer, *f->layer && *name ? " / " : "",
				  name);
	if (!f->refs_count)
		return "";
	if (r->slot)
		return pool_print(g->pool, "%s / %s", r->arena, r->slot);
	return pool_print(g->pool, "%s param %" PRIu64, holder_of(g, r), r->param);
}

static void add_finding(struct gathering *g, const struct report_finding *f)
{
	struct diff_item item = { .set = DIFF_FINDINGS, .severity = f->severity, .text = f->text };
	char bytes[UNIT_SIZE];
	uint64_t size = finding_size(f);

	item.identity = pool_print(g->pool, "0x%" PRIx64, f->id);
	item.what = pool_print(g->pool, "%s %s", f->kind, subject(g, f));
	item.state = pool_print(g->pool, "%s%s%s%s", severity_names[f->severity], size ? ", " : "",
				size ? unit_bytes(bytes, size) : "", f->refused ? ", refused" : "");
	if (f->origin == ORIGIN_LAUNCH)
		item.state = pool_print(g->pool, "%s, %" PRIu64 " ref%s", item.state, f->refs_total,
					f->refs_total == 1 ? "" : "s");
	add(g, item);
	if (*f->slot && !f->inferred) {
		add_slot(g, f->layer, f->slot, f->old);
		add_slot(g, f->layer, f->slot, f->now);
	}
	for (size_t i = 0; i < f->refs_count; i++)
		add_range(g, &f->refs[i]);
}

/* ---- reloads, verifies, processes ---- */

static uint64_t rank_of(const struct report *r)
{
	return r->start ? r->start->rank : 0;
}

static enum severity severity_of(enum verdict v)
{
	return v == VERDICT_FAIL   ? SEVERITY_ERROR
	       : v == VERDICT_PASS ? SEVERITY_INFO
				   : SEVERITY_WARN;
}

static void add_reload(struct gathering *g, const struct report_reload *r, uint64_t number)
{
	struct diff_item item = { .set = DIFF_RELOADS };
	const char *layers = "";

	for (size_t i = 0; i < r->layers.count; i++)
		if (r->layers.v[i].number)
			layers = pool_print(g->pool, "%s, %" PRIu64 " %s", layers,
					    r->layers.v[i].number, r->layers.v[i].key);
	item.severity = r->unsafe ? SEVERITY_ERROR : severity_of(r->verdict);
	/* The zeros keep the order of numbers. */
	item.identity = pool_print(g->pool, "%06" PRIu64 " %06" PRIu64, rank_of(g->report), number);
	item.what =
		pool_print(g->pool, "rank %" PRIu64 " reload %" PRIu64, rank_of(g->report), number);
	item.state = pool_print(g->pool, "%s%s, %s%s%s", verdict_names[r->verdict],
				r->aborted ? " (aborted)" : "", scope_text(g->pool, &r->scope),
				layers, r->unsafe ? ", unsafe" : "");
	add(g, item);
}

/* How often it was asked is a matter of time: those of a rank become one. */
static void add_verify(struct gathering *g, const struct report_reload *v)
{
	struct diff_item item = { .set = DIFF_VERIFIES, .severity = severity_of(v->verdict) };

	item.identity = item.what = pool_print(g->pool, "rank %" PRIu64, rank_of(g->report));
	item.state = verdict_names[v->verdict];
	add(g, item);
}

/* How it ended. Why it failed is in its findings, which have words that differ from run to run. */
static void add_process(struct gathering *g)
{
	const struct report *r = g->report;
	const struct report_exit *e = r->exit;
	enum verdict verdict = report_verdict(r);
	bool unsafe = e && e->unsafe;
	struct diff_item item = { .set = DIFF_PROCESSES };

	item.severity = unsafe ? SEVERITY_ERROR : severity_of(verdict);
	item.identity = item.what = pool_print(g->pool, "rank %" PRIu64, rank_of(r));
	item.state =
		pool_print(g->pool, "%s%s%s%s%s", verdict_names[verdict], e ? "" : ", no exit line",
			   unsafe ? ", unsafe" : "", e && e->lines_lost ? ", lines lost" : "",
			   e && e->findings_left_out ? ", findings left out" : "");
	add(g, item);
}

/* ---- coverage, graphs ---- */

static void add_coverage(struct gathering *g, const struct report_exit *e)
{
	for (size_t i = 0; i < e->coverage.count; i++) {
		const struct pair *p = &e->coverage.v[i];
		struct diff_item item = { .set = DIFF_COVERAGE, .severity = SEVERITY_WARN };

		if (!p->number)
			continue;
		/* How often depends on timing; that it was is a fact. */
		item.what = item.identity = p->key;
		item.state = "not all was seen";
		add(g, item);
	}
}

/* Numbers of launches depend on the load; what was captured does not. */
static bool is_captured(const char *key)
{
	static const char *const keys[] = { "graphs.execs_opened", "graphs.nodes",
					    "graphs.refs",	   "graphs.refs_exact",
					    "graphs.refs_struct",  "graphs.refs_suspect" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (!strcmp(key, keys[i]))
			return true;
	return !strncmp(key, "graphs.nodes_by_kind.", strlen("graphs.nodes_by_kind."));
}

static void add_graphs(struct gathering *g, const struct report_exit *e)
{
	for (size_t i = 0; i < e->counters.count; i++) {
		const struct pair *p = &e->counters.v[i];
		struct diff_item item = { .set = DIFF_GRAPHS };

		if (!is_captured(p->key) || !p->number)
			continue;
		item.identity =
			pool_print(g->pool, "rank %" PRIu64 " %s", rank_of(g->report), p->key);
		item.what = item.identity;
		item.state = pool_print(g->pool, "%" PRIu64, p->number);
		add(g, item);
	}
}

/* ---- one side ---- */

static int by_identity(const void *a, const void *b)
{
	const struct diff_item *x = a, *y = b;
	int order = (int)x->set - (int)y->set;

	if (!order)
		order = strcmp(x->identity, y->identity);
	if (!order)
		order = strcmp(x->state, y->state);
	if (!order)
		order = x->process < y->process ? -1 : x->process > y->process;
	return order;
}

static bool same_item(const struct diff_item *a, const struct diff_item *b)
{
	return a->set == b->set && !strcmp(a->identity, b->identity);
}

/* Items of one identity become one. */
static void fold(struct diff_side *side, struct pool *pool)
{
	struct diff_item *v = side->items.v;
	size_t kept = 0, next;

	if (side->items.count)
		qsort(v, side->items.count, sizeof(*v), by_identity);
	for (size_t i = 0; i < side->items.count; i = next) {
		struct diff_item item = v[i];
		const char *last = item.state;
		size_t processes = 1;

		for (next = i + 1; next < side->items.count && same_item(&item, &v[next]); next++) {
			if (v[next].severity > item.severity)
				item.severity = v[next].severity;
			processes += v[next].process != v[next - 1].process;
			if (strcmp(v[next].state, last))
				item.state = pool_print(pool, "%s; %s", item.state, v[next].state);
			last = v[next].state;
		}
		if ((item.set == DIFF_FINDINGS && side->processes > 1) ||
		    ((item.set == DIFF_GRAPHS || item.set == DIFF_PROCESSES) && processes > 1))
			item.state = pool_print(pool, "%s, in %zu process%s", item.state, processes,
						processes == 1 ? "" : "es");
		item.process = processes;
		v[kept++] = item;
	}
	side->items.count = kept;
}

static uint64_t reloads_before(const struct report_set *set, size_t index)
{
	const struct report *r = set->reports.v[index];
	uint64_t count = 0;

	for (size_t i = 0; i < index; i++) {
		const struct report *o = set->reports.v[i];

		if (!r->start || !o->start || r->start->rank != o->start->rank)
			continue;
		for (size_t k = 0; k < o->reloads.count; k++)
			count += o->reloads.v[k]->id != 0;
	}
	return count;
}

static void collect_process(struct gathering *g, uint64_t number)
{
	const struct report *r = g->report;

	for (size_t i = 0; i < r->findings.count; i++)
		add_finding(g, r->findings.v[i]);
	for (size_t i = 0; i < r->reloads.count; i++)
		if (r->reloads.v[i]->id)
			add_reload(g, r->reloads.v[i], ++number);
		else
			add_verify(g, r->reloads.v[i]);
	add_process(g);
	g->side->partial |= r->refs_listed < r->refs_total;
	g->side->without_exit += !r->exit;
	g->side->lossy += r->not_kept[LINE_FINDING] ||
			  (r->exit && (r->exit->findings_left_out || r->exit->lines_lost));
	if (!r->exit)
		return;
	add_coverage(g, r->exit);
	add_graphs(g, r->exit);
}

static void collect(struct diff *d, struct diff_side *side, const struct report_set *set)
{
	side->processes = set->reports.count;
	for (size_t i = 0; i < set->reports.count; i++) {
		struct gathering g = {
			.pool = &d->pool, .side = side, .report = set->reports.v[i], .process = i
		};

		collect_process(&g, reloads_before(set, i));
	}
	side->partial |= side->lossy != 0;
	fold(side, &d->pool);
}

/* ---- both ---- */

static void add_row(struct diff *d, const struct diff_item *a, const struct diff_item *b)
{
	struct diff_row row = { .a = a, .b = b, .severity = b ? b->severity : a->severity };

	row.how = !a			       ? DIFF_NEW
		  : !b			       ? DIFF_GONE
		  : strcmp(a->state, b->state) ? DIFF_CHANGED
					       : DIFF_SAME;
	row.worse = row.how == DIFF_NEW || (row.how == DIFF_CHANGED && b->severity > a->severity);
	d->count[row.how]++;
	LIST_ADD(&d->pool, d->rows, row);
}

/* Without an exit line nothing is known of what it tells. */
static bool is_told(const struct diff *d, const struct diff_item *item)
{
	return (item->set != DIFF_COVERAGE && item->set != DIFF_GRAPHS) ||
	       (!d->a.without_exit && !d->b.without_exit);
}

void diff_compare(struct diff *d, const struct report_set *a, const struct report_set *b)
{
	size_t i = 0, k = 0;

	*d = (struct diff){ 0 };
	collect(d, &d->a, a);
	collect(d, &d->b, b);
	while (i < d->a.items.count || k < d->b.items.count) {
		const struct diff_item *x = i < d->a.items.count ? &d->a.items.v[i] : NULL;
		const struct diff_item *y = k < d->b.items.count ? &d->b.items.v[k] : NULL;
		int order = !x ? 1 : !y ? -1 : (int)x->set - (int)y->set;

		if (!order)
			order = strcmp(x->identity, y->identity);
		i += order <= 0;
		k += order >= 0;
		if (is_told(d, order <= 0 ? x : y))
			add_row(d, order <= 0 ? x : NULL, order >= 0 ? y : NULL);
	}
}

void diff_free(struct diff *d)
{
	pool_free(&d->pool);
	*d = (struct diff){ 0 };
}
