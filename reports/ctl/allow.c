/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row needs a reason: who reads it in a year must know why. A row that expired allows nothing.
 *
 * Threads: one.
 */
#include "allow.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Today, UTC, in the form that until= has: such dates compare as text. */
static void today(char buf[16])
{
	time_t now = time(NULL);
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(buf, 16, "%F", &tm);
}

static bool is_date(const char *s)
{
	struct tm tm = { 0 };
	const char *end = strlen(s) == 10 ? strptime(s, "%Y-%m-%d", &tm) : NULL;
	char again[16];

	/* strptime() takes 31 February. */
	if (!end || *end)
		return false;
	tm.tm_isdst = 0;
	if (timegm(&tm) == -1)
		return false;
	strftime(again, sizeof(again), "%F", &tm);
	return !strcmp(again, s);
}

static int refuse(const struct args *a, const struct allow_list *l, uint64_t line, const char *why)
{
	return args_refuse(a, "%s:%" PRIu64 ": %s; a line is: 0xID [until=YYYY-MM-DD] REASON",
			   l->path, line, why);
}

/*
 * A date that stands where nothing looks for it would never come: "Until=2030-01-01",
 * "because until=2030-01-01", "until 2030-01-01", "untl=...".
 */
static bool is_stray_until(const char *word, bool first)
{
	size_t name = strcspn(word, "=: \t");
	const char *value = word + name + strspn(word + name, "=: \t");

	if (name == 5 && !strncasecmp(word, "until", 5))
		return word[name] == '=' || (*value >= '0' && *value <= '9');
	return name && word[name] == '=' && (first || strspn(value, "0123456789-/.") >= 8);
}

static bool has_stray_until(const char *reason)
{
	for (const char *word = reason; *word; word += strspn(word, " \t")) {
		if (is_stray_until(word, word == reason))
			return true;
		word += strcspn(word, " \t");
	}
	return false;
}

static int take_row(struct allow_list *l, char *text, uint64_t line, const struct args *a)
{
	struct allow_row row = { .line = line };
	char *rest = NULL, *word = strtok_r(text, " \t", &rest), *end, day[16];

	if (!word || *word == '#')
		return 0;
	errno = 0;
	row.id = strtoull(word, &end, 16);
	if (strncmp(word, "0x", 2) != 0 || strlen(word) > 18 || !word[2] || *end || errno)
		return refuse(a, l, line, "no id");
	rest += strspn(rest, " \t");
	if (!strncmp(rest, "until=", 6)) {
		row.until = pool_text(&l->pool, strtok_r(NULL, " \t", &rest) + 6);
		rest += strspn(rest, " \t");
		if (!is_date(row.until))
			return refuse(a, l, line, "until= is no date");
		today(day);
		row.expired = strcmp(row.until, day) < 0;
	}
	if (!*rest)
		return refuse(a, l, line, "no reason");
	if (has_stray_until(rest))
		return refuse(a, l, line, "until= must stand right behind the id, once");
	row.reason = pool_text(&l->pool, rest);
	for (size_t i = 0; i < l->count; i++)
		if (l->v[i].id == row.id)
			return refuse(a, l, line, "the id comes twice");
	LIST_ADD(&l->pool, *l, row);
	return 0;
}

int allow_read(struct allow_list *l, const char *path, const struct args *a)
{
	FILE *from = fopen(path, "re");
	char *text = NULL;
	size_t room = 0;
	uint64_t line = 0;
	ssize_t length;
	int status = 0;

	*l = (struct allow_list){ .path = path };
	if (!from)
		return args_refuse(a, "--allow=%s: %s", path, strerror(errno));
	while (!status && (length = getline(&text, &room, from)) >= 0) {
		while (length && strchr("\r\n \t", text[length - 1]))
			text[--length] = '\0';
		status = take_row(l, text, ++line, a);
	}
	if (!status && ferror(from))
		status = args_refuse(a, "--allow=%s: %s", path, strerror(errno));
	free(text);
	fclose(from);
	return status;
}

const struct allow_row *allow_find(struct allow_list *l, uint64_t id)
{
	for (size_t i = 0; i < l->count; i++)
		if (l->v[i].id == id) {
			l->v[i].used = true;
			return l->v[i].expired ? NULL : &l->v[i];
		}
	return NULL;
}

void allow_free(struct allow_list *l)
{
	pool_free(&l->pool);
	*l = (struct allow_list){ 0 };
}
