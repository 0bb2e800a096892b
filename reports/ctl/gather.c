/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files an operand stands for. Files of other names in a folder are left alone: logs lie next
 * to reports. Folders in a folder are not looked into; these, and what has almost the name of a
 * report, are named, since somebody may have meant them.
 *
 * Threads: one.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "gather.h"
#include "merge.h"
#include "term.h"

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && !strcmp(s + n - m, end);
}

bool gather_is_report(const char *name)
{
	return name[0] != '.' && (ends_with(name, ".jsonl") || ends_with(name, ".jsonl.gz"));
}

static char *path_of(struct gather *g, const char *folder, const char *name)
{
	size_t size = strlen(folder) + strlen(name) + 2;
	char *path = pool_take(&g->pool, size);

	snprintf(path, size, "%s/%s", folder, name);
	return path;
}

enum entry_is { ENTRY_OTHER, ENTRY_REPORT, ENTRY_ODD, ENTRY_FOLDER, ENTRY_ALMOST };

/* A FIFO would keep its reader waiting. */
static enum entry_is entry_is(const char *path, const char *name)
{
	struct stat st;

	if (name[0] == '.')
		return ENTRY_OTHER;
	if (stat(path, &st))
		return gather_is_report(name) ? ENTRY_REPORT : ENTRY_OTHER;
	if (gather_is_report(name))
		return S_ISREG(st.st_mode) ? ENTRY_REPORT : ENTRY_ODD;
	return S_ISDIR(st.st_mode)	? ENTRY_FOLDER
	       : strstr(name, ".jsonl") ? ENTRY_ALMOST
					: ENTRY_OTHER;
}

/* What was passed by, in one line: @first, and how many more. */
static void say_others(const char *command, const char *folder, const char *first, size_t others)
{
	fprintf(stderr, "arenactl %s: ", command);
	term_text(stderr, folder);
	fputs(": not read: ", stderr);
	term_text(stderr, first);
	if (others)
		fprintf(stderr, " and %zu more", others);
	fputs(" (only *.jsonl and *.jsonl.gz of the folder itself are)\n", stderr);
}

static int add_folder(struct gather *g, const char *command, const char *folder)
{
	const char *other = NULL;
	size_t others = 0, before = g->count;
	struct dirent **names;
	int count = scandir(folder, &names, NULL, alphasort), status = 0;

	if (count < 0) {
		fprintf(stderr, "arenactl %s: %s: %s\n", command, folder, strerror(errno));
		return STATUS_UNREADABLE;
	}
	for (int i = 0; i < count; i++) {
		char *path = path_of(g, folder, names[i]->d_name);
		enum entry_is is = entry_is(path, names[i]->d_name);

		if (is == ENTRY_REPORT) {
			LIST_ADD(&g->pool, *g, path);
		} else if (is == ENTRY_ODD) {
			fprintf(stderr, "arenactl %s: ", command);
			term_text(stderr, path);
			fputs(": has the name of a report and is no file\n", stderr);
			status = STATUS_UNREADABLE;
		} else if (is != ENTRY_OTHER) {
			others += other != NULL;
			other = other ? other
				      : pool_print(&g->pool, "%s%s", names[i]->d_name,
						   is == ENTRY_FOLDER ? "/" : "");
		}
		free(names[i]);
	}
	free(names);
	g->folders_empty += g->count == before;
	if (other && !g->quiet)
		say_others(command, folder, other, others);
	return status;
}

int gather_add(struct gather *g, const char *command, const char *operand)
{
	struct stat st;

	if (strcmp(operand, "-") && stat(operand, &st)) {
		fprintf(stderr, "arenactl %s: %s: %s\n", command, operand, strerror(errno));
		return STATUS_UNREADABLE;
	}
	if (strcmp(operand, "-") && S_ISDIR(st.st_mode))
		return add_folder(g, command, operand);
	LIST_ADD(&g->pool, *g, pool_text(&g->pool, operand));
	return 0;
}

void gather_free(struct gather *g)
{
	pool_free(&g->pool);
}
