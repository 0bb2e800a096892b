/* SPDX-License-Identifier: Apache-2.0 */
/* Counting lines of reports by process. One thread. */
#include "metrics.h"

#include <stdlib.h>
#include <string.h>

/* Most findings of a process that are known again. */
#define SEEN_MAX 65536

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

/* The library counts what has the same key once: a launch's key, or slot and bindings. */
static uint64_t occurrence(const struct report_finding *f)
{
	const struct report_binding *sides[] = { f->old, f->now };
	uint64_t key = f->key ? f->key : f->id;

	for (size_t i = 0; i < 2 && !f->key; i++) {
		key = (key ^ (sides[i] ? sides[i]->base : 0)) * 0x100000001b3;
		key = (key ^ (sides[i] ? sides[i]->generation : 0)) * 0x100000001b3;
	}
	return key ? key : 1;
}

static uint64_t *seen_slot(const struct process *p, uint64_t key)
{
	size_t at = (size_t)(key ^ key >> 32) & (p->seen_size - 1);

	while (p->seen[at] && p->seen[at] != key)
		at = (at + 1) & (p->seen_size - 1);
	return &p->seen[at];
}

static void grow_seen(struct process *p)
{
	struct process larger = { .seen_size = p->seen_size ? 2 * p->seen_size : 64 };

	larger.seen = calloc(larger.seen_size, sizeof(*larger.seen));
	if (!larger.seen) {
		fprintf(stderr, "arenactl: no memory\n");
		exit(3);
	}
	for (size_t i = 0; i < p->seen_size; i++)
		if (p->seen[i])
			*seen_slot(&larger, p->seen[i]) = p->seen[i];
	free(p->seen);
	p->seen = larger.seen;
	p->seen_size = larger.seen_size;
}

/* Beyond SEEN_MAX each is taken for new, as the library does with a full table. */
static bool is_again(struct process *p, const struct report_finding *f)
{
	uint64_t key = occurrence(f), *slot;

	if (2 * p->seen_count >= p->seen_size && p->seen_count < SEEN_MAX)
		grow_seen(p);
	slot = seen_slot(p, key);
	if (*slot)
		return true;
	if (p->seen_count < SEEN_MAX) {
		*slot = key;
		p->seen_count++;
	}
	return false;
}

static void forget_seen(struct process *p)
{
	free(p->seen);
	p->seen = NULL;
	p->seen_count = p->seen_size = 0;
}

static void add_finding(struct process *p, const struct report_finding *f)
{
	if (is_again(p, f))
		return;
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
	p->verdict = exit_verdict(e);
	p->is_unsafe |= e->unsafe;
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

/* Processes may share a file line by line: the pid tells whose a line is. */
static struct process *process_of(struct metrics *m, size_t last, const struct line *line)
{
	if (!line->pid || (last && m->v[last - 1].pid == line->pid))
		return last ? &m->v[last - 1] : NULL;
	for (size_t i = m->count; i-- > 0;)
		if (m->v[i].pid == line->pid && !strcmp(m->v[i].file, line->file))
			return &m->v[i];
	return NULL;
}

void metrics_line(struct metrics *m, size_t *process, const struct line *line)
{
	struct process *p = process_of(m, *process, line);

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
		forget_seen(p);
		for (size_t k = 0; k < r->findings.count; k++)
			add_finding(p, r->findings.v[k]);
		if (r->exit) {
			end(p, r->exit);
			p->verdict = report_verdict(r);
		}
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
		free(m->v[i].seen);
		counts_free(&m->v[i].kinds);
		counts_free(&m->v[i].coverage);
	}
	free(m->v);
	*m = (struct metrics){ 0 };
}
