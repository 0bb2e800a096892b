/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arenactl merge: all ranks of one reload, or nothing. The gate of a controller that has the
 * reports of its workers in a folder. What decides is in merge.c.
 *
 * Threads: one.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "args.h"
#include "gather.h"
#include "merge.h"
#include "read.h"
#include "term.h"

/* More ranks than any cluster has: a slip of the finger should not take all memory. */
#define RANKS_MAX 65536

/* ---- the command line ---- */

/* "64": 0 to 63. "0-3,8": these. */
static bool parse_ranks(const char *text, uint64_t *ranks, size_t *count)
{
	bool is_list = strpbrk(text, "-,") != NULL;

	*count = 0;
	do {
		char *end;
		uint64_t first, last;

		if (!isdigit((unsigned char)*text))
			return false;
		first = last = strtoull(text, &end, 10);
		if (is_list && *end == '-') {
			if (!isdigit((unsigned char)end[1]))
				return false;
			last = strtoull(end + 1, &end, 10);
		}
		if (!is_list) {
			last = first - 1;
			first = 0;
			if (last >= RANKS_MAX)
				return false;
		}
		if ((*end && *end != ',') || last < first || last - first >= RANKS_MAX - *count)
			return false;
		for (uint64_t r = first; r <= last; r++)
			ranks[(*count)++] = r;
		text = *end ? end + 1 : end;
		if (*end && !*text)
			return false;
	} while (*text);
	return true;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int ranks_of(const struct args *a, uint64_t *ranks, struct merge_wish *wish)
{
	const char *text = args_text(a, ARG_RANKS, NULL);

	if (!text)
		return args_refuse(a, "how many ranks are expected is not said: --ranks=64");
	if (!parse_ranks(text, ranks, &wish->count))
		return args_refuse(a, "--ranks=%s: give how many, 64, or which, 0-3,8", text);
	qsort(ranks, wish->count, sizeof(*ranks), by_number);
	for (size_t i = 1; i < wish->count; i++)
		if (ranks[i] == ranks[i - 1])
			return args_refuse(a, "--ranks=%s: rank %ju is there twice", text,
					   (uintmax_t)ranks[i]);
	wish->ranks = ranks;
	return 0;
}

/* The number in front of @rest in seconds; false: no number, or more than a clock can have. */
static bool parse_seconds(const char *text, uint64_t unit, const char **rest, uint64_t *ns)
{
	char *end;
	uint64_t n;

	errno = 0;
	n = strtoull(text, &end, 10);
	*rest = end;
	return isdigit((unsigned char)*text) && !errno && !__builtin_mul_overflow(n, unit, &n) &&
	       !__builtin_mul_overflow(n, UINT64_C(1000000000), ns);
}

static uint64_t unit_of(char letter)
{
	return letter == 's' ? 1 : letter == 'm' ? 60 : letter == 'h' ? 3600 : 86400;
}

/* "2026-11-29T21:44:38Z"; years before 1970 are none of a report. */
static bool parse_date(const char *text, uint64_t *ns)
{
	struct tm tm = { 0 };
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	time_t at = end ? timegm(&tm) : -1;

	*ns = (uint64_t)at * 1000000000;
	return end && (!*end || !strcmp(end, "Z")) && at >= 0 && *ns / 1000000000 == (uint64_t)at;
}

/* "15m" ago, "@1795981004", "2026-11-29T21:44:38Z". */
static int since_of(const struct args *a, uint64_t *since_ns)
{
	const char *text = args_text(a, ARG_SINCE, NULL), *end = NULL;
	uint64_t ago_ns, now_ns = (uint64_t)time(NULL) * 1000000000;
	size_t length = text ? strlen(text) : 0;

	*since_ns = 0;
	if (!text)
		return 0;
	if (*text == '@' && parse_seconds(text + 1, 1, &end, since_ns) && !*end)
		return 0;
	if (length && strchr("smhd", text[length - 1]) &&
	    parse_seconds(text, unit_of(text[length - 1]), &end, &ago_ns) && !end[1] &&
	    ago_ns < now_ns) {
		*since_ns = now_ns - ago_ns;
		return 0;
	}
	if (parse_date(text, since_ns))
		return 0;
	return args_refuse(a,
			   "--since=%s: give 15m (ago: s, m, h, d), @SECONDS or "
			   "2026-11-29T21:44:38Z, not before 1970",
			   text);
}

static int wish_of(const struct args *a, uint64_t *ranks, struct merge_wish *wish)
{
	int status = ranks_of(a, ranks, wish);

	if (!status)
		status = since_of(a, &wish->since_ns);
	if (!status && args_given(a, ARG_RELOAD))
		status = args_number(a, ARG_RELOAD, 1, UINT64_MAX, &wish->reload);
	wish->run = args_text(a, ARG_RUN, NULL);
	if (!status && wish->run && !*wish->run)
		status = args_refuse(a, "--run= is empty: give the ARENA_RUN of the run");
	wish->slow_percent = 200;
	if (!status && args_given(a, ARG_SLOW))
		status = args_number(a, ARG_SLOW, 100, 1000000, &wish->slow_percent);
	return status;
}

/* ---- text ---- */

static void print_head(struct merge *m)
{
	char median[UNIT_SIZE];

	printf("%s%s%s: ", term_paint(term_verdict_paint(m->verdict)), verdict_names[m->verdict],
	       term_paint(PAINT_NONE));
	printf("%zu of %zu ranks passed", m->passed, m->expected);
	if (m->usual) {
		printf(" reload %" PRIu64 " (", m->usual->id);
		term_text(stdout, scope_text(&m->pool, &m->usual->scope));
		putchar(')');
	}
	if (m->median_ns)
		printf(", median %s", unit_ns(median, m->median_ns));
	if (m->strangers)
		printf("; %zu that %s not expected", m->strangers,
		       m->strangers == 1 ? "is" : "are");
	putchar('\n');
}

/* How many ranks from @first on, in a row, have no report. */
static size_t missing_from(const struct merge *m, size_t first)
{
	size_t end = first;

	while (end < m->ranks.count && !m->ranks.v[end].report && m->ranks.v[end].known &&
	       m->ranks.v[end].rank == m->ranks.v[first].rank + (end - first))
		end++;
	return end - first;
}

/* @param missing how many ranks in a row this row stands for, 0: one with a report */
static void rank_row(struct merge *m, const struct merge_rank *r, size_t missing, struct table *t)
{
	bool told = r->report && r->report->start && r->attempts == 1;
	enum paint paint = r->reasons.count ? PAINT_BAD : r->slow ? PAINT_WARN : PAINT_NONE;
	const char *why = r->reasons.count ? "" : r->slow ? "slow" : "";
	char ns[UNIT_SIZE];

	for (size_t i = 0; i < r->reasons.count; i++)
		why = pool_print(&m->pool, "%s%s%s", why, i ? "; " : "", r->reasons.v[i]);
	if (missing > 1)
		table_cell(t, paint, "%" PRIu64 "-%" PRIu64, r->rank, r->rank + missing - 1);
	else if (r->known)
		table_cell(t, paint, "%" PRIu64, r->rank);
	else
		table_cell(t, paint, "?");
	table_cell(t, PAINT_NONE, "%s", told ? r->report->start->host : "-");
	if (told)
		table_cell(t, PAINT_NONE, "%" PRIu64, r->report->pid);
	else
		table_cell(t, PAINT_NONE, "-");
	if (told && r->reload) {
		table_cell(t, PAINT_NONE, "%" PRIu64, r->reload->id);
		table_cell(t, term_verdict_paint(r->reload->verdict), "%s",
			   verdict_names[r->reload->verdict]);
		table_cell(t, PAINT_NONE, "%s", unit_ns(ns, r->took_ns));
	} else
		for (int i = 0; i < 3; i++)
			table_cell(t, PAINT_NONE, "-");
	table_cell(t, PAINT_NONE, "%s", why);
}

static void print_ranks(struct merge *m, bool all)
{
	static const char *const heads[] = { "rank",	"host", "pid", "reload",
					     "verdict", "took", "why" };
	struct table *t = table_new(7, heads);

	table_align(t, 0, true);
	table_align(t, 2, true);
	table_align(t, 3, true);
	table_align(t, 5, true);
	for (size_t i = 0, missing; i < m->ranks.count; i += missing ? missing : 1) {
		const struct merge_rank *r = &m->ranks.v[i];

		missing = missing_from(m, i);
		if (all || r->reasons.count || r->slow)
			rank_row(m, r, missing, t);
	}
	table_print(t, stdout, 2);
}

static void print_text(struct merge *m, const struct report_set *set, bool all)
{
	bool duplicates = false;

	for (size_t i = 0; i < m->ranks.count; i++)
		duplicates |= m->ranks.v[i].attempts > 1;
	print_head(m);
	if (all || m->bad || m->slow)
		print_ranks(m, all);
	if (m->left_out)
		printf("  %zu process%s of other runs left out, by --since or --run\n", m->left_out,
		       m->left_out == 1 ? "" : "es");
	if (duplicates)
		puts("  Reports of an earlier run or attempt: take them away, or give --run or "
		     "--since.");
	if (!read_clean(set->read))
		printf("  Not all could be read: what was lost may be another reload.\n");
}

/* ---- JSON ---- */

static void json_text(const char *key, const char *value)
{
	printf(",\"%s\":", key);
	if (value)
		term_json(stdout, value);
	else
		fputs("null", stdout);
}

static void json_rank(struct merge *m, const struct merge_rank *r, bool first)
{
	const struct report *report = r->attempts == 1 ? r->report : NULL;

	printf("%s{\"rank\":", first ? "" : ",");
	if (r->known)
		printf("%" PRIu64, r->rank);
	else
		fputs("null", stdout);
	printf(",\"expected\":%s,\"passed\":%s,\"slow\":%s,\"attempts\":%zu",
	       r->expected ? "true" : "false", r->expected && !r->reasons.count ? "true" : "false",
	       r->slow ? "true" : "false", r->attempts);
	json_text("file", report ? report->file : NULL);
	json_text("host", report && report->start ? report->start->host : NULL);
	if (report && report->pid)
		printf(",\"pid\":%" PRIu64, report->pid);
	else
		fputs(",\"pid\":null", stdout);
	if (report && r->reload) {
		printf(",\"reload\":{\"id\":%" PRIu64 ",\"verdict\":\"%s\",\"took_ns\":%" PRIu64,
		       r->reload->id, verdict_names[r->reload->verdict], r->took_ns);
		json_text("scope", scope_text(&m->pool, &r->reload->scope));
		putchar('}');
	} else
		fputs(",\"reload\":null", stdout);
	fputs(",\"reasons\":[", stdout);
	for (size_t i = 0; i < r->reasons.count; i++) {
		fputs(i ? "," : "", stdout);
		term_json(stdout, r->reasons.v[i]);
	}
	fputs("]}", stdout);
}

static void print_json(struct merge *m, const struct report_set *set)
{
	printf("{\"schema\":1,\"type\":\"merge\",\"verdict\":\"%s\",\"expected\":%zu,"
	       "\"passed\":%zu,\"left_out\":%zu,\"median_ns\":%" PRIu64 ",\"problems\":%" PRIu64
	       ",\"truncated\":%" PRIu64 ",\"reload\":",
	       verdict_names[m->verdict], m->expected, m->passed, m->left_out, m->median_ns,
	       set->read->problems, set->read->truncated);
	if (m->usual) {
		printf("{\"id\":%" PRIu64, m->usual->id);
		json_text("scope", scope_text(&m->pool, &m->usual->scope));
		putchar('}');
	} else
		fputs("null", stdout);
	fputs(",\"ranks\":[", stdout);
	for (size_t i = 0; i < m->ranks.count; i++)
		json_rank(m, &m->ranks.v[i], !i);
	puts("]}");
}

/* ---- the command ---- */

static int gather_all(const struct args *a, struct gather *g)
{
	int status = 0;

	for (size_t i = 0; i < a->count; i++)
		status |= gather_add(g, "merge", a->operands[i]);
	if (!g->count && !status)
		fprintf(stderr,
			"arenactl merge: %s: no report in it (*.jsonl, *.jsonl.gz): set "
			"ARENA_REPORT=%s/%%h-%%r-%%p.jsonl for the workers\n",
			a->operands[0], a->operands[0]);
	return status;
}

/*
 * A reload that was not read may be the one that failed: nothing damaged passes. A rank without a
 * report may be in a file that could not be read.
 */
static int status_of(const struct merge *m, int read_status)
{
	for (size_t i = 0; i < m->ranks.count; i++) {
		const struct merge_rank *r = &m->ranks.v[i];

		if (r->reasons.count && !r->only_unproven && (r->report || !read_status))
			return STATUS_FINDINGS;
	}
	if (read_status)
		return STATUS_UNREADABLE;
	return m->verdict == VERDICT_PASS ? STATUS_PASS : STATUS_UNPROVEN;
}

static int judge(const struct args *a, const struct gather *g, const struct merge_wish *wish,
		 int status)
{
	const struct set_limits limits = { .refs = 1 };
	struct report_set set = { 0 };
	struct merge m;

	status |= set_read(&set, g->v, g->count, &limits);
	merge_judge(&m, &set, wish);
	if (status && m.verdict == VERDICT_PASS)
		m.verdict = VERDICT_UNPROVEN;
	term_open(a);
	if (!strcmp(args_text(a, ARG_FORMAT, "text"), "text"))
		print_text(&m, &set, args_given(a, ARG_ALL));
	else
		print_json(&m, &set);
	status = status_of(&m, status);
	if (!term_close())
		status = STATUS_UNREADABLE;
	merge_free(&m);
	set_free(&set);
	return status;
}

static int run(struct args *a)
{
	static uint64_t ranks[RANKS_MAX];
	const char *format = args_text(a, ARG_FORMAT, "text");
	struct merge_wish wish = { 0 };
	struct gather g = { .quiet = args_given(a, ARG_QUIET) };
	int status = wish_of(a, ranks, &wish);

	if (!status && strcmp(format, "text") && strcmp(format, "json"))
		status = args_refuse(a, "--format=%s: text or json", format);
	if (status)
		return status;
	status = gather_all(a, &g);
	if (!status || g.count)
		status = judge(a, &g, &wish, status);
	gather_free(&g);
	return status;
}

const struct command cmd_merge = {
	.name = "merge",
	.synopsis = "--ranks=N FOLDER|FILE...",
	.summary = "all ranks passed one and the same reload, or which did not",
	.bit = CMD_MERGE,
	.operands_min = 1,
	.run = run,
};
