/* SPDX-License-Identifier: Apache-2.0 */
/* Reads report lines with string functions only: the writer is what is tested, not a parser. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/shim/trace.h"

static FILE *report;

/* A file without a name, so that none is left behind, whoever writes last. */
void trace_start(void)
{
	char path[64];
	int fd = memfd_create("trace", 0);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	report = fopen(path, "r");
	if (report == NULL) {
		perror(path);
		exit(1);
	}
	setenv("ARENA_REPORT", path, 1);
	setenv("ARENA_TRACE", "on", 1);
	setenv("ARENA_STACKS", "off", 1);
}

static void copy_text(const char *line, const char *key, char *out, size_t size)
{
	const char *at = strstr(line, key), *end;

	out[0] = '\0';
	if (at == NULL)
		return;
	at += strlen(key);
	end = strchr(at, '"');
	if (end != NULL && (size_t)(end - at) < size) {
		memcpy(out, at, (size_t)(end - at));
		out[end - at] = '\0';
	}
}

static uint64_t number(const char *line, const char *key)
{
	const char *at = strstr(line, key);

	return at != NULL ? strtoull(at + strlen(key), NULL, 0) : 0;
}

bool trace_next(struct trace_line *out)
{
	static char *line;
	static size_t size;

	clearerr(report);
	while (getline(&line, &size, report) > 0) {
		bool event = strstr(line, "\"type\":\"event\"") != NULL;

		out->finding = strstr(line, "\"type\":\"finding\"") != NULL;
		if (!event && !out->finding)
			continue;
		copy_text(line, event ? "\"event\":\"" : "\"kind\":\"", out->what,
			  sizeof(out->what));
		copy_text(line, event ? "\"what\":\"" : "\"reason\":\"", out->kind,
			  sizeof(out->kind));
		out->address = number(line, "\"address\":\"");
		out->size_bytes = number(line, "\"size\":");
		out->serial = number(line, "\"serial\":");
		return true;
	}
	return false;
}
