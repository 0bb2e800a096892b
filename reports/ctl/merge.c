/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate over ranks. A rank is judged by the processes that have its number: one that made a
 * reload is an attempt, and more than one attempt is a doubt that nobody here can settle. Processes
 * that made none (a frontend, a tokenizer) count only where the rank has nothing better.
 *
 * What is compared between ranks: the number of the reload and its scope. Clocks of hosts differ,
 * so times decide only what is far apart: a report that had ended before most of the other ranks
 * started is of an earlier run.
 *
 * Threads: one.
 */
#include "merge.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "term.h"

const char *pool_print(struct pool *p, const char *format, ...)
{
	va_list list;
	char *text;
	int size;

	va_start(list, format);
	size = vsnprintf(NULL, 0, format, list);
	va_end(list);
	text = pool_take(p, size < 0 ? 1 : (size_t)size + 1);
	va_start(list, format);
	if (size > 0)
		vsnprintf(text, (size_t)size + 1, format, list);
	va_end(list);
	return text;
}

#define REASON(m, r, ...) LIST_ADD(&(m)->pool, (r)->reasons, pool_print(&(m)->pool, __VA_ARGS__))

/* ---- scopes ---- */

static bool texts_same(const struct texts *a, const struct texts *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (strcmp(a->v[i], b->v[i]))
			return false;
	return true;
}

bool scope_same(const struct report_scope *a, const struct report_scope *b)
{
	return a->full == b->full && texts_same(&a->layers, &b->layers) &&
	       texts_same(&a->sources, &b->sources) && !strcmp(a->role, b->role);
}

static const char *texts_text(struct pool *p, const char *head, const struct texts *t)
{
	const char *s = t->count ? head : "";

	for (size_t i = 0; i < t->count && i < 8; i++)
		s = pool_print(p, "%s%s%s", s, i ? ", " : "", t->v[i]);
	return t->count > 8 ? pool_print(p, "%s and %zu more", s, t->count - 8) : s;
}

const char *scope_text(struct pool *p, const struct report_scope *s)
{
	const char *layers = texts_text(p, " layers ", &s->layers);
	const char *sources = texts_text(p, " sources ", &s->sources);
	const char *all = pool_print(p, "%s%s%s%s%s", s->full ? " full" : "", layers, sources,
				     *s->role ? " role " : "", s->role);

	return *all ? all + 1 : "empty";
}

/* ---- ranks and their attempts ---- */

static struct merge_rank *rank_of(struct merge *m, bool known, uint64_t rank)
{
	struct merge_rank r = { .rank = rank, .known = known };

	for (size_t i = 0; i < m->ranks.count; i++)
		if (m->ranks.v[i].known == known && m->ranks.v[i].rank == rank)
			return &m->ranks.v[i];
	LIST_ADD(&m->pool, m->ranks, r);
	return &m->ranks.v[m->ranks.count - 1];
}

/* The reload that is asked for, else the last one. NULL: there was none. */
static const struct report_reload *judged_reload(const struct report *r, uint64_t wish)
{
	const struct report_reload *last = NULL;

	for (size_t i = 0; i < r->reloads.count; i++) {
		const struct report_reload *reload = r->reloads.v[i];

		if (reload->id && (!wish || reload->id <= wish))
			last = reload;
	}
	return last;
}

static bool reload_is_open(const struct report *r)
{
	return r->exit && r->exit->reload_open;
}

/* A process that the wish leaves out is of another run. */
bool merge_leaves_out(const struct report *r, const struct merge_wish *wish)
{
	const char *run = "";

	for (size_t i = 0; r->start && i < r->start->options.count; i++)
		if (!strcmp(r->start->options.v[i].key, "ARENA_RUN"))
			run = r->start->options.v[i].text;
	return r->start && ((wish->since_ns && r->time_first_ns < wish->since_ns) ||
			    (wish->run && strcmp(run, wish->run) != 0));
}

/* An attempt replaces a process that made no reload. */
static void add_process(struct merge *m, const struct report *r, const struct merge_wish *wish)
{
	const struct report_reload *reload = judged_reload(r, wish->reload);
	bool tried = reload || reload_is_open(r);
	struct merge_rank *rank;

	if (merge_leaves_out(r, wish)) {
		m->left_out++;
		return;
	}
	rank = rank_of(m, r->start != NULL, r->start ? r->start->rank : 0);
	if (rank->report && !tried)
		return;
	if (rank->report && (rank->reload || reload_is_open(rank->report))) {
		rank->attempts++;
		return;
	}
	rank->attempts = 1;
	rank->report = r;
	rank->reload = reload;
}

static int by_rank(const void *a, const void *b)
{
	const struct merge_rank *x = a, *y = b;

	if (x->known != y->known)
		return x->known ? -1 : 1;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static void find_ranks(struct merge *m, const struct report_set *set, const struct merge_wish *wish)
{
	size_t kept = 0;

	for (size_t i = 0; i < wish->count; i++)
		rank_of(m, true, wish->ranks[i])->expected = true;
	for (size_t i = 0; i < set->reports.count; i++)
		add_process(m, set->reports.v[i], wish);
	/* Of ranks that nobody expects, only those that made reloads are of interest. */
	for (size_t i = 0; i < m->ranks.count; i++) {
		const struct merge_rank *r = &m->ranks.v[i];

		if (r->expected || !r->known || r->reload || reload_is_open(r->report))
			m->ranks.v[kept++] = *r;
	}
	m->ranks.count = kept;
	qsort(m->ranks.v, kept, sizeof(*m->ranks.v), by_rank);
}

/* ---- reasons of one rank ---- */

/* Which processes say they are this rank, with what tells an old file from a new one. */
static const char *attempts_text(struct merge *m, const struct merge_rank *rank,
				 const struct report_set *set, const struct merge_wish *wish)
{
	char from[TIME_SIZE], to[TIME_SIZE];
	const char *text = "";

	for (size_t i = 0; i < set->reports.count; i++) {
		const struct report *r = set->reports.v[i];

		if (!r->start || r->start->rank != rank->rank || merge_leaves_out(r, wish) ||
		    (!judged_reload(r, wish->reload) && !reload_is_open(r)))
			continue;
		text = pool_print(&m->pool, "%s%s%s pid %ju, %s to %s", text, *text ? "; " : "",
				  r->file, (uintmax_t)r->pid, unit_time(from, r->time_first_ns),
				  unit_time(to, r->time_last_ns));
	}
	return text;
}

/* What a reload that is no pass says of itself. */
static const char *failure_text(struct merge *m, const struct merge_rank *r)
{
	const char *text = r->reload->why;
	unsigned told = 0;

	for (size_t i = 0; i < r->report->findings.count && told < 3; i++) {
		const struct report_finding *f = r->report->findings.v[i];

		if (f->line != r->reload->line || f->severity != SEVERITY_ERROR)
			continue;
		text = pool_print(&m->pool, "%s%s%s", text, *text ? "; " : "", f->text);
		told++;
	}
	return text;
}

static void judge_attempt(struct merge *m, struct merge_rank *r, const struct report_set *set,
			  const struct merge_wish *wish)
{
	const struct report_reload *reload = r->reload;

	if (!r->report)
		REASON(m, r, "no report");
	else if (reload_is_open(r->report))
		REASON(m, r, "its reload is still open");
	else if (!reload)
		REASON(m, r, "it made no reload");
	else if (wish->reload && reload->id != wish->reload)
		REASON(m, r, "it made no reload %ju: its last one is %ju", (uintmax_t)wish->reload,
		       (uintmax_t)reload->id);
	else if (reload->verdict != VERDICT_PASS) {
		const char *why = failure_text(m, r);

		REASON(m, r, "reload %ju %s%s%s", (uintmax_t)reload->id,
		       reload->aborted ? "was aborted" : verdict_names[reload->verdict],
		       *why ? ": " : "", why);
		r->only_unproven = reload->verdict == VERDICT_UNPROVEN && !reload->aborted;
	} else if (reload->unsafe || (r->report->exit && r->report->exit->unsafe))
		REASON(m, r, "the process is unsafe until a full reload passes");
	else
		merge_after(m, r, set, wish);
}

static void judge_rank(struct merge *m, struct merge_rank *r, const struct report_set *set,
		       const struct merge_wish *wish)
{
	if (!r->known)
		REASON(m, r, "%s has no start line: its rank is not known",
		       r->report ? r->report->file : "a report");
	else if (!r->expected)
		REASON(m, r, "is not one of the ranks that are expected");
	else if (r->attempts > 1)
		REASON(m, r, "%zu processes made reloads as this rank: %s", r->attempts,
		       attempts_text(m, r, set, wish));
	else
		judge_attempt(m, r, set, wish);
}

/* ---- ranks against each other ---- */

static bool passes(const struct merge_rank *r)
{
	return r->expected && !r->reasons.count;
}

static bool same_reload(const struct report_reload *a, const struct report_reload *b)
{
	return a->id == b->id && scope_same(&a->scope, &b->scope);
}

/* Of equal numbers the first one wins, as in judge_ranks(). */
static void find_usual(struct merge *m)
{
	size_t most = 0;

	for (size_t i = 0; i < m->ranks.count; i++) {
		const struct merge_rank *r = &m->ranks.v[i];
		size_t same = 0;

		if (!passes(r) || (m->usual && same_reload(r->reload, m->usual)))
			continue;
		for (size_t k = i; k < m->ranks.count; k++)
			same += passes(&m->ranks.v[k]) &&
				same_reload(m->ranks.v[k].reload, r->reload);
		if (same > most) {
			most = same;
			m->usual = r->reload;
			m->usual_rank = r->rank;
		}
	}
}

static void name_stray(struct merge *m, struct merge_rank *r)
{
	const struct report_reload *mine = r->reload;

	if (mine->id == m->usual->id)
		REASON(m, r, "passed another reload: scope %s, rank %ju has %s",
		       scope_text(&m->pool, &mine->scope), (uintmax_t)m->usual_rank,
		       scope_text(&m->pool, &m->usual->scope));
	else
		REASON(m, r, "passed another reload: id %ju, rank %ju has %ju", (uintmax_t)mine->id,
		       (uintmax_t)m->usual_rank, (uintmax_t)m->usual->id);
	if (mine->id < m->usual->id && !r->report->exit)
		REASON(m, r, "its report has no end: it died in reload %ju, or is still in it",
		       (uintmax_t)mine->id + 1);
}

/* How many of the other passing ranks started after this one had said its last word? */
static bool is_of_earlier_run(const struct merge *m, const struct merge_rank *r)
{
	size_t others = 0, later = 0;

	for (size_t i = 0; i < m->ranks.count; i++) {
		const struct merge_rank *o = &m->ranks.v[i];

		if (o == r || !o->reload || !o->expected)
			continue;
		others++;
		later += o->report->time_first_ns > r->report->time_last_ns;
	}
	return later * 2 > others;
}

static void add_strays(struct merge *m)
{
	find_usual(m);
	for (size_t i = 0; i < m->ranks.count; i++) {
		struct merge_rank *r = &m->ranks.v[i];
		char last[TIME_SIZE];

		if (!passes(r))
			continue;
		if (!same_reload(r->reload, m->usual))
			name_stray(m, r);
		else if (is_of_earlier_run(m, r))
			REASON(m, r,
			       "its report ended at %s, before the other ranks started: it "
			       "is of an earlier run",
			       unit_time(last, r->report->time_last_ns));
	}
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Slowness is no failure: it is said. */
static void find_slow(struct merge *m, const struct merge_wish *wish)
{
	uint64_t *took = pool_take(&m->pool, (m->ranks.count + 1) * sizeof(*took));
	size_t count = 0;

	for (size_t i = 0; i < m->ranks.count; i++) {
		struct merge_rank *r = &m->ranks.v[i];

		if (!r->reload || r->attempts > 1)
			continue;
		if (r->reload->end_ns > r->reload->begin_ns)
			r->took_ns = r->reload->end_ns - r->reload->begin_ns;
		if (r->expected)
			took[count++] = r->took_ns;
	}
	qsort(took, count, sizeof(*took), by_number);
	m->median_ns = count ? took[(count - 1) / 2] : 0;
	for (size_t i = 0; i < m->ranks.count && count > 2; i++) {
		struct merge_rank *r = &m->ranks.v[i];

		r->slow = (double)r->took_ns * 100 > (double)m->median_ns * wish->slow_percent;
		m->slow += r->slow;
	}
}

void merge_judge(struct merge *m, const struct report_set *set, const struct merge_wish *wish)
{
	*m = (struct merge){ .expected = wish->count };
	find_ranks(m, set, wish);
	for (size_t i = 0; i < m->ranks.count; i++)
		judge_rank(m, &m->ranks.v[i], set, wish);
	add_strays(m);
	find_slow(m, wish);
	m->verdict = VERDICT_PASS;
	for (size_t i = 0; i < m->ranks.count; i++) {
		const struct merge_rank *r = &m->ranks.v[i];

		m->passed += passes(r);
		m->strangers += !r->expected;
		if (!r->reasons.count)
			continue;
		m->bad++;
		if (!r->only_unproven)
			m->verdict = VERDICT_FAIL;
		else if (m->verdict == VERDICT_PASS)
			m->verdict = VERDICT_UNPROVEN;
	}
}

void merge_free(struct merge *m)
{
	pool_free(&m->pool);
	*m = (struct merge){ 0 };
}
