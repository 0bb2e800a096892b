/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In three steps: the findings that name the subject tell which memory it was and which graphs
 * hold that; then everything else about this memory and these graphs is gathered, events from a
 * second reading of the files; then it is put in order.
 *
 * Threads: one.
 */
#include "explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "merge.h"
#include "read.h"
#include "place.h"
#include "term.h"

/* Most entries of one process: a trace may have millions. */
#define ENTRIES_MAX 100000

/* What is gathered for one process. */
struct gathering {
	struct pool *pool;
	struct life *life;
	const struct subject *subject;
};

/* ---- the subject ---- */

static bool has_id(const struct report_set *set, uint64_t id)
{
	for (size_t i = 0; i < set->reports.count; i++)
		for (size_t k = 0; k < set->reports.v[i]->findings.count; k++)
			if (set->reports.v[i]->findings.v[k]->id == id)
				return true;
	return false;
}

struct subject subject_of(const struct report_set *set, const char *text)
{
	struct subject s = { .kind = SUBJECT_SLOT, .text = text };
	bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
	char *end;

	s.number = strtoull(text, &end, 16);
	if (end == text || *end || (!hex && strlen(text) < 8))
		return s;
	s.kind = has_id(set, s.number) ? SUBJECT_FINDING : hex ? SUBJECT_ADDRESS : SUBJECT_SLOT;
	return s;
}

/* "layer / slot", "layer/slot", "slot" or "layer". */
static bool is_slot(const struct subject *s, const char *layer, const char *slot)
{
	size_t n = strlen(layer);

	if (s->kind != SUBJECT_SLOT || !slot || !*slot)
		return false;
	if (!strcmp(s->text, slot) || !strcmp(s->text, layer))
		return true;
	if (strncmp(s->text, layer, n))
		return false;
	if (!strncmp(s->text + n, " / ", 3))
		return !strcmp(s->text + n + 3, slot);
	return s->text[n] == '/' && !strcmp(s->text + n + 1, slot);
}

static bool covers(uint64_t base, uint64_t size, uint64_t address)
{
	return address >= base && address - base < (size ? size : 1);
}

/* ---- memory and graphs of the subject ---- */

static void add_memory(struct gathering *g, const struct report_range *r, const char *arena,
		       const char *slot)
{
	struct life_memory m = { 0 };

	if (!r || !r->base)
		return;
	m.range = *r;
	if (slot && *slot)
		m.slot = pool_print(g->pool, "%s / %s", arena, slot);
	LIST_ADD(g->pool, g->life->memory, m);
}

static void add_binding(struct gathering *g, const struct report_binding *b,
			const struct report_finding *f)
{
	struct report_range r;

	if (!b)
		return;
	r = (struct report_range){ .base = b->base,
				   .size = b->bytes,
				   .generation = b->generation,
				   .kind = "slot",
				   .stack_open = b->stack_open,
				   .stack_close = b->stack_close };
	add_memory(g, &r, f->layer, f->slot);
}

static void sort(void *v, size_t count, size_t size_bytes, int (*order)(const void *, const void *))
{
	if (count)
		qsort(v, count, size_bytes, order);
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int by_base(const void *a, const void *b)
{
	const struct report_range *x = &((const struct life_memory *)a)->range;
	const struct report_range *y = &((const struct life_memory *)b)->range;

	if (x->base != y->base)
		return x->base < y->base ? -1 : 1;
	return by_number(&x->generation, &y->generation);
}

/* Once all of it is known: each piece once, in an order in which it is found. */
static void settle_memory(struct gathering *g)
{
	struct life *l = g->life;
	size_t kept = 0;

	sort(l->memory.v, l->memory.count, sizeof(*l->memory.v), by_base);
	l->ends = pool_take(g->pool, (l->memory.count + 1) * sizeof(*l->ends));
	for (size_t i = 0; i < l->memory.count; i++) {
		const struct life_memory *m = &l->memory.v[i];
		struct life_memory *last = kept ? &l->memory.v[kept - 1] : NULL;
		uint64_t end = m->range.base + (m->range.size ? m->range.size : 1);

		if (last && !by_base(last, m)) {
			if (!last->range.stack_close)
				last->range.stack_close = m->range.stack_close;
			continue;
		}
		l->ends[kept] = kept && l->ends[kept - 1] > end ? l->ends[kept - 1] : end;
		l->memory.v[kept++] = *m;
	}
	l->memory.count = kept;
}

static void settle_execs(struct life *l)
{
	size_t kept = 0;

	sort(l->execs.v, l->execs.count, sizeof(*l->execs.v), by_number);
	for (size_t i = 0; i < l->execs.count; i++)
		if (l->execs.v[i] && (!kept || l->execs.v[kept - 1] != l->execs.v[i]))
			l->execs.v[kept++] = l->execs.v[i];
	l->execs.count = kept;
}

static bool ref_names(const struct subject *s, const struct report_ref *r)
{
	if (s->kind == SUBJECT_SLOT)
		return r->slot && is_slot(s, r->arena, r->slot);
	return s->kind == SUBJECT_ADDRESS &&
	       ((r->old && covers(r->old->base, r->old->size, s->number)) ||
		(r->now && covers(r->now->base, r->now->size, s->number)) || r->value == s->number);
}

static bool binding_names(const struct subject *s, const struct report_binding *b)
{
	return b && s->kind == SUBJECT_ADDRESS && covers(b->base, b->bytes, s->number);
}

/* Of a finding that is the subject, all memory; else that which the subject lies in. */
static void add_subject(struct gathering *g, const struct report_finding *f)
{
	const struct subject *s = g->subject;
	bool is_it = s->kind == SUBJECT_FINDING && f->id == s->number;

	if (is_it || is_slot(s, f->layer, f->slot)) {
		add_binding(g, f->old, f);
		add_binding(g, f->now, f);
	} else {
		if (binding_names(s, f->old))
			add_binding(g, f->old, f);
		if (binding_names(s, f->now))
			add_binding(g, f->now, f);
	}
	for (size_t i = 0; i < f->refs_count; i++) {
		const struct report_ref *r = &f->refs[i];

		if (!is_it && !ref_names(s, r))
			continue;
		LIST_ADD(g->pool, g->life->execs, r->exec);
		if (s->kind != SUBJECT_ADDRESS ||
		    (r->old && covers(r->old->base, r->old->size, s->number)))
			add_memory(g, r->old, r->arena, r->slot);
		if (s->kind != SUBJECT_ADDRESS ||
		    (r->now && covers(r->now->base, r->now->size, s->number)))
			add_memory(g, r->now, r->arena, r->slot);
	}
}

static bool is_memory(const struct life *l, const struct report_range *r)
{
	struct life_memory key;

	if (!r || !l->memory.count)
		return false;
	key.range = *r;
	return bsearch(&key, l->memory.v, l->memory.count, sizeof(key), by_base) != NULL;
}

/* Does it overlap any piece? Of all that begin before its end, one has to end behind its begin. */
static bool in_memory(const struct life *l, uint64_t base, uint64_t size)
{
	size_t low = 0, high = l->memory.count;
	uint64_t end = base + (size ? size : 1);

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (l->memory.v[middle].range.base < end)
			low = middle + 1;
		else
			high = middle;
	}
	return base && low && l->ends[low - 1] > base;
}

/* ---- entries ---- */

static void add_entry(struct gathering *g, struct life_entry e)
{
	struct life *l = g->life;

	if (l->entries.count < ENTRIES_MAX)
		LIST_ADD(g->pool, l->entries, e);
	else if (l->entries.count == ENTRIES_MAX) {
		e = (struct life_entry){ .time_ns = UINT64_MAX,
					 .what = "...",
					 .text = "and more: the first 100,000 are kept" };
		LIST_ADD(g->pool, l->entries, e);
	}
}

static struct texts holders_of(struct gathering *g, const struct report_finding *f)
{
	struct texts t = { 0 };
	size_t room = 0;

	for (size_t i = 0; i < f->refs_count; i++) {
		const struct report_ref *r = &f->refs[i];

		if (!is_memory(g->life, r->old) && !is_memory(g->life, r->now) &&
		    !ref_names(g->subject, r))
			continue;
		t.v = pool_grow(g->pool, t.v, &room, t.count, sizeof(*t.v));
		t.v[t.count++] = pool_print(
			g->pool,
			"graph exec %" PRIu64 ", node %" PRIu64 ", %s, parameter %" PRIu64
			" (+%" PRIu64 ") = 0x%" PRIx64 ", %s: %s",
			r->exec, r->node,
			r->kernel ? place_kernel(g->pool, r->kernel) : r->node_kind, r->param,
			r->offset, r->value, r->confidence, r->reason);
	}
	return t;
}

/* About the subject, or about memory or a slot of it. */
static void add_finding(struct gathering *g, const struct report_finding *f)
{
	const struct subject *s = g->subject;
	const struct report_reload *reload = report_reload(g->life->report, f->reload);
	struct life_entry e = { .time_ns = f->time_ns,
				.line = f->line,
				.what = f->kind,
				.text = f->text,
				.severity = f->severity,
				.finding = true,
				.stack = f->stack,
				.id = f->id };

	e.holders = holders_of(g, f);
	if (!e.holders.count && !(s->kind == SUBJECT_FINDING && f->id == s->number) &&
	    !is_slot(s, f->layer, f->slot) &&
	    !(f->old && in_memory(g->life, f->old->base, f->old->bytes)) &&
	    !(f->now && in_memory(g->life, f->now->base, f->now->bytes)))
		return;
	g->life->direct++;
	/* Its text begins with its kind. */
	if (!strncmp(e.text, f->kind, strlen(f->kind)) &&
	    !strncmp(e.text + strlen(f->kind), ": ", 2))
		e.text += strlen(f->kind) + 2;
	/* Its reload found it before it ended, and was written afterwards. */
	if (reload && f->reload)
		e.time_ns = reload->end_ns;
	add_entry(g, e);
}

static void add_reload(struct gathering *g, const struct report_reload *r)
{
	struct life_entry e = { .time_ns = r->begin_ns, .line = r->line, .phase = true };

	e.what = pool_print(g->pool, "reload %" PRIu64, r->id);
	e.text = pool_print(g->pool, "begins: %s", scope_text(g->pool, &r->scope));
	add_entry(g, e);
	e.time_ns = r->end_ns;
	e.text = pool_print(g->pool, "ends: %s%s%s", verdict_names[r->verdict], *r->why ? ", " : "",
			    r->why);
	add_entry(g, e);
}

static bool is_graph_event(const char *event)
{
	static const char *const names[] = { "instantiate", "update", "launch", "refused",
					     "destroy" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(event, names[i]))
			return true;
	return false;
}

static void add_event(struct gathering *g, const struct line *line)
{
	const struct report_event *v = &line->event;
	struct life_entry e = { .time_ns = line->time_ns, .line = line->number, .stack = v->stack };
	struct life *l = g->life;
	char bytes[UNIT_SIZE];
	bool held = false;

	if (is_graph_event(v->event)) {
		held = l->execs.count && bsearch(&v->serial, l->execs.v, l->execs.count,
						 sizeof(*l->execs.v), by_number);
		e.text = pool_print(g->pool, "graph exec %" PRIu64 ", %" PRIu64 " nodes", v->serial,
				    v->size);
	} else {
		held = in_memory(l, v->address, v->size) ||
		       (g->subject->kind == SUBJECT_ADDRESS &&
			covers(v->address, v->size, g->subject->number) && v->address);
		e.text = pool_print(g->pool, "0x%" PRIx64 ", %s of %s memory, generation %" PRIu64,
				    v->address, unit_bytes(bytes, v->size), v->what, v->serial);
	}
	if (!held)
		return;
	e.what = pool_text(g->pool, v->event);
	l->direct++;
	add_entry(g, e);
}

/* ---- the second reading: events ---- */

struct reading {
	struct lives *lives;
	const struct subject *subject;
	struct life *life; /* of the process whose lines these are; NULL: of none */
	uint64_t events;
};

static struct life *life_of(struct lives *lives, const struct line *start)
{
	for (size_t i = 0; i < lives->v.count; i++)
		if (lives->v.v[i].report->line == start->number &&
		    !strcmp(lives->v.v[i].report->file, start->file))
			return &lives->v.v[i];
	return NULL;
}

static bool visit(void *to, const struct line *line)
{
	struct reading *r = to;

	if (line->type == LINE_START)
		r->life = life_of(r->lives, line);
	if (line->type == LINE_EVENT && r->life) {
		struct gathering g = { &r->lives->pool, r->life, r->subject };

		add_event(&g, line);
	}
	return true;
}

/* ---- in order ---- */

static int by_time(const void *a, const void *b)
{
	const struct life_entry *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	if (x->phase != y->phase)
		return x->phase ? 1 : -1;
	return x->line < y->line ? -1 : x->line > y->line;
}

static int by_generation(const void *a, const void *b)
{
	const struct life_memory *x = a, *y = b;

	return by_number(&x->range.generation, &y->range.generation);
}

/* A thousand launches in a row are one entry. */
static void fold(struct life *l)
{
	size_t kept = 0;

	sort(l->memory.v, l->memory.count, sizeof(*l->memory.v), by_generation);
	sort(l->entries.v, l->entries.count, sizeof(*l->entries.v), by_time);
	for (size_t i = 0; i < l->entries.count; i++) {
		struct life_entry *e = &l->entries.v[i],
				  *last = kept ? &l->entries.v[kept - 1] : NULL;

		if (last && !e->phase && e->finding == last->finding &&
		    !strcmp(e->what, last->what) && !strcmp(e->text, last->text)) {
			last->repeated++;
			last->last_ns = e->time_ns;
			continue;
		}
		l->entries.v[kept++] = *e;
	}
	l->entries.count = kept;
}

static void gather_process(struct lives *lives, const struct report *r, const struct subject *s)
{
	struct life life = { .report = r };
	struct gathering g = { &lives->pool, &life, s };

	for (size_t i = 0; i < r->findings.count; i++)
		add_subject(&g, r->findings.v[i]);
	settle_memory(&g);
	settle_execs(&life);
	for (size_t i = 0; i < r->findings.count; i++)
		add_finding(&g, r->findings.v[i]);
	for (size_t i = 0; i < r->reloads.count; i++)
		if (r->reloads.v[i]->id)
			add_reload(&g, r->reloads.v[i]);
	explain_gaps(&lives->pool, &life);
	LIST_ADD(&lives->pool, lives->v, life);
}

void explain(struct lives *lives, const struct report_set *set, const struct subject *s,
	     char *const *paths, size_t count)
{
	struct read_result result = { .quiet = true };

	*lives = (struct lives){ 0 };
	for (size_t i = 0; i < set->reports.count; i++)
		gather_process(lives, set->reports.v[i], s);
	for (size_t i = 0; i < count; i++) {
		struct reading r = { .lives = lives, .subject = s };

		read_file(paths[i], visit, &r, &result);
	}
	for (size_t i = 0; i < lives->v.count; i++)
		fold(&lives->v.v[i]);
}

bool life_is_known(const struct life *l)
{
	return l->direct || l->memory.count;
}

void explain_free(struct lives *lives)
{
	pool_free(&lives->pool);
	*lives = (struct lives){ 0 };
}
