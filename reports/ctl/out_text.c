/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report for a human: the verdict first, then what is wrong, then what was not seen.
 *
 * Threads: one.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "out.h"
#include "read.h"
#include "stack.h"
#include "symbolise.h"
#include "term.h"

#define TEXT_MAX     4096
#define FRAMES_SHOWN 8
#define REFS_SHOWN   4
#define NAMES_SHOWN  8
#define WRAP_COLUMNS 96

struct coverage_row {
	const char *key, *doc;
	bool decisive;
};
static const struct coverage_row coverage_rows[] = {
#define COVERAGE(id, key, decisive, text) { key, text, decisive },
#include "shim/coverage.def"
#undef COVERAGE
};
#define COVERAGE_COUNT (sizeof(coverage_rows) / sizeof(coverage_rows[0]))

struct advice {
	const char *kind, *text;
};
static const struct advice advice_rows[] = {
#define ADVICE(kind, text) { kind, text },
#include "advice.def"
#undef ADVICE
};

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static void heading(FILE *to, const char *text)
{
	fprintf(to, "\n%s%s%s\n", term_paint(PAINT_BOLD), text, term_paint(PAINT_NONE));
}

/*
 * Verdict
 */

static const char *advice(enum verdict v)
{
	return v == VERDICT_PASS   ? "Nothing stale was found, and nothing that matters was missed."
	       : v == VERDICT_FAIL ? "Do not serve from what failed."
				   : "Nothing proves that it is safe to serve.";
}

/* The first process that made it so. */
static const struct report *culprit(const struct report_set *set, enum verdict v, size_t *count)
{
	const struct report *first = NULL;

	*count = 0;
	for (size_t i = 0; i < set->reports.count; i++)
		if (report_verdict(set->reports.v[i]) == v) {
			first = first ? first : set->reports.v[i];
			++*count;
		}
	return first;
}

static void print_verdict(FILE *to, const struct report_set *set)
{
	enum verdict v = set_verdict(set);
	const struct report *r;
	size_t count;

	r = culprit(set, v, &count);
	fprintf(to, "%s%s%s", term_paint(term_verdict_paint(v)), verdict_names[v],
		term_paint(PAINT_NONE));
	if (v != VERDICT_PASS && r) {
		fprintf(to, ": ");
		term_text(to, report_why(r));
		if (set->reports.count > 1)
			fprintf(to, " (%zu of %zu processes)", count, set->reports.count);
	} else if (!set->reports.count) {
		fprintf(to, ": no process in what was read");
	} else if (!r) {
		fprintf(to, ": the reports could not be read whole");
	}
	fprintf(to, "\n%s\n", advice(v));
}

static uint64_t counter(const struct report_set *set, const char *key)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < set->reports.count; i++) {
		const struct report_exit *e = set->reports.v[i]->exit;

		for (size_t k = 0; e && k < e->counters.count; k++)
			if (!strcmp(e->counters.v[k].key, key))
				sum += e->counters.v[k].number;
	}
	return sum;
}

static void print_sums(FILE *to, const struct report_set *set)
{
	uint64_t reloads[VERDICT_UNPROVEN + 1] = { 0 }, all = 0, findings[SEVERITY_COUNT] = { 0 };

	for (size_t i = 0; i < set->reports.count; i++) {
		const struct report *r = set->reports.v[i];

		for (size_t k = 0; k < r->reloads.count; k++)
			if (r->reloads.v[k]->id) {
				reloads[r->reloads.v[k]->verdict]++;
				all++;
			}
		for (size_t k = 0; k < r->findings.count; k++)
			if (!r->findings.v[k]->again)
				findings[r->findings.v[k]->severity]++;
	}
	fprintf(to, "%zu process%s, %" PRIu64 " graph%s, %" PRIu64 " captured addresses, ",
		set->reports.count, set->reports.count == 1 ? "" : "es",
		counter(set, "graphs.execs_opened"), plural(counter(set, "graphs.execs_opened")),
		counter(set, "graphs.refs"));
	fprintf(to, "%" PRIu64 " reload%s", all, plural(all));
	if (all)
		fprintf(to, " (%" PRIu64 " pass, %" PRIu64 " fail, %" PRIu64 " unproven)",
			reloads[VERDICT_PASS], reloads[VERDICT_FAIL], reloads[VERDICT_UNPROVEN]);
	fprintf(to, "; findings: %" PRIu64 " error, %" PRIu64 " warn, %" PRIu64 " info\n",
		findings[SEVERITY_ERROR], findings[SEVERITY_WARN], findings[SEVERITY_INFO]);
}

static void print_process(struct table *t, const struct report *r)
{
	enum verdict v = report_verdict(r);
	uint64_t reloads = 0;
	size_t findings = 0;

	for (size_t i = 0; i < r->reloads.count; i++)
		reloads += r->reloads.v[i]->id != 0;
	for (size_t i = 0; i < r->findings.count; i++)
		findings += !r->findings.v[i]->again;
	table_cell(t, PAINT_NONE, "%" PRIu64, r->pid);
	table_cell(t, PAINT_NONE, "%" PRIu64, r->start ? r->start->rank : 0);
	table_cell(t, PAINT_NONE, "%s", r->start ? r->start->host : "");
	table_cell(t, term_verdict_paint(v), "%s", verdict_names[v]);
	table_cell(t, PAINT_NONE, "%" PRIu64, reloads);
	table_cell(t, PAINT_NONE, "%zu", findings);
	table_cell(t, PAINT_NONE, "%s", r->start ? r->start->exe : "");
	table_cell(t, PAINT_NONE, "%s", report_why(r) ? report_why(r) : "");
}

static void print_processes(FILE *to, const struct report_set *set)
{
	static const char *const heads[] = { "PID",	"RANK",	    "HOST",    "VERDICT",
					     "RELOADS", "FINDINGS", "PROGRAM", "WHY" };
	struct table *t;

	if (set->reports.count < 2)
		return;
	heading(to, "Processes");
	t = table_new(8, heads);
	table_align(t, 0, true);
	table_align(t, 1, true);
	table_align(t, 4, true);
	table_align(t, 5, true);
	for (size_t i = 0; i < set->reports.count; i++)
		print_process(t, set->reports.v[i]);
	table_print(t, to, 2);
}

/*
 * Findings
 */

static bool any_text(const struct selection *chosen, const char *name)
{
	char text[TEXT_MAX];

	for (size_t k = 0; k < field_count; k++)
		for (size_t i = 0; i < chosen->count && !strcmp(fields[k].name, name); i++)
			if (*fields[k].text(&chosen->v[i], text, sizeof(text)))
				return true;
	return false;
}

/* Columns that say something. */
static const char *default_fields(const struct report_set *set, const struct selection *chosen)
{
	static char list[256];
	bool many = false;

	for (size_t i = 0; i < chosen->count; i++)
		many |= chosen->v[i].finding->occurrences > 1;
	snprintf(list, sizeof(list), "%sseverity,kind,subject%s%s%s%s%s",
		 set->reports.count > 1 ? "pid," : "", any_text(chosen, "move") ? ",move" : "",
		 any_text(chosen, "size") ? ",size" : "", many ? ",times" : "",
		 any_text(chosen, "kernels") ? ",kernels" : "",
		 any_text(chosen, "allocated") ? ",allocated" : "");
	return list;
}

static int print_table(FILE *to, const struct report_set *set, const struct selection *chosen,
		       const struct args *a)
{
	size_t count;
	const struct field **columns =
		fields_parse(a, ARG_FIELDS, default_fields(set, chosen), &count);
	const char *heads[64];
	char text[TEXT_MAX];
	struct table *t;

	if (!columns)
		return STATUS_USAGE;
	count = count < 64 ? count : 64;
	for (size_t k = 0; k < count; k++)
		heads[k] = columns[k]->head;
	t = table_new(count, heads);
	for (size_t k = 0; k < count; k++)
		table_align(t, k, columns[k]->number);
	for (size_t i = 0; i < chosen->count; i++)
		for (size_t k = 0; k < count; k++)
			table_cell(t,
				   strcmp(columns[k]->name, "severity")
					   ? PAINT_NONE
					   : term_severity_paint(chosen->v[i].finding->severity),
				   "%s", columns[k]->text(&chosen->v[i], text, sizeof(text)));
	table_print(t, to, 2);
	free(columns);
	return 0;
}

/* "old: 0x7f.., 64 MiB" and who did it. */
struct memory {
	const char *label;
	uint64_t base, bytes, stack_open, stack_close;
};

static void print_memory(FILE *to, const struct report *r, const struct memory *m)
{
	char unit[UNIT_SIZE];

	fprintf(to, "    %s: 0x%" PRIx64 ", %s\n", m->label, m->base, unit_bytes(unit, m->bytes));
	if (m->stack_open) {
		fprintf(to, "      allocated by\n");
		stack_print(to, r, m->stack_open, "        ", FRAMES_SHOWN);
	}
	if (m->stack_close) {
		fprintf(to, "      freed by\n");
		stack_print(to, r, m->stack_close, "        ", FRAMES_SHOWN);
	}
}

static void print_range(FILE *to, const struct report *r, const char *label,
			const struct report_range *m)
{
	if (m)
		print_memory(
			to, r,
			&(struct memory){ label, m->base, m->size, m->stack_open, m->stack_close });
}

static void print_binding(FILE *to, const struct report *r, const char *label,
			  const struct report_binding *b)
{
	if (b)
		print_memory(to, r,
			     &(struct memory){ label, b->base, b->bytes, b->stack_open,
					       b->stack_close });
}

static void print_ref(FILE *to, const struct report *r, const struct report_ref *ref)
{
	fprintf(to, "    held by graph exec %" PRIu64 ", node %" PRIu64 ", ", ref->exec, ref->node);
	term_text(to, ref->kernel ? symbolise_name(ref->kernel) : ref->node_kind);
	fprintf(to, ", parameter %" PRIu64 "\n", ref->param);
	print_range(to, r, "old", ref->old);
	print_range(to, r, "now", ref->now);
}

static void print_details(FILE *to, const struct selected *s)
{
	const struct report_finding *f = s->finding;
	size_t shown = f->refs_count < REFS_SHOWN ? f->refs_count : REFS_SHOWN;

	fprintf(to, "\n  %s[%s]%s ", term_paint(term_severity_paint(f->severity)),
		severity_names[f->severity], term_paint(PAINT_NONE));
	term_text(to, f->text);
	fprintf(to, "\n    id 0x%" PRIx64 "\n", f->id);
	if (f->stack) {
		fprintf(to, "    by the call\n");
		stack_print(to, s->report, f->stack, "        ", FRAMES_SHOWN);
	}
	for (size_t i = 0; i < shown; i++)
		print_ref(to, s->report, &f->refs[i]);
	if (f->refs_total > shown)
		fprintf(to, "    and %" PRIu64 " more captured words\n", f->refs_total - shown);
	print_binding(to, s->report, "old", f->old);
	print_binding(to, s->report, "new", f->now);
}

/* "  kind: words", broken before WRAP_COLUMNS. */
static void print_advice(FILE *to, const struct advice *a)
{
	size_t column = (size_t)fprintf(to, "  %s:", a->kind);

	for (const char *word = a->text; *word;) {
		size_t length = strcspn(word, " ");

		if (column + 1 + length > WRAP_COLUMNS)
			column = (size_t)fprintf(to, "\n   ") - 1;
		column += (size_t)fprintf(to, " %.*s", (int)length, word);
		word += length + (word[length] == ' ');
	}
	fputc('\n', to);
}

/* For each kind that there is, in the order of the table; information needs none. */
static void print_next(FILE *to, const struct selection *chosen)
{
	uint64_t told = 0;

	for (size_t i = 0; i < chosen->count; i++)
		for (size_t k = 0; k < sizeof(advice_rows) / sizeof(advice_rows[0]); k++) {
			const struct report_finding *f = chosen->v[i].finding;

			if (told >> k & 1 || f->severity == SEVERITY_INFO ||
			    strcmp(advice_rows[k].kind, f->kind) != 0)
				continue;
			if (!told)
				heading(to, "What to do");
			told |= 1ULL << k;
			print_advice(to, &advice_rows[k]);
		}
}

static int print_findings(FILE *to, const struct report_set *set, const struct selection *chosen,
			  const struct args *a)
{
	int status = 0;

	if (chosen->count) {
		heading(to, "Findings");
		status = print_table(to, set, chosen, a);
	}
	for (size_t i = 0; i < chosen->count && args_given(a, ARG_VERBOSE); i++)
		print_details(to, &chosen->v[i]);
	if (chosen->left_out)
		fprintf(to, "%s  %zu more finding%s, left out by the filters\n",
			chosen->count ? "" : "\n", chosen->left_out, plural(chosen->left_out));
	print_next(to, chosen);
	return status;
}

/*
 * Coverage
 */

static uint64_t coverage(const struct report_set *set, const char *key)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < set->reports.count; i++) {
		const struct report_exit *e = set->reports.v[i]->exit;

		for (size_t k = 0; e && k < e->coverage.count; k++)
			if (!strcmp(e->coverage.v[k].key, key))
				sum += e->coverage.v[k].number;
	}
	return sum;
}

/* Names of what was not seen, as the processes noted them. */
static void print_noted(FILE *to, const struct report_set *set, const char *key)
{
	size_t shown = 0;

	for (size_t i = 0; i < set->reports.count; i++) {
		const struct report_exit *e = set->reports.v[i]->exit;

		for (size_t k = 0; e && k < e->noted.count && shown < NAMES_SHOWN; k++)
			if (!strcmp(e->noted.v[k].key, key)) {
				fprintf(to, "      ");
				term_text(to, e->noted.v[k].text);
				fputc('\n', to);
				shown++;
			}
	}
}

static void print_gap(FILE *to, const struct report_set *set, const struct coverage_row *row)
{
	uint64_t count = coverage(set, row->key);

	if (!count)
		return;
	fprintf(to, "  %s%s%s %s: %" PRIu64 " %s\n",
		term_paint(row->decisive ? PAINT_WARN : PAINT_NONE), row->decisive ? "*" : " ",
		term_paint(PAINT_NONE), row->key, count, row->doc);
	print_noted(to, set, row->key);
}

/* A key of a later version than this tool. */
static bool known_key(const char *key)
{
	for (size_t i = 0; i < COVERAGE_COUNT; i++)
		if (!strcmp(coverage_rows[i].key, key))
			return true;
	return false;
}

static void print_strangers(FILE *to, const struct report_set *set)
{
	for (size_t i = 0; i < set->reports.count; i++) {
		const struct report_exit *e = set->reports.v[i]->exit;

		for (size_t k = 0; e && k < e->coverage.count; k++)
			if (e->coverage.v[k].number && !known_key(e->coverage.v[k].key)) {
				fprintf(to, "  ? ");
				term_text(to, e->coverage.v[k].key);
				fprintf(to, ": %" PRIu64 ", a reason of a later version\n",
					e->coverage.v[k].number);
			}
	}
}

static void print_coverage(FILE *to, const struct report_set *set)
{
	uint64_t decisive = 0, all = 0, told = 0;

	for (size_t i = 0; i < COVERAGE_COUNT; i++) {
		uint64_t n = coverage(set, coverage_rows[i].key);

		all += n;
		decisive += coverage_rows[i].decisive ? n : 0;
	}
	heading(to, "Coverage");
	for (size_t i = 0; i < set->reports.count; i++)
		told += set->reports.v[i]->exit != NULL;
	if (!told)
		fprintf(to, "  not known: it stands in the exit line, and there is none\n");
	else if (!all)
		fprintf(to, "  every reason for not seeing something is at 0\n");
	else
		fprintf(to, "  what was not seen%s\n",
			decisive ? "; * makes the verdict unproven" : ", none of which decides");
	for (size_t i = 0; i < COVERAGE_COUNT; i++)
		print_gap(to, set, &coverage_rows[i]);
	print_strangers(to, set);
}

/*
 * Lost
 */

/* The heading comes with the first line. */
struct losses {
	FILE *to;
	bool headed;
};

/* @param one, many: the noun; @rest of the sentence behind it. */
static void lost(struct losses *l, uint64_t count, const char *one, const char *many,
		 const char *rest)
{
	if (!count)
		return;
	if (!l->headed)
		heading(l->to, "Lost");
	l->headed = true;
	fprintf(l->to, "  %" PRIu64 " %s%s\n", count, count == 1 ? one : many, rest);
}

static void print_lost_processes(struct losses *l, const struct report_set *set)
{
	uint64_t unfinished = 0, headless = 0, mixed = 0, left_out = 0, lines = 0, kept = 0;
	uint64_t reloads = 0, stacks = 0;

	for (size_t i = 0; i < set->reports.count; i++) {
		const struct report *r = set->reports.v[i];

		unfinished += !r->exit;
		headless += !r->start;
		mixed += r->interleaved;
		left_out += r->exit ? r->exit->findings_left_out : 0;
		lines += r->exit ? r->exit->lines_lost : 0;
		kept += r->not_kept[LINE_FINDING];
		reloads += r->not_kept[LINE_RELOAD] + r->not_kept[LINE_VERIFY];
		stacks += r->not_kept[LINE_STACK];
	}
	lost(l, unfinished, "process", "processes",
	     " without an exit line: killed, running, or ended by _exit()");
	lost(l, headless, "process", "processes", " without a start line");
	lost(l, mixed, "process", "processes",
	     " in one file line by line: their call stacks may be mixed up");
	lost(l, left_out, "finding", "findings", " beyond what a process reports");
	lost(l, lines, "line", "lines", " that a process could not write");
	lost(l, kept, "finding", "findings", " beyond what arenactl keeps of a process");
	lost(l, reloads, "reload or comparison", "reloads and comparisons",
	     " beyond what arenactl keeps of a process");
	lost(l, stacks, "call stack", "call stacks", " beyond what arenactl keeps of a process");
}

static void print_lost(FILE *to, const struct report_set *set)
{
	const struct read_result *read = set->read;
	struct losses l = { to, false };

	print_lost_processes(&l, set);
	lost(&l, read->files_unreadable, "file", "files", " that could not be read to the end");
	lost(&l, read->lines_bad, "line", "lines", " left out because of damage");
	lost(&l, read->lost_bytes, "byte", "bytes", " in them");
	lost(&l, read->lines_unknown, "line", "lines", " of types of a later version");
}

static int print(const struct report_set *set, const struct selection *chosen, const struct args *a,
		 FILE *to)
{
	int status;

	print_verdict(to, set);
	print_sums(to, set);
	print_processes(to, set);
	status = print_findings(to, set, chosen, a);
	print_coverage(to, set);
	print_lost(to, set);
	return status;
}

const struct output output_text = { .name = "text", .pager = true, .print = print };
