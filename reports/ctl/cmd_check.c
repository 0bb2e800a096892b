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

/* What is known from a baseline: the worst severity that each id had; sorted by id. */
struct known {
	uint64_t id;
	enum severity severity;
};
struct baseline {
	struct known *v;
	size_t count;
	struct report_set set;
};

static int by_id(const void *pa, const void *pb)
{
	const struct known *a = pa, *b = pb;

	return a->id < b->id ? -1 : a->id > b->id;
}

static size_t count_findings(const struct report_set *set)
{
	size_t count = 0;

	for (size_t i = 0; i < set->reports.count; i++)
		count += set->reports.v[i]->findings.count;
	return count;
}

/* One of each id: the worst. */
static void fold(struct baseline *b)
{
	size_t count = 0;

	if (b->count)
		qsort(b->v, b->count, sizeof(*b->v), by_id);
	for (size_t i = 0; i < b->count; i++) {
		if (!count || b->v[count - 1].id != b->v[i].id)
			b->v[count++] = b->v[i];
		else if (b->v[count - 1].severity < b->v[i].severity)
			b->v[count - 1].severity = b->v[i].severity;
	}
	b->count = count;
}

static int read_baseline(const struct args *a, struct baseline *b)
{
	char *path = (char *)args_text(a, ARG_BASELINE, NULL);
	int status;

	if (!path)
		return 0;
	status = set_read(&b->set, &path, 1, NULL);
	b->v = malloc((count_findings(&b->set) + 1) * sizeof(*b->v));
	for (size_t i = 0; b->v && i < b->set.reports.count; i++) {
		const struct report *r = b->set.reports.v[i];

		for (size_t k = 0; k < r->findings.count; k++)
			b->v[b->count++] =
				(struct known){ r->findings.v[k]->id, r->findings.v[k]->severity };
	}
	fold(b);
	return status;
}

static bool is_known(const struct baseline *b, const struct report_finding *f)
{
	struct known key = { .id = f->id };
	const struct known *k =
		b->count ? bsearch(&key, b->v, b->count, sizeof(*b->v), by_id) : NULL;

	/* As an error it is new when it was a warning. */
	return k && f->severity <= k->severity;
}

static enum fate judge(struct check *c, const struct report_finding *f,
		       const struct baseline *known, const struct allow_row **row)
{
	/* Looked up in any case: a row that has a finding is not unused. */
	*row = allow_find(&c->allow, f->id);
	if (f->severity < c->fail_on)
		return FATE_BELOW;
	if (*row)
		return FATE_ALLOWED;
	return is_known(known, f) ? FATE_KNOWN : FATE_FAILS;
}

static int judge_all(struct check *c, const struct baseline *known)
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

static bool has_failing(const struct check *c, const struct report *r)
{
	for (size_t i = 0; i < c->count; i++)
		if (c->v[i].report == r && c->v[i].finding->severity == SEVERITY_ERROR &&
		    (c->v[i].fate == FATE_FAILS || c->v[i].fate == FATE_BELOW))
			return true;
	return false;
}

/*
 * Each failure needs an error of its own that is accepted: the last reload one of its findings, an
 * exit line that says "fail" that reload or a finding of a launch. A process that is unsafe is
 * never accepted.
 */
static bool process_fails(const struct check *c, const struct report *r, const char **why)
{
	const struct report_reload *last = report_last_reload(r);
	bool reload_failed = (last && last->verdict == VERDICT_FAIL) ||
			     (r->exit && r->exit->reload_last == VERDICT_FAIL);

	if (report_verdict(r) != VERDICT_FAIL)
		return false;
	if (report_unsafe(r) || has_failing(c, r))
		return true;
	*why = reload_failed ? "the last reload failed" : "its exit line says so";
	return reload_failed ? !last || !last->errors : !r->launch_errors;
}

enum verdict check_process(const struct check *c, const struct report *r, const char **why)
{
	*why = report_why(r);
	if (process_fails(c, r, why))
		return VERDICT_FAIL;
	*why = report_doubt(r);
	return *why ? VERDICT_UNPROVEN : VERDICT_PASS;
}

static int decide(const struct check *c, int damaged)
{
	int status = c->set->reports.count ? STATUS_PASS : STATUS_UNPROVEN;
	const char *why;

	if (c->sums[FATE_FAILS])
		return STATUS_FINDINGS;
	for (size_t i = 0; i < c->set->reports.count; i++) {
		enum verdict v = check_process(c, c->set->reports.v[i], &why);

		if (v == VERDICT_FAIL)
			return STATUS_FINDINGS;
		if (v != VERDICT_PASS)
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
	const char *const more[] = { allow, args_text(a, ARG_BASELINE, NULL) };
	int status;

	if (!check_has_format(format))
		return args_refuse(a, "--format=%s: the formats are github, json, junit, text",
				   format);
	c->fail_on = parse_severity(a);
	status = args_spare_inputs(a, more, 2);
	if (status)
		return status;
	return allow ? allow_read(&c->allow, allow, a) : 0;
}

static int run(struct args *a)
{
	struct set_limits limits = { .refs = 4 };
	struct report_set set = { 0 };
	struct baseline known = { 0 };
	struct check c = { .set = &set, .baseline = &known.set };
	int status = check_options(&c, a), damaged, printed;

	if (!status) {
		damaged = read_baseline(a, &known);
		damaged |= set_read(&set, a->operands, a->count, &limits);
		status = judge_all(&c, &known);
		c.status = status ? status : decide(&c, damaged);
		printed = status ? status : print(&c, a);
		status = printed ? printed : c.status;
	}
	free(known.v);
	set_free(&known.set);
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
