/* SPDX-License-Identifier: Apache-2.0 */
/* Counting lines of reports by process. One thread. */
#include "metrics.h"

#include <stdlib.h>
#include <string.h>

/* Out of memory ends the program, as in pool.h. */
static void *grown(void *v, size_t count, size_t bytes)
{
	/* By powers of two: room is what the count was rounded up to. */
	if (count & (count - 1))
		return v;
	v = realloc(v, (count ? 2 * count : 1) * bytes);
	if (!v) {
		fprintf(stderr, "arenactl: no memory\n");
		exit(3);
	}
	return v;
}

static char *copied(const char *s)
{
	char *copy = strdup(s);

	if (!copy) {
		fprintf(stderr, "arenactl: no memory\n");
		exit(3);
	}
	return copy;
}

static void count_word(struct counts *c, const char *word, uint64_t by)
{
	for (size_t i = 0; i < c->count; i++) {
		if (strcmp(c->v[i].word, word) != 0)
			continue;
		c->v[i].count += by;
		return;
	}
	c->v = grown(c->v, c->count, sizeof(*c->v));
	c->v[c->count++] = (struct counted){ copied(word), by };
}

void counts_free(struct counts *c)
{
	for (size_t i = 0; i < c->count; i++)
		free(c->v[i].word);
	free(c->v);
	*c = (struct counts){ 0 };
}

/* ---- lines ---- */

static struct process *begin(struct metrics *m, const struct report_start *s, const char *file)
{
	struct process *p;

	m->v = grown(m->v, m->count, sizeof(*m->v));
	p = &m->v[m->count++];
	*p = (struct process){ .pid = s->pid, .rank = s->rank };
	p->host = copied(s->host);
	p->file = copied(file);
	p->exe = copied(s->exe);
	return p;
}

static void add_finding(struct process *p, const struct report_finding *f)
{
	p->findings[f->severity]++;
	count_word(&p->kinds, f->kind, 1);
}

static void add_reload(struct process *p, const struct report_reload *r)
{
	for (size_t i = 0; i < r->findings_count; i++)
		add_finding(p, &r->findings[i]);
	if (r->id == 0)
		return;
	p->reloads[r->verdict]++;
	p->last_reload = r->verdict;
	p->generation = r->generation;
	p->is_unsafe = r->unsafe;
}

/* The exit line has counted everything itself, also what was not written. */
static void end(struct process *p, const struct report_exit *e)
{
	p->has_ended = true;
	p->verdict = e->verdict;
	p->is_unsafe = e->unsafe;
	p->generation = e->generation;
	p->lines_lost = e->lines_lost;
	memcpy(p->findings, e->findings, sizeof(p->findings));
	counts_free(&p->kinds);
	for (size_t i = 0; i < e->by_kind.count; i++)
		if (e->by_kind.v[i].number)
			count_word(&p->kinds, e->by_kind.v[i].key, e->by_kind.v[i].number);
	for (size_t i = 0; i < e->coverage.count; i++)
		if (e->coverage.v[i].number)
			count_word(&p->coverage, e->coverage.v[i].key, e->coverage.v[i].number);
}

void metrics_line(struct metrics *m, size_t *process, const struct line *line)
{
	struct process *p = *process ? &m->v[*process - 1] : NULL;

	if (line->type == LINE_START) {
		begin(m, &line->start, line->file);
		*process = m->count;
	}
	if ((p || line->type == LINE_START) && line->time_ns > m->time_ns)
		m->time_ns = line->time_ns;
	if (!p)
		return;
	if (line->type == LINE_FINDING)
		add_finding(p, &line->finding);
	else if (line->type == LINE_RELOAD || line->type == LINE_VERIFY)
		add_reload(p, &line->reload);
	else if (line->type == LINE_EXIT)
		end(p, &line->exit);
}

void metrics_set(struct metrics *m, const struct report_set *set)
{
	for (size_t i = 0; i < set->reports.count; i++) {
		const struct report *r = set->reports.v[i];
		static const struct report_start unknown = { .host = "unknown", .exe = "" };
		struct process *p = begin(m, r->start ? r->start : &unknown, r->file);

		p->pid = r->pid;
		if (r->time_last_ns > m->time_ns)
			m->time_ns = r->time_last_ns;
		for (size_t k = 0; k < r->reloads.count; k++)
			add_reload(p, r->reloads.v[k]);
		/* Again, as the list of findings has those of reloads, too. */
		memset(p->findings, 0, sizeof(p->findings));
		counts_free(&p->kinds);
		for (size_t k = 0; k < r->findings.count; k++)
			add_finding(p, r->findings.v[k]);
		if (r->exit)
			end(p, r->exit);
	}
}

struct counts metrics_kinds(const struct metrics *m)
{
	struct counts all = { 0 };

	for (size_t i = 0; i < m->count; i++)
		for (size_t k = 0; k < m->v[i].kinds.count; k++)
			count_word(&all, m->v[i].kinds.v[k].word, m->v[i].kinds.v[k].count);
	return all;
}

/* ---- verdicts ---- */

enum verdict metrics_process_verdict(const struct process *p)
{
	if (p->has_ended)
		return p->verdict;
	if (p->findings[SEVERITY_ERROR] || p->is_unsafe || p->last_reload == VERDICT_FAIL)
		return VERDICT_FAIL;
	return VERDICT_UNPROVEN;
}

enum verdict metrics_verdict(const struct metrics *m)
{
	enum verdict all = m->count ? VERDICT_PASS : VERDICT_NONE;

	for (size_t i = 0; i < m->count && all != VERDICT_FAIL; i++) {
		enum verdict v = metrics_process_verdict(&m->v[i]);

		if (v != VERDICT_PASS)
			all = v;
	}
	return all == VERDICT_PASS && m->unread ? VERDICT_UNPROVEN : all;
}

void metrics_free(struct metrics *m)
{
	for (size_t i = 0; i < m->count; i++) {
		free(m->v[i].host);
		free(m->v[i].file);
		free(m->v[i].exe);
		counts_free(&m->v[i].kinds);
		counts_free(&m->v[i].coverage);
	}
	free(m->v);
	*m = (struct metrics){ 0 };
}
