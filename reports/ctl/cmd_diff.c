/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arenactl diff: what is new, gone and changed from one run to another. What is compared is in
 * diff.c.
 *
 * Threads: one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "diff.h"
#include "gather.h"
#include "read.h"
#include "term.h"

struct side {
	const char *name;
	struct gather paths;
	struct report_set set;
};

static int read_side(struct side *s, const struct args *a, const char *operand)
{
	const struct set_limits limits = { .refs = 1000000, .findings = 1000000, .shapes = true };
	int status;

	s->name = operand;
	s->paths.quiet = args_given(a, ARG_QUIET);
	status = gather_add(&s->paths, "diff", operand);
	if (!status && s->paths.folders_empty) {
		fprintf(stderr, "arenactl diff: %s: no report in it (*.jsonl, *.jsonl.gz)\n",
			operand);
		status = STATUS_UNREADABLE;
	}
	return set_read(&s->set, s->paths.v, s->paths.count, &limits) | status;
}

/* ---- text ---- */

static const char *state_of(const struct diff_item *item)
{
	return item ? item->state : "-";
}

static enum paint row_paint(const struct diff_row *r)
{
	return r->worse		     ? term_severity_paint(r->severity)
	       : r->how == DIFF_GONE ? PAINT_GOOD
				     : PAINT_NONE;
}

static void print_rows(const struct diff *d, bool all)
{
	static const char *const heads[] = { "", "what", "in A", "in B", "which" };
	struct table *t;

	if (!all && d->count[DIFF_SAME] == d->rows.count)
		return;
	t = table_new(5, heads);
	for (int how = 0; how < DIFF_HOW_COUNT; how++)
		for (size_t i = 0; i < d->rows.count; i++) {
			const struct diff_row *r = &d->rows.v[i];
			const struct diff_item *item = r->b ? r->b : r->a;

			if ((int)r->how != how || (how == DIFF_SAME && !all))
				continue;
			table_cell(t, row_paint(r), "%s", diff_how_names[how]);
			table_cell(t, PAINT_NONE, "%s", diff_set_names[item->set]);
			table_cell(t, PAINT_NONE, "%s", state_of(r->a));
			table_cell(t, PAINT_NONE, "%s", state_of(r->b));
			table_cell(t, PAINT_NONE, "%s", item->what);
		}
	putchar('\n');
	table_print(t, stdout, 2);
}

/* A new finding in its own words: the reader has not met it before. */
static void print_texts(const struct diff *d)
{
	bool any = false;

	for (size_t i = 0; i < d->rows.count; i++) {
		const struct diff_row *r = &d->rows.v[i];

		if (r->how != DIFF_NEW || !r->b->text)
			continue;
		printf("%s  %s%s%s %s: ", any ? "" : "\n",
		       term_paint(term_severity_paint(r->severity)), severity_names[r->severity],
		       term_paint(PAINT_NONE), r->b->identity);
		term_text(stdout, r->b->text);
		putchar('\n');
		any = true;
	}
}

static void print_side(const char *letter, const char *name, const struct diff_side *s)
{
	printf("  %s = ", letter);
	term_text(stdout, name);
	printf(", %zu process%s", s->processes, s->processes == 1 ? "" : "es");
	if (s->without_exit)
		printf(", %zu without an exit line: coverage and graphs are not compared",
		       s->without_exit);
	if (s->partial)
		printf(", not everything is in it: what is gone may have been left out");
	putchar('\n');
}

static void print_text(const struct diff *d, const struct side *side, bool all)
{
	printf("%zu new, %zu gone, %zu changed, %zu the same\n", d->count[DIFF_NEW],
	       d->count[DIFF_GONE], d->count[DIFF_CHANGED], d->count[DIFF_SAME]);
	print_side("A", side[0].name, &d->a);
	print_side("B", side[1].name, &d->b);
	print_rows(d, all);
	print_texts(d);
}

/* ---- JSON, CSV ---- */

static void json_text(const char *key, const char *value)
{
	printf(",\"%s\":", key);
	if (value)
		term_json(stdout, value);
	else
		fputs("null", stdout);
}

static void json_side(const char *key, const char *name, const struct diff_side *s)
{
	printf(",\"%s\":{\"processes\":%zu,\"without_exit\":%zu,\"lossy\":%zu,\"partial\":%s", key,
	       s->processes, s->without_exit, s->lossy, s->partial ? "true" : "false");
	json_text("name", name);
	putchar('}');
}

static void print_json(const struct diff *d, const struct side *side, bool all)
{
	bool any = false;

	printf("{\"schema\":1,\"type\":\"diff\",\"new\":%zu,\"gone\":%zu,\"changed\":%zu,"
	       "\"same\":%zu",
	       d->count[DIFF_NEW], d->count[DIFF_GONE], d->count[DIFF_CHANGED],
	       d->count[DIFF_SAME]);
	json_side("a", side[0].name, &d->a);
	json_side("b", side[1].name, &d->b);
	fputs(",\"items\":[", stdout);
	for (size_t i = 0; i < d->rows.count; i++) {
		const struct diff_row *r = &d->rows.v[i];
		const struct diff_item *item = r->b ? r->b : r->a;

		if (r->how == DIFF_SAME && !all)
			continue;
		printf("%s{\"how\":\"%s\",\"set\":\"%s\",\"severity\":\"%s\",\"worse\":%s",
		       any ? "," : "", diff_how_names[r->how], diff_set_names[item->set],
		       severity_names[r->severity], r->worse ? "true" : "false");
		json_text("identity", item->identity);
		json_text("what", item->what);
		json_text("a", r->a ? r->a->state : NULL);
		json_text("b", r->b ? r->b->state : NULL);
		json_text("text", item->text);
		putchar('}');
		any = true;
	}
	puts("]}");
}

static void print_csv(const struct diff *d, bool all)
{
	puts("how,set,severity,identity,what,a,b");
	for (size_t i = 0; i < d->rows.count; i++) {
		const struct diff_row *r = &d->rows.v[i];
		const struct diff_item *item = r->b ? r->b : r->a;
		const char *cells[] = { item->identity, item->what, r->a ? r->a->state : "",
					r->b ? r->b->state : "" };

		if (r->how == DIFF_SAME && !all)
			continue;
		printf("%s,%s,%s", diff_how_names[r->how], diff_set_names[item->set],
		       severity_names[r->severity]);
		for (size_t k = 0; k < sizeof(cells) / sizeof(cells[0]); k++) {
			putchar(',');
			term_csv(stdout, cells[k]);
		}
		putchar('\n');
	}
}

/* ---- the command ---- */

static bool fails(const struct diff *d, const struct args *a)
{
	const char *word = args_text(a, ARG_FAIL_ON, "error");
	enum severity least = SEVERITY_INFO;

	while (strcmp(severity_names[least], word))
		least++;
	for (size_t i = 0; i < d->rows.count; i++) {
		const struct diff_row *r = &d->rows.v[i];

		if (r->how != DIFF_SAME && args_given(a, ARG_DRIFT))
			return true;
		if (r->worse && r->severity >= least)
			return true;
	}
	return false;
}

/* Of a process that was killed, or lost lines, nobody knows what it had to say. */
static bool is_whole(const struct diff *d)
{
	return !d->a.without_exit && !d->b.without_exit && !d->a.lossy && !d->b.lossy;
}

static int print(const struct diff *d, const struct side *side, const struct args *a)
{
	const char *format = args_text(a, ARG_FORMAT, "text");
	bool all = args_given(a, ARG_ALL);

	term_open(a);
	if (!strcmp(format, "json"))
		print_json(d, side, all);
	else if (!strcmp(format, "csv"))
		print_csv(d, all);
	else
		print_text(d, side, all);
	return term_close() ? 0 : STATUS_UNREADABLE;
}

static int run(struct args *a)
{
	const char *format = args_text(a, ARG_FORMAT, "text");
	struct side side[2] = { 0 };
	struct diff d;
	int status, lost;

	if (strcmp(format, "text") && strcmp(format, "json") && strcmp(format, "csv"))
		return args_refuse(a, "--format=%s: text, json or csv", format);
	/* What A could not tell is not new in B. */
	lost = read_side(&side[0], a, a->operands[0]);
	status = lost | read_side(&side[1], a, a->operands[1]);
	diff_compare(&d, &side[0].set, &side[1].set);
	if (d.a.processes && d.b.processes)
		status |= print(&d, side, a);
	if (!lost && fails(&d, a))
		status = STATUS_FINDINGS;
	else if (!status && !is_whole(&d))
		status = STATUS_UNPROVEN;
	diff_free(&d);
	for (int i = 0; i < 2; i++) {
		set_free(&side[i].set);
		gather_free(&side[i].paths);
	}
	return status;
}

const struct command cmd_diff = {
	.name = "diff",
	.synopsis = "A B",
	.summary = "what is new, gone and changed from one run to another",
	.bit = CMD_DIFF,
	.operands_min = 2,
	.operands_max = 2,
	.run = run,
};
