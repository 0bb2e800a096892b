/* SPDX-License-Identifier: Apache-2.0 */
/* arenactl entries: the driver's entry points, which are hooked, and why the others are not. One
 * thread. */
#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "entries.h"
#include "term.h"

#define VERSION_SIZE 16

/* 11030: "11.3"; "" of what is not hooked. */
static const char *version_of(const struct entry *e, char buf[VERSION_SIZE])
{
	buf[0] = '\0';
	if (e->since)
		snprintf(buf, VERSION_SIZE, "%u.%u", e->since / 1000, e->since % 1000 / 10);
	return buf;
}

static const char *family_of(const struct entry *e)
{
	return e->family ? e->family : "-";
}

static const char *how_of(const struct entry *e)
{
	return !e->family ? "not hooked" : e->is_followed ? "followed" : "forwarded";
}

/* ---- which ---- */

static bool names_it(const struct args *a, const struct entry *e)
{
	for (size_t i = 0; i < a->count; i++)
		if (fnmatch(a->operands[i], e->symbol, 0) == 0)
			return true;
	return a->count == 0;
}

static bool is_chosen(const struct args *a, const struct entry *e)
{
	if ((args_given(a, ARG_HOOKED) && !e->family) || (args_given(a, ARG_UNHOOKED) && e->family))
		return false;
	return args_listed(a, ARG_FAMILY, family_of(e)) && names_it(a, e);
}

/* A family that does not exist must not look like one without rows. */
static int check_families(const struct args *a)
{
	const char *families[64];
	size_t count = 0;
	char word[32];

	for (size_t i = 0; i < entry_count && count < 64; i++) {
		size_t k = 0;

		while (k < count && strcmp(families[k], family_of(&entries[i])) != 0)
			k++;
		if (k == count)
			families[count++] = family_of(&entries[i]);
	}
	for (const char *w = args_text(a, ARG_FAMILY, NULL); w; w = strchr(w, ',')) {
		size_t k = 0;
		const char *nearest;

		w += *w == ',';
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(w, ","), w);
		while (k < count && strcmp(families[k], word) != 0)
			k++;
		if (k < count)
			continue;
		nearest = args_nearest(word, families, count);
		return args_refuse(a, "no family '%s'; did you mean '%s'?", word,
				   nearest ? nearest : "MEM");
	}
	return 0;
}

/* ---- formats ---- */

static void print_text(const struct args *a, FILE *to)
{
	static const char *const heads[] = { "SYMBOL", "SINCE", "FAMILY", "HOW", "WHAT" };
	struct table *t = table_new(5, heads);
	char version[VERSION_SIZE];

	table_align(t, 1, true);
	for (size_t i = 0; i < entry_count; i++) {
		const struct entry *e = &entries[i];

		if (!is_chosen(a, e))
			continue;
		table_cell(t, e->family ? PAINT_NONE : PAINT_DIM, "%s", e->symbol);
		table_cell(t, PAINT_NONE, "%s", version_of(e, version));
		table_cell(t, PAINT_NONE, "%s", family_of(e));
		table_cell(t, PAINT_NONE, "%s", how_of(e));
		table_cell(t, PAINT_NONE, "%s", e->what);
	}
	table_print(t, to, 0);
}

static void print_csv(const struct args *a, FILE *to)
{
	char version[VERSION_SIZE];

	fprintf(to, "symbol,since,family,how,what\n");
	for (size_t i = 0; i < entry_count; i++) {
		if (!is_chosen(a, &entries[i]))
			continue;
		fprintf(to, "%s,%s,%s,%s,", entries[i].symbol, version_of(&entries[i], version),
			entries[i].family ? entries[i].family : "", how_of(&entries[i]));
		term_csv(to, entries[i].what);
		fputc('\n', to);
	}
}

static void print_json(const struct args *a, FILE *to)
{
	const char *lead = "";

	fprintf(to, "{\"schema\":1,\"entries\":[");
	for (size_t i = 0; i < entry_count; i++) {
		const struct entry *e = &entries[i];

		if (!is_chosen(a, e))
			continue;
		fprintf(to, "%s\n{\"symbol\":\"%s\",\"hooked\":%s,\"since\":%u,\"family\":", lead,
			e->symbol, e->family ? "true" : "false", e->since);
		if (e->family)
			term_json(to, e->family);
		else
			fprintf(to, "null");
		fprintf(to, ",\"how\":\"%s\",\"what\":", how_of(e));
		term_json(to, e->what);
		fputc('}', to);
		lead = ",";
	}
	fprintf(to, "\n]}\n");
}

/* scdoc takes underscores and the like for markup. */
static void print_escaped(FILE *to, const char *s)
{
	for (; *s; s++) {
		if (!isalnum((unsigned char)*s) && strchr("_*\\[]|#.-", *s))
			fputc('\\', to);
		fputc(*s, to);
	}
}

/* A reason, and all that are left alone for it. */
static void print_reason(const struct args *a, size_t first, FILE *to)
{
	const char *lead = "\n\t";

	for (size_t i = 0; i < first; i++)
		if (is_chosen(a, &entries[i]) && !strcmp(entries[i].what, entries[first].what))
			return;
	fputc('_', to);
	print_escaped(to, entries[first].what);
	fputc('_', to);
	for (size_t i = first; i < entry_count; i++) {
		if (!is_chosen(a, &entries[i]) || strcmp(entries[i].what, entries[first].what) != 0)
			continue;
		fputs(lead, to);
		print_escaped(to, entries[i].symbol);
		lead = ",\n\t";
	}
	fputs("\n\n", to);
}

/* The lists of arena-entries(7). */
static void print_scd(const struct args *a, FILE *to)
{
	char version[VERSION_SIZE];

	for (size_t i = 0; i < entry_count; i++) {
		const struct entry *e = &entries[i];

		if (!is_chosen(a, e))
			continue;
		if (!e->family) {
			print_reason(a, i, to);
			continue;
		}
		fputc('*', to);
		print_escaped(to, e->symbol);
		fprintf(to, "* (CUDA %s, %s)\n\t", version_of(e, version), e->family);
		print_escaped(to, e->what);
		fprintf(to, "%s\n\n", e->is_followed ? "" : "; forwarded only");
	}
}

static const struct {
	const char *name;
	void (*print)(const struct args *a, FILE *to);
} formats[] = {
	{ "text", print_text },
	{ "csv", print_csv },
	{ "json", print_json },
	{ "scd", print_scd },
};
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

static int run(struct args *a)
{
	const char *format = args_text(a, ARG_FORMAT, "text");
	size_t which = 0, chosen = 0;

	while (which < FORMATS && strcmp(formats[which].name, format) != 0)
		which++;
	if (which == FORMATS)
		return args_refuse(a, "--format=%s: must be one of text|csv|json|scd", format);
	if (args_given(a, ARG_HOOKED) && args_given(a, ARG_UNHOOKED))
		return args_refuse(a, "--hooked and --unhooked leave nothing: give one of them");
	if (check_families(a) != 0)
		return STATUS_USAGE;
	for (size_t i = 0; i < entry_count; i++)
		chosen += is_chosen(a, &entries[i]);
	if (chosen == 0) {
		args_refuse(a, "no entry point is called so: names are as the driver exports them, "
			       "with * for any text");
		return STATUS_FINDINGS;
	}
	if (which == 0)
		term_open(a);
	formats[which].print(a, stdout);
	return which || term_close() ? STATUS_PASS : STATUS_UNREADABLE;
}

const struct command cmd_entries = {
	.name = "entries",
	.synopsis = "[NAME...]",
	.summary = "list the driver's entry points, hooked or not",
	.bit = CMD_ENTRIES,
	.run = run,
};
