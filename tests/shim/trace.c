/* SPDX-License-Identifier: Apache-2.0 */
/* Reads report lines with string functions only: the writer is what is tested, not a parser. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/shim/trace.h"

static char path[] = "/tmp/arena-trace-XXXXXX";
static FILE *report;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

void trace_start(void)
{
	int fd = mkstemp(path);

	if (fd < 0)
		die("mkstemp");
	report = fdopen(fd, "r");
	if (report == NULL)
		die("fdopen");
	setenv("ARENA_REPORT", path, 1);
	setenv("ARENA_TRACE", "on", 1);
	setenv("ARENA_STACKS", "off", 1);
}

void trace_stop(void)
{
	fclose(report);
	unlink(path);
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
