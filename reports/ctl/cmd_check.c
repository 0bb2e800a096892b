/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arenactl check FILE...: one answer for a gate. Failing findings come before damage, damage
 * before doubt: 1, 3, 4; only what was read whole, to its end, without either is 0.
 *
 * Threads: one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "term.h"

const char *const fate_names[FATE_COUNT] = { "fails", "allowed", "known", "below" };

/* Ids of a baseline, sorted. */
struct ids {
	uint64_t *v;
	size_t count;
};

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static size_t count_findings(const struct report_set *set)
{
	size_t count = 0;

	for (size_t i = 0; i < set->reports.count; i++)
		count += set->reports.v[i]->findings.count;
	return count;
}

static int read_baseline(const struct args *a, struct ids *ids)
{
	char *path = (char *)args_text(a, ARG_BASELINE, NULL);
	struct report_set set;
	int status;

	if (!path)
		return 0;
	status = set_read(&set, &path, 1, NULL);
	ids->v = malloc((count_findings(&set) + 1) * sizeof(*ids->v));
	for (size_t i = 0; ids->v && i < set.reports.count; i++)
		for (size_t k = 0; k < set.reports.v[i]->findings.count; k++)
			ids->v[ids->count++] = set.reports.v[i]->findings.v[k]->id;
	if (ids->count)
		qsort(ids->v, ids->count, sizeof(*ids->v), by_number);
	set_free(&set);
	return status;
}

static enum fate judge(struct check *c, const struct report_finding *f, const struct ids *known,
		       const struct allow_row **row)
{
	/* Looked up in any case: a row that has a finding is not unused. */
	*row = allow_find(&c->allow, f->id);
	if (f->severity < c->fail_on)
		return FATE_BELOW;
	if (*row)
		return FATE_ALLOWED;
	if (known->count && bsearch(&f->id, known->v, known->count, sizeof(f->id), by_number))
		return FATE_KNOWN;
	return FATE_FAILS;
}

static int judge_all(struct check *c, const struct ids *known)
{
	c->v = malloc((count_findings(c->set) + 1) * sizeof(*c->v));
	if (!c->v)
		return STATUS_UNREADABLE;
	for (size_t i = 0; i < c->set->reports.count; i++) {
		const struct report *r = c->set->reports.v[i];

		for (size_t k = 0; k < r->findings.count; k++) {
			const struct report_finding *f = r->findings.v[k];
			struct judged *j = &c->v[c->count];

			if (f->again)
				continue;
			*j = (struct judged){ .report = r, .finding = f };
			j->fate = judge(c, f, known, &j->allow);
			c->sums[j->fate]++;
			c->count++;
		}
	}
	return 0;
}

/*
 * An exit line that says "fail" is believed: only when each finding that can be its reason is
 * accepted, the process is.
 */
bool check_process_fails(const struct check *c, const struct report *r)
{
	bool accepted = false;

	if (report_verdict(r) != VERDICT_FAIL)
		return false;
	for (size_t i = 0; i < c->count; i++) {
		const struct judged *j = &c->v[i];

		if (j->report != r || j->finding->severity < SEVERITY_ERROR)
			continue;
		if (j->fate == FATE_FAILS || j->fate == FATE_BELOW)
			return true;
		accepted = true;
	}
	return !accepted || (r->exit && r->exit->unsafe);
}

static int decide(const struct check *c, int damaged)
{
	int status = c->set->reports.count ? STATUS_PASS : STATUS_UNPROVEN;

	if (c->sums[FATE_FAILS])
		return STATUS_FINDINGS;
	for (size_t i = 0; i < c->set->reports.count; i++) {
		const struct report *r = c->set->reports.v[i];

		if (check_process_fails(c, r))
			return STATUS_FINDINGS;
		if (report_verdict(r) == VERDICT_UNPROVEN)
			status = STATUS_UNPROVEN;
	}
	return damaged ? STATUS_UNREADABLE : status;
}

static int print(const struct check *c, const struct args *a)
{
	const char *path = args_text(a, ARG_OUTPUT, NULL);
	FILE *to = path ? fopen(path, "we") : stdout;

	if (!to) {
		args_refuse(a, "%s: %s", path, strerror(errno));
		return STATUS_UNREADABLE;
	}
	if (!path && !strcmp(args_text(a, ARG_FORMAT, "text"), "text"))
		term_open(a);
	check_print(c, args_text(a, ARG_FORMAT, "text"), to);
	if (!path)
		return term_close() ? 0 : STATUS_UNREADABLE;
	if (ferror(to) | fclose(to)) {
		args_refuse(a, "%s: %s", path, strerror(errno));
		return STATUS_UNREADABLE;
	}
	return 0;
}

static enum severity parse_severity(const struct args *a)
{
	const char *word = args_text(a, ARG_FAIL_ON, "error");
	unsigned s = 0;

	while (strcmp(severity_names[s], word) != 0)
		s++;
	return s;
}

static int check_options(struct check *c, const struct args *a)
{
	const char *format = args_text(a, ARG_FORMAT, "text"),
		   *allow = args_text(a, ARG_ALLOW, NULL);

	if (!check_has_format(format))
		return args_refuse(a, "--format=%s: the formats are github, json, junit, text",
				   format);
	c->fail_on = parse_severity(a);
	return allow ? allow_read(&c->allow, allow, a) : 0;
}

static int run(struct args *a)
{
	struct set_limits limits = { .refs = 4 };
	struct check c = { 0 };
	struct report_set set = { 0 };
	struct ids known = { 0 };
	int status = check_options(&c, a), damaged, printed;

	if (!status) {
		damaged = read_baseline(a, &known);
		damaged |= set_read(&set, a->operands, a->count, &limits);
		c.set = &set;
		status = judge_all(&c, &known);
		c.status = status ? status : decide(&c, damaged);
		printed = status ? status : print(&c, a);
		status = printed ? printed : c.status;
	}
	free(known.v);
	free(c.v);
	allow_free(&c.allow);
	set_free(&set);
	return status;
}

const struct command cmd_check = {
	.name = "check",
	.synopsis = "FILE...",
	.summary = "judge reports for a gate: exit code, annotations, JUnit",
	.bit = CMD_CHECK,
	.operands_min = 1,
	.run = run,
};
