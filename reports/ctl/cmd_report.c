/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arenactl report FILE...: reads, chooses, and hands on to a format (out_<name>.c).
 *
 * Threads: one.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "model.h"
#include "out.h"
#include "select.h"
#include "symbolise.h"
#include "term.h"

extern const struct output output_csv, output_html, output_json, output_prometheus, output_text;

/* Sorted by name. */
static const struct output *const outputs[] = {
	&output_csv, &output_html, &output_json, &output_prometheus, &output_text,
};
#define OUTPUT_COUNT (sizeof(outputs) / sizeof(outputs[0]))

static const struct output *find_output(const struct args *a)
{
	const char *name = args_text(a, ARG_FORMAT, "text"), *names[OUTPUT_COUNT], *nearest;
	char list[128] = "";

	for (size_t i = 0; i < OUTPUT_COUNT; i++) {
		if (!strcmp(outputs[i]->name, name))
			return outputs[i];
		names[i] = outputs[i]->name;
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i ? ", " : "",
			 names[i]);
	}
	nearest = args_nearest(name, names, OUTPUT_COUNT);
	args_refuse(a, "--format=%s: the formats are %s%s%s%s", name, list,
		    nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
	return NULL;
}

static int list_fields(void)
{
	static const char *const heads[] = { "FIELD", "MEANING" };
	struct table *t = table_new(2, heads);

	for (size_t i = 0; i < field_count; i++) {
		table_cell(t, PAINT_NONE, "%s", fields[i].name);
		table_cell(t, PAINT_NONE, "%s", fields[i].doc);
	}
	table_print(t, stdout, 0);
	return STATUS_PASS;
}

/* @return NULL after a line on stderr. */
static FILE *open_output(const struct args *a)
{
	const char *path = args_text(a, ARG_OUTPUT, NULL);
	FILE *to = path ? fopen(path, "we") : stdout;

	if (!to)
		args_refuse(a, "%s: %s", path, strerror(errno));
	return to;
}

/* A full disk must not look like a report. */
static int close_output(const struct args *a, FILE *to)
{
	if (to == stdout)
		return term_close() ? 0 : STATUS_UNREADABLE;
	if (ferror(to) | fclose(to)) {
		args_refuse(a, "%s: %s", args_text(a, ARG_OUTPUT, ""), strerror(errno));
		return STATUS_UNREADABLE;
	}
	return 0;
}

static int print(const struct output *o, const struct report_set *set,
		 const struct selection *chosen, const struct args *a)
{
	FILE *to = open_output(a);
	int status, closed;

	if (!to)
		return STATUS_UNREADABLE;
	if (o->pager && to == stdout)
		term_open(a);
	symbolise_init(!args_given(a, ARG_NO_SYMBOLS), args_text(a, ARG_SYMBOLS, NULL));
	status = o->print(set, chosen, a, to);
	if (!args_given(a, ARG_QUIET))
		symbolise_notes("report");
	symbolise_end();
	closed = close_output(a, to);
	return status ? status : closed;
}

static int run(struct args *a)
{
	const struct output *o = find_output(a);
	struct selection chosen;
	struct report_set set;
	int damaged, status;

	if (!strcmp(args_text(a, ARG_FIELDS, ""), "help"))
		return list_fields();
	if (!o)
		return STATUS_USAGE;
	if (!a->count)
		return args_refuse(a, "too few arguments: arenactl report [OPTIONS] FILE...");
	status = select_check(a);
	if (!status)
		status = args_spare_inputs(a, NULL, 0);
	if (status)
		return status;
	damaged = set_read(&set, a->operands, a->count, &o->limits);
	status = select_findings(&set, a, &chosen);
	if (!status)
		status = print(o, &set, &chosen, a);
	select_free(&chosen);
	set_free(&set);
	return status ? status : damaged;
}

const struct command cmd_report = {
	.name = "report",
	.synopsis = "FILE...",
	.summary = "print what reports say: verdict, findings, coverage",
	.bit = CMD_REPORT,
	.run = run,
};
