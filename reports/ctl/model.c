/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set from the lines of its files. A line belongs to the process that it names, else to the
 * one that began last in its file. What is kept is bounded by set_limits; what is not kept is
 * counted.
 *
 * Threads: one.
 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "intern.h"
#include "keep.h"
#include "read.h"

#define REFS_KEPT     64
#define FINDINGS_KEPT 20000
#define RELOADS_KEPT  20000  /* whole; of later ones the last, without its lists */
#define STACKS_KEPT   200000 /* also of modules and of comparisons with CUPTI */

/* One file in progress. */
struct filling {
	struct report_set *set;
	const char *path;
	size_t first;	    /* report of this file */
	bool some_nameless; /* lines without a pid: whose they are is a guess */
};

static struct report *add_report(struct filling *f, const struct line *l)
{
	struct report *r = pool_take(&f->set->pool, sizeof(*r));

	r->file = f->path;
	r->line = l->number;
	r->pid = l->pid;
	LIST_ADD(&f->set->pool, f->set->reports, r);
	return r;
}

static struct report *find_report(struct filling *f, const struct line *l)
{
	size_t count = f->set->reports.count;
	struct report *last = count > f->first ? f->set->reports.v[count - 1] : NULL;

	f->some_nameless |= !l->pid;
	if (l->type == LINE_START || !last)
		return add_report(f, l);
	if (!last->pid)
		last->pid = l->pid;
	if (!l->pid || last->pid == l->pid)
		return last;
	for (size_t i = count; i-- > f->first;) {
		struct report *r = f->set->reports.v[i];

		if (r->pid == l->pid) {
			/* Lines without a pid go to the last one, and may be of this one. */
			for (; i < count; i++)
				f->set->reports.v[i]->interleaved = true;
			return r;
		}
	}
	return add_report(f, l);
}

/* With its severity: what was a warning may come again as an error. */
static struct report_finding **find_id(const struct report *r, const struct report_finding *f)
{
	size_t at = (size_t)(f->id ^ f->id >> 32) & (r->ids_size - 1);

	while (r->ids[at] && (r->ids[at]->id != f->id || r->ids[at]->severity != f->severity))
		at = (at + 1) & (r->ids_size - 1);
	return &r->ids[at];
}

/* At most half full; the old table stays in the pool. */
static void make_room(struct report_set *set, struct report *r)
{
	struct report_finding **old = r->ids;
	size_t old_size = r->ids_size;

	if (r->ids_count * 2 < r->ids_size)
		return;
	r->ids_size = old_size ? old_size * 2 : 64;
	r->ids = pool_take(&set->pool, r->ids_size * sizeof(*r->ids));
	for (size_t i = 0; i < old_size; i++)
		if (old[i])
			*find_id(r, old[i]) = old[i];
}

/*
 * The same finding may come with every comparison of a long run: what is not kept of such is only
 * counted, and loses nothing that decides.
 */
static void add_finding(struct report_set *set, struct report *r, const struct report_finding *from,
			uint64_t line)
{
	struct report_finding *f, **first;

	r->refs_total += from->refs_total;
	r->refs_listed += from->refs_count;
	r->seen[from->severity]++;
	r->launch_errors += from->severity == SEVERITY_ERROR && from->origin == ORIGIN_LAUNCH;
	make_room(set, r);
	first = find_id(r, from);
	if (*first && r->repeats >= set->limits.findings) {
		(*first)->not_kept++;
		return;
	}
	if (!*first && r->ids_count >= set->limits.findings) {
		r->not_kept[LINE_FINDING]++;
		return;
	}
	f = keep_finding(set, from);
	f->line = line;
	if (*first) {
		r->repeats++;
	} else {
		*first = f;
		r->ids_count++;
	}
	LIST_ADD(&set->pool, r->findings, f);
}

static void add_reload(struct report_set *set, struct report *r, const struct line *l)
{
	struct report_reload *reload, brief = l->reload;

	for (size_t i = 0; i < l->reload.findings_count; i++) {
		add_finding(set, r, &l->reload.findings[i], l->number);
		brief.errors += l->reload.findings[i].severity == SEVERITY_ERROR;
	}
	brief.line = l->number;
	brief.findings = NULL;
	brief.findings_count = 0;
	if (r->reloads.count < RELOADS_KEPT) {
		reload = keep_reload(set, &brief);
		LIST_ADD(&set->pool, r->reloads, reload);
		return;
	}
	r->not_kept[l->type]++;
	keep_reload_brief(set, r->reloads.v[RELOADS_KEPT - 1], &brief);
}

/* Those of which there may be very many. */
static void add_bulk(struct report_set *set, struct report *r, const struct line *l)
{
	bool event = l->type == LINE_EVENT;
	size_t most = event ? set->limits.events : set->limits.launches;
	size_t have = event ? r->events.count : r->launches.count;

	if (have >= most) {
		r->not_kept[l->type]++;
	} else if (event) {
		LIST_ADD(&set->pool, r->events, keep_event(set, &l->event));
		r->events.v[r->events.count - 1]->time_ns = l->time_ns;
	} else {
		LIST_ADD(&set->pool, r->launches, keep_launch(set, &l->launch));
	}
}

/* Of which a sound process writes some thousands at most. */
static void add_part(struct report_set *set, struct report *r, const struct line *l)
{
	size_t have = l->type == LINE_MODULE  ? r->modules.count
		      : l->type == LINE_STACK ? r->stacks.count
					      : r->crosses.count;

	if (have >= STACKS_KEPT)
		r->not_kept[l->type]++;
	else if (l->type == LINE_MODULE)
		LIST_ADD(&set->pool, r->modules, keep_module(set, &l->module));
	else if (l->type == LINE_STACK)
		LIST_ADD(&set->pool, r->stacks, keep_stack(set, &l->stack));
	else
		LIST_ADD(&set->pool, r->crosses, keep_cross(set, &l->cross));
}

/* There is one; of several the worst is believed, and that there are several is a doubt. */
static void add_exit(struct report_set *set, struct report *r, const struct report_exit *from)
{
	static const int rank[] = {
		[VERDICT_PASS] = 0, [VERDICT_UNPROVEN] = 1, [VERDICT_FAIL] = 2
	};

	if (!r->exit || rank[exit_verdict(from)] > rank[exit_verdict(r->exit)])
		r->exit = keep_exit(set, from);
}

static void add_line(struct report_set *set, struct report *r, const struct line *l)
{
	switch (l->type) {
	case LINE_START:
		r->start = keep_start(set, &l->start);
		break;
	case LINE_MODULE:
	case LINE_STACK:
	case LINE_CROSS:
		add_part(set, r, l);
		break;
	case LINE_FINDING:
		add_finding(set, r, &l->finding, l->number);
		break;
	case LINE_VERIFY:
	case LINE_RELOAD:
		add_reload(set, r, l);
		break;
	case LINE_EXIT:
		add_exit(set, r, &l->exit);
		break;
	default:
		add_bulk(set, r, l);
	}
}

static bool take_line(void *to, const struct line *l)
{
	struct filling *f = to;
	struct report *r = find_report(f, l);

	r->lines[l->type]++;
	if (l->time_ns) {
		if (!r->time_first_ns)
			r->time_first_ns = l->time_ns;
		if (l->time_ns > r->time_last_ns)
			r->time_last_ns = l->time_ns;
	}
	add_line(f->set, r, l);
	return true;
}

/*
 * Order
 */

static int by_module(const void *a, const void *b)
{
	uint64_t x = (*(struct report_module *const *)a)->id;
	uint64_t y = (*(struct report_module *const *)b)->id;

	return x < y ? -1 : x > y;
}

static int by_stack(const void *a, const void *b)
{
	uint64_t x = (*(struct report_stack *const *)a)->id;
	uint64_t y = (*(struct report_stack *const *)b)->id;

	return x < y ? -1 : x > y;
}

/* A finding and its place among those of its process. */
struct placed {
	struct report_finding *finding;
	size_t place;
};

static int by_id(const void *pa, const void *pb)
{
	const struct placed *a = pa, *b = pb;

	if (a->finding->id != b->finding->id)
		return a->finding->id < b->finding->id ? -1 : 1;
	if (a->finding->severity != b->finding->severity)
		return a->finding->severity < b->finding->severity ? -1 : 1;
	return a->place < b->place ? -1 : a->place > b->place;
}

static void count_occurrences(struct report *r)
{
	struct placed *sorted = malloc((r->findings.count + 1) * sizeof(*sorted));

	if (!sorted)
		return;
	for (size_t i = 0; i < r->findings.count; i++)
		sorted[i] = (struct placed){ r->findings.v[i], i };
	qsort(sorted, r->findings.count, sizeof(*sorted), by_id);
	for (size_t i = 0, end; i < r->findings.count; i = end) {
		const struct report_finding *first = sorted[i].finding;

		for (end = i; end < r->findings.count && sorted[end].finding->id == first->id &&
			      sorted[end].finding->severity == first->severity;
		     end++)
			sorted[end].finding->again = end > i;
		for (size_t k = i; k < end; k++)
			sorted[k].finding->occurrences = end - i + first->not_kept;
	}
	free(sorted);
}

static void finish_report(struct report *r)
{
	if (r->modules.count)
		qsort(r->modules.v, r->modules.count, sizeof(*r->modules.v), by_module);
	if (r->stacks.count)
		qsort(r->stacks.v, r->stacks.count, sizeof(*r->stacks.v), by_stack);
	count_occurrences(r);
}

static void set_limits_from(struct report_set *set, const struct set_limits *l)
{
	if (l)
		set->limits = *l;
	if (!set->limits.refs)
		set->limits.refs = REFS_KEPT;
	if (!set->limits.findings)
		set->limits.findings = FINDINGS_KEPT;
}

static void keep_problem(void *to, const char *text)
{
	struct report_set *set = to;

	LIST_ADD(&set->pool, set->problems, pool_text(&set->pool, text));
	fprintf(stderr, "arenactl: %s\n", text);
}

static void set_read_file(struct report_set *set, const char *path)
{
	struct filling f = { set, pool_text(&set->pool, path), set->reports.count, false };

	read_file(f.path, take_line, &f, set->read);
	for (size_t i = f.first; i < set->reports.count && !f.some_nameless; i++)
		set->reports.v[i]->interleaved = false;
}

int set_read(struct report_set *set, char *const *paths, size_t count, const struct set_limits *l)
{
	*set = (struct report_set){ 0 };
	set_limits_from(set, l);
	set->intern = intern_new(&set->pool);
	set->read = pool_take(&set->pool, sizeof(*set->read));
	set->read->problem = keep_problem;
	set->read->to = set;
	for (size_t i = 0; i < count; i++)
		set_read_file(set, paths[i]);
	for (size_t i = 0; i < set->reports.count; i++)
		finish_report(set->reports.v[i]);
	return read_clean(set->read) ? 0 : STATUS_UNREADABLE;
}

void set_free(struct report_set *set)
{
	pool_free(&set->pool);
	*set = (struct report_set){ 0 };
}

/*
 * Look-up
 */

const struct report_module *report_module(const struct report *r, uint64_t id)
{
	struct report_module key = { .id = id }, *at = &key, **found = NULL;

	if (id && r->modules.count)
		found = bsearch(&at, r->modules.v, r->modules.count, sizeof(at), by_module);
	return found ? *found : NULL;
}

const struct report_stack *report_stack(const struct report *r, uint64_t id)
{
	struct report_stack key = { .id = id }, *at = &key, **found = NULL;

	if (id && r->stacks.count)
		found = bsearch(&at, r->stacks.v, r->stacks.count, sizeof(at), by_stack);
	return found ? *found : NULL;
}

const struct report_reload *report_reload(const struct report *r, uint64_t id)
{
	for (size_t i = r->reloads.count; i-- > 0;)
		if (id && r->reloads.v[i]->id == id)
			return r->reloads.v[i];
	return NULL;
}
