/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arenactl doctor: would a program be watched here, and is it? One thread.
 *
 * Exit code: 0 shown to work; 1 something is not watched; 4 could not be shown.
 */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"
#include "term.h"

static const char *const state_names[] = {
	[CHECK_OK] = "ok",
	[CHECK_NOTE] = "note",
	[CHECK_UNKNOWN] = "unknown",
	[CHECK_BAD] = "bad",
};
static const enum paint state_paints[] = {
	[CHECK_OK] = PAINT_GOOD,
	[CHECK_NOTE] = PAINT_NONE,
	[CHECK_UNKNOWN] = PAINT_WARN,
	[CHECK_BAD] = PAINT_BAD,
};

void doctor_say(struct doctor *d, enum check_state state, const char *subject, const char *format,
		...)
{
	struct check *c = realloc(d->checks, (d->count + 1) * sizeof(*c));
	va_list list;

	if (!c)
		return;
	d->checks = c;
	c += d->count++;
	c->state = state;
	snprintf(c->subject, sizeof(c->subject), "%s", subject);
	va_start(list, format);
	vsnprintf(c->text, sizeof(c->text), format, list);
	va_end(list);
}

static enum check_state worst(const struct doctor *d)
{
	enum check_state state = CHECK_OK;

	for (size_t i = 0; i < d->count; i++)
		if (d->checks[i].state > state)
			state = d->checks[i].state;
	return state;
}

static const char *summary(enum check_state state)
{
	if (state == CHECK_BAD)
		return "not watched: see what is bad above";
	return state == CHECK_UNKNOWN ? "not shown to work: see what is unknown above"
				      : "the library works here";
}

static void print_text(const struct doctor *d, FILE *to)
{
	static const char *const heads[] = { "CHECK", "STATE", "WHAT" };
	struct table *t = table_new(3, heads);
	char clean[sizeof(d->checks->text)];

	for (size_t i = 0; i < d->count; i++) {
		const struct check *c = &d->checks[i];

		table_cell(t, PAINT_NONE, "%s", c->subject);
		table_cell(t, state_paints[c->state], "%s", state_names[c->state]);
		term_clean(clean, sizeof(clean), c->text);
		table_cell(t, PAINT_NONE, "%s", clean);
	}
	table_print(t, to, 0);
	fprintf(to, "\n%s\n", summary(worst(d)));
}

static void print_json(const struct doctor *d, FILE *to)
{
	fprintf(to, "{\"schema\":1,\"state\":\"%s\",\"checks\":[", state_names[worst(d)]);
	for (size_t i = 0; i < d->count; i++) {
		fprintf(to, "%s\n{\"check\":", i ? "," : "");
		term_json(to, d->checks[i].subject);
		fprintf(to, ",\"state\":\"%s\",\"text\":", state_names[d->checks[i].state]);
		term_json(to, d->checks[i].text);
		fputc('}', to);
	}
	fprintf(to, "\n]}\n");
}

static void remove_folder(const char *folder)
{
	DIR *d = opendir(folder);
	struct dirent *e;

	while (d && (e = readdir(d)) != NULL)
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	rmdir(folder);
}

static void examine(struct doctor *d)
{
	if (preload_find(args_text(d->args, ARG_LIBRARY, NULL), &d->preload) != 0) {
		doctor_say(d, CHECK_BAD, "library", "%s", d->preload.why);
		return;
	}
	doctor_say(d, d->preload.abi ? CHECK_OK : CHECK_BAD, "library", "%s, interface %d",
		   d->preload.library, d->preload.abi);
	doctor_system(d);
	strcpy(d->folder, "/tmp/arenactl-XXXXXX");
	if (!mkdtemp(d->folder)) {
		doctor_say(d, CHECK_UNKNOWN, "canary", "no temporary folder in /tmp: %m");
		return;
	}
	doctor_canary(d);
	if (d->args->count)
		doctor_tree(d);
	remove_folder(d->folder);
}

static int run(struct args *a)
{
	const char *format = args_text(a, ARG_FORMAT, "text");
	bool is_json = strcmp(format, "json") == 0;
	struct doctor d = { .args = a };
	enum check_state state;

	if (!is_json && strcmp(format, "text") != 0)
		return args_refuse(a, "--format=%s: must be one of text|json", format);
	examine(&d);
	state = worst(&d);
	if (!is_json)
		term_open(a);
	(is_json ? print_json : print_text)(&d, stdout);
	free(d.checks);
	free(d.preload.list);
	if (!is_json && !term_close())
		return STATUS_UNREADABLE;
	return state == CHECK_BAD	? STATUS_FINDINGS
	       : state == CHECK_UNKNOWN ? STATUS_UNPROVEN
					: STATUS_PASS;
}

const struct command cmd_doctor = {
	.name = "doctor",
	.synopsis = "[-- PROGRAM [ARGUMENT...]]",
	.summary = "say whether programs are watched here, and why not",
	.bit = CMD_DOCTOR,
	.rest = true,
	.run = run,
};
