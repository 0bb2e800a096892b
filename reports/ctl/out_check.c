/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats of `arenactl check`: text, JSON, annotations of GitHub Actions, JUnit.
 *
 * Threads: one.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "read.h"
#include "term.h"

#define TEXT_MAX 1024

/* What could not be read: of the reports, then of the baseline. @return NULL: no more. */
static const char *problem_text(const struct check *c, size_t i)
{
	if (i < c->set->problems.count)
		return c->set->problems.v[i];
	i -= c->set->problems.count;
	return i < c->baseline->problems.count ? c->baseline->problems.v[i] : NULL;
}

static const char *status_name(int status)
{
	return status == STATUS_PASS	     ? "pass"
	       : status == STATUS_FINDINGS   ? "fail"
	       : status == STATUS_UNREADABLE ? "unreadable"
					     : "unproven";
}

static enum paint status_paint(int status)
{
	return status == STATUS_PASS	   ? PAINT_GOOD
	       : status == STATUS_FINDINGS ? PAINT_BAD
					   : PAINT_WARN;
}

/*
 * Text
 */

static void text_finding(const struct judged *j, FILE *to)
{
	const struct report_finding *f = j->finding;

	fprintf(to, "  %s%s%s ", term_paint(term_severity_paint(f->severity)),
		severity_names[f->severity], term_paint(PAINT_NONE));
	term_text(to, f->text);
	fprintf(to, "\n      id 0x%" PRIx64 ", ", f->id);
	term_text(to, j->report->file);
	fprintf(to, ":%" PRIu64 ", process %" PRIu64, f->line, j->report->pid);
	if (f->occurrences > 1)
		fprintf(to, ", %" PRIu64 " times", f->occurrences);
	fputc('\n', to);
	if (j->allow) {
		fprintf(to, "      allowed%s%s: ", j->allow->until ? " until " : "",
			j->allow->until ? j->allow->until : "");
		term_text(to, j->allow->reason);
		fputc('\n', to);
	}
}

static void text_processes(const struct check *c, FILE *to)
{
	for (size_t i = 0; i < c->set->reports.count; i++) {
		const struct report *r = c->set->reports.v[i];
		const char *why;
		enum verdict v = check_process(c, r, &why);

		if (v == VERDICT_PASS)
			continue;
		fprintf(to, "%s: process %" PRIu64 " in ", verdict_names[v], r->pid);
		term_text(to, r->file);
		fprintf(to, ": ");
		term_text(to, why);
		fputc('\n', to);
	}
}

/* Rows of the allow file that did nothing. */
static void text_allow(const struct check *c, FILE *to)
{
	for (size_t i = 0; i < c->allow.count; i++) {
		const struct allow_row *row = &c->allow.v[i];

		if (row->used && !row->expired)
			continue;
		term_text(to, c->allow.path);
		fprintf(to, ":%" PRIu64 ": 0x%" PRIx64 " %s%s: remove it%s\n", row->line, row->id,
			row->expired ? "expired on " : "is unused", row->expired ? row->until : "",
			row->expired && row->used ? ", or say why it still holds" : "");
	}
}

static void print_text(const struct check *c, FILE *to)
{
	const size_t *n = c->sums;

	fprintf(to, "%s%s%s: %zu finding%s at or above %s", term_paint(status_paint(c->status)),
		status_name(c->status), term_paint(PAINT_NONE), n[FATE_FAILS],
		n[FATE_FAILS] == 1 ? "" : "s", severity_names[c->fail_on]);
	if (n[FATE_ALLOWED])
		fprintf(to, ", %zu allowed", n[FATE_ALLOWED]);
	if (n[FATE_KNOWN])
		fprintf(to, ", %zu known from the baseline", n[FATE_KNOWN]);
	if (n[FATE_BELOW])
		fprintf(to, ", %zu below", n[FATE_BELOW]);
	fprintf(to, "; %zu process%s\n", c->set->reports.count,
		c->set->reports.count == 1 ? "" : "es");
	for (size_t i = 0; i < c->count; i++)
		if (c->v[i].fate == FATE_FAILS || c->v[i].fate == FATE_ALLOWED)
			text_finding(&c->v[i], to);
	text_processes(c, to);
	text_allow(c, to);
}

/*
 * JSON
 */

static void json_finding(const struct judged *j, FILE *to)
{
	char subject[TEXT_MAX];

	fprintf(to, "{\"id\":\"0x%" PRIx64 "\",\"fate\":\"%s\",\"severity\":\"%s\",\"kind\":",
		j->finding->id, fate_names[j->fate], severity_names[j->finding->severity]);
	term_json(to, j->finding->kind);
	fputs(",\"subject\":", to);
	term_json(to, finding_subject(j->finding, subject, sizeof(subject)));
	fputs(",\"text\":", to);
	term_json(to, j->finding->text);
	fputs(",\"reason\":", to);
	if (j->allow)
		term_json(to, j->allow->reason);
	else
		fputs("null", to);
	fputs(",\"file\":", to);
	term_json(to, j->report->file);
	fprintf(to, ",\"line\":%" PRIu64 ",\"pid\":%" PRIu64 ",\"times\":%" PRIu64 "}",
		j->finding->line, j->report->pid, j->finding->occurrences);
}

static void json_processes(const struct check *c, FILE *to)
{
	for (size_t i = 0; i < c->set->reports.count; i++) {
		const struct report *r = c->set->reports.v[i];
		const char *why;
		enum verdict v = check_process(c, r, &why);

		/* Of what is accepted the reason is told, too. */
		why = why ? why : report_why(r);
		fputs(i ? ",\n{\"file\":" : "\n{\"file\":", to);
		term_json(to, r->file);
		fprintf(to,
			",\"pid\":%" PRIu64 ",\"verdict\":\"%s\",\"accepted\":%s,\"why\":", r->pid,
			verdict_names[report_verdict(r)], v == VERDICT_PASS ? "true" : "false");
		if (why)
			term_json(to, why);
		else
			fputs("null", to);
		fputc('}', to);
	}
}

static void json_allow(const struct check *c, FILE *to)
{
	bool first = true;

	for (size_t i = 0; i < c->allow.count; i++) {
		const struct allow_row *row = &c->allow.v[i];

		if (row->used && !row->expired)
			continue;
		fprintf(to,
			"%s{\"id\":\"0x%" PRIx64 "\",\"line\":%" PRIu64
			",\"expired\":%s,\"used\":%s}",
			first ? "" : ",", row->id, row->line, row->expired ? "true" : "false",
			row->used ? "true" : "false");
		first = false;
	}
}

static void print_json(const struct check *c, FILE *to)
{
	const struct read_result *r = c->set->read;
	const char *text;

	fprintf(to,
		"{\"schema\":1,\"status\":\"%s\",\"exit\":%d,\"fail_on\":\"%s\","
		"\"problems\":%" PRIu64 ",\"unreadable\":[",
		status_name(c->status), c->status, severity_names[c->fail_on],
		r->problems + (c->baseline->read ? c->baseline->read->problems : 0));
	for (size_t i = 0; (text = problem_text(c, i)); i++) {
		fputs(i ? ",\n" : "\n", to);
		term_json(to, text);
	}
	fputs("],\n\"processes\":[", to);
	json_processes(c, to);
	fputs("],\n\"findings\":[", to);
	for (size_t i = 0; i < c->count; i++) {
		fputs(i ? ",\n" : "\n", to);
		json_finding(&c->v[i], to);
	}
	fputs("],\n\"allow\":[", to);
	json_allow(c, to);
	fputs("]}\n", to);
}

/*
 * Annotations of GitHub Actions
 */

/* %, CR and LF; in a property also colon and comma. Nothing else ends a command. */
static void github_text(FILE *to, const char *s, bool property)
{
	size_t room = 4 * strlen(s) + 1;
	char *clean = malloc(room);

	if (!clean)
		return;
	term_clean(clean, room, s);
	for (const char *c = clean; *c; c++)
		if (*c == '%' || (property && (*c == ':' || *c == ',')))
			fprintf(to, "%%%02X", (unsigned)*c);
		else
			fputc(*c, to);
	free(clean);
}

/* The Python line that allocated what is there now, else the old memory: where to look. */
static const struct python_ref *place(const struct judged *j)
{
	const struct report_stack *s = report_stack(j->report, finding_now_stack(j->finding));

	if (!s || !s->python_count)
		s = report_stack(j->report, finding_old_stack(j->finding));
	return s && s->python_count ? &s->python[0] : NULL;
}

static void github_finding(const struct judged *j, FILE *to)
{
	const struct report_finding *f = j->finding;
	const struct python_ref *p = place(j);
	const char *level = j->fate != FATE_FAILS	    ? "notice"
			    : f->severity == SEVERITY_ERROR ? "error"
							    : "warning";

	fprintf(to, "::%s ", level);
	if (p) {
		fputs("file=", to);
		github_text(to, p->file, true);
		if (p->line)
			fprintf(to, ",line=%" PRIu64, p->line);
		fputc(',', to);
	}
	fputs("title=", to);
	github_text(to, f->kind, true);
	fputs("::", to);
	github_text(to, f->text, false);
	fprintf(to, " (id 0x%" PRIx64 "%s", f->id, j->allow ? ", allowed: " : "");
	if (j->allow)
		github_text(to, j->allow->reason, false);
	fputs(")\n", to);
}

static void print_github(const struct check *c, FILE *to)
{
	const char *text;

	for (size_t i = 0; (text = problem_text(c, i)); i++) {
		fputs("::error title=unreadable::", to);
		github_text(to, text, false);
		fputc('\n', to);
	}
	for (size_t i = 0; i < c->count; i++)
		if (c->v[i].fate == FATE_FAILS || c->v[i].fate == FATE_ALLOWED)
			github_finding(&c->v[i], to);
	for (size_t i = 0; i < c->set->reports.count; i++) {
		const struct report *r = c->set->reports.v[i];
		const char *why;
		enum verdict v = check_process(c, r, &why);

		if (v == VERDICT_PASS)
			continue;
		fprintf(to, "::%s title=%s::process %" PRIu64 ": ",
			v == VERDICT_FAIL ? "error" : "warning", verdict_names[v], r->pid);
		github_text(to, why, false);
		fputc('\n', to);
	}
	for (size_t i = 0; i < c->allow.count; i++) {
		const struct allow_row *row = &c->allow.v[i];

		if (row->used && !row->expired)
			continue;
		fputs("::warning file=", to);
		github_text(to, c->allow.path, true);
		fprintf(to, ",line=%" PRIu64 ",title=allow::0x%" PRIx64 " %s%s\n", row->line,
			row->id, row->expired ? "expired on " : "is unused",
			row->expired ? row->until : "");
	}
	fprintf(to,
		"::notice title=arenactl check::%s: %zu findings at or above %s, %zu allowed, "
		"%zu known, %zu below; %zu processes\n",
		status_name(c->status), c->sums[FATE_FAILS], severity_names[c->fail_on],
		c->sums[FATE_ALLOWED], c->sums[FATE_KNOWN], c->sums[FATE_BELOW],
		c->set->reports.count);
}

/*
 * JUnit
 */

static void xml_text(FILE *to, const char *s)
{
	size_t room = 4 * strlen(s) + 1;
	char *clean = malloc(room);

	if (!clean)
		return;
	term_clean(clean, room, s);
	for (const char *c = clean; *c; c++)
		switch (*c) {
		case '&':
			fputs("&amp;", to);
			break;
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		case '"':
			fputs("&quot;", to);
			break;
		default:
			fputc(*c, to);
		}
	free(clean);
}

static void junit_finding(const struct judged *j, FILE *to)
{
	const struct report_finding *f = j->finding;
	char subject[TEXT_MAX];

	fputs("    <testcase classname=\"", to);
	xml_text(to, f->kind);
	fputs("\" name=\"", to);
	xml_text(to, finding_subject(f, subject, sizeof(subject)));
	fprintf(to, " [0x%" PRIx64 "]\">", f->id);
	if (j->fate == FATE_FAILS) {
		fprintf(to, "<failure type=\"%s\" message=\"", severity_names[f->severity]);
		xml_text(to, f->title);
		fputs("\">", to);
		xml_text(to, f->text);
		fputs("</failure>", to);
	} else if (j->fate != FATE_BELOW) {
		fprintf(to, "<skipped message=\"%s", fate_names[j->fate]);
		if (j->allow) {
			fputs(": ", to);
			xml_text(to, j->allow->reason);
		}
		fputs("\"/>", to);
	}
	fputs("</testcase>\n", to);
}

static void junit_process(const struct check *c, const struct report *r, FILE *to)
{
	const char *why;
	enum verdict v = check_process(c, r, &why);

	fprintf(to, "    <testcase classname=\"process\" name=\"verdict of process %" PRIu64 "\">",
		r->pid);
	if (v != VERDICT_PASS) {
		fprintf(to, "<%s type=\"%s\" message=\"", v == VERDICT_FAIL ? "failure" : "error",
			verdict_names[v]);
		xml_text(to, why);
		fputs("\"/>", to);
	}
	fputs("</testcase>\n", to);
}

static void junit_suite(const struct check *c, const struct report *r, FILE *to)
{
	size_t tests = 1, failures = 0, skipped = 0;
	const char *why;
	enum verdict v = check_process(c, r, &why);

	for (size_t i = 0; i < c->count; i++) {
		if (c->v[i].report != r)
			continue;
		tests++;
		failures += c->v[i].fate == FATE_FAILS;
		skipped += c->v[i].fate == FATE_ALLOWED || c->v[i].fate == FATE_KNOWN;
	}
	fputs("  <testsuite name=\"", to);
	xml_text(to, r->file);
	fprintf(to,
		" %" PRIu64 "\" tests=\"%zu\" failures=\"%zu\" errors=\"%d\" skipped=\"%zu\">\n",
		r->pid, tests, failures + (v == VERDICT_FAIL), v == VERDICT_UNPROVEN, skipped);
	junit_process(c, r, to);
	for (size_t i = 0; i < c->count; i++)
		if (c->v[i].report == r)
			junit_finding(&c->v[i], to);
	fputs("  </testsuite>\n", to);
}

/* What is damaged is an error of its own: a suite that looks whole would be a lie. */
static void junit_reading(const struct check *c, FILE *to)
{
	size_t count = c->set->problems.count + c->baseline->problems.count;

	if (!count)
		return;
	fprintf(to,
		"  <testsuite name=\"reading\" tests=\"%zu\" failures=\"0\" errors=\"%zu\" "
		"skipped=\"0\">\n",
		count, count);
	for (size_t i = 0; i < count; i++) {
		fprintf(to,
			"    <testcase classname=\"reading\" name=\"problem %zu\">"
			"<error type=\"unreadable\" message=\"",
			i + 1);
		xml_text(to, problem_text(c, i));
		fputs("\"/></testcase>\n", to);
	}
	fputs("  </testsuite>\n", to);
}

static void print_junit(const struct check *c, FILE *to)
{
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"arenactl check\">\n",
	      to);
	for (size_t i = 0; i < c->set->reports.count; i++)
		junit_suite(c, c->set->reports.v[i], to);
	junit_reading(c, to);
	fputs("</testsuites>\n", to);
}

static const struct {
	const char *name;
	void (*print)(const struct check *c, FILE *to);
} formats[] = {
	{ "github", print_github },
	{ "json", print_json },
	{ "junit", print_junit },
	{ "text", print_text },
};

bool check_has_format(const char *format)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (!strcmp(formats[i].name, format))
			return true;
	return false;
}

bool check_print(const struct check *c, const char *format, FILE *to)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (!strcmp(formats[i].name, format)) {
			formats[i].print(c, to);
			return true;
		}
	return false;
}
