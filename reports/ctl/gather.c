/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files an operand stands for. Files of other names in a folder are left alone: logs lie next
 * to reports. Folders in a folder are not looked into.
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

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && !strcmp(s + n - m, end);
}

bool gather_is_report(const char *name)
{
	return name[0] != '.' && (ends_with(name, ".jsonl") || ends_with(name, ".jsonl.gz"));
}

static int only_reports(const struct dirent *entry)
{
	return gather_is_report(entry->d_name);
}

static void add_path(struct gather *g, const char *folder, const char *name)
{
	size_t size = strlen(folder) + strlen(name) + 2;
	char *path = pool_take(&g->pool, size);

	snprintf(path, size, "%s%s%s", folder, *name ? "/" : "", name);
	LIST_ADD(&g->pool, *g, path);
}

int gather_add(struct gather *g, const char *command, const char *operand)
{
	struct dirent **names;
	struct stat st;
	int count;

	if (strcmp(operand, "-") && stat(operand, &st)) {
		fprintf(stderr, "arenactl %s: %s: %s\n", command, operand, strerror(errno));
		return STATUS_UNREADABLE;
	}
	if (!strcmp(operand, "-") || !S_ISDIR(st.st_mode)) {
		add_path(g, operand, "");
		return 0;
	}
	count = scandir(operand, &names, only_reports, alphasort);
	if (count < 0) {
		fprintf(stderr, "arenactl %s: %s: %s\n", command, operand, strerror(errno));
		return STATUS_UNREADABLE;
	}
	g->folders_empty += !count;
	for (int i = 0; i < count; i++) {
		add_path(g, operand, names[i]->d_name);
		free(names[i]);
	}
	free(names);
	return 0;
}

void gather_free(struct gather *g)
{
	pool_free(&g->pool);
}
