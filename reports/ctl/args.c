/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parsing the command line by the rows of options.def. A mistake is one line on stderr that
 * names the word and what was meant.
 *
 * Threads: one.
 */
#include "args.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define WORD_MAX 64

const struct option_row option_rows[ARG_COUNT] = {
#define OPTION(id, name, letter, value, mask, doc) [ARG_##id] = { name, letter, value, mask, doc },
#include "options.def"
#undef OPTION
};

int args_refuse(const struct args *a, const char *format, ...)
{
	va_list list;

	fprintf(stderr, "arenactl %s: ", a->command->name);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	return STATUS_USAGE;
}

/* Letters to insert, leave out or change to make one word of the other. */
static size_t distance(const char *a, const char *b)
{
	size_t row[WORD_MAX + 1], n = strnlen(b, WORD_MAX);

	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; i <= WORD_MAX && a[i - 1]; i++) {
		size_t corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t best = corner + (a[i - 1] != b[j - 1]);

			corner = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[n];
}

const char *args_nearest(const char *word, const char *const *words, size_t count)
{
	const char *nearest = NULL;
	size_t best = strnlen(word, WORD_MAX) / 2 + 1;

	for (size_t i = 0; i < count; i++) {
		size_t d = distance(word, words[i]);

		if (!strncmp(word, words[i], strlen(word)))
			d = d ? 1 : 0;
		if (d < best) {
			best = d;
			nearest = words[i];
		}
	}
	return nearest;
}

static int unknown_option(const struct args *a, const char *word, size_t length)
{
	const char *names[ARG_COUNT];
	char name[WORD_MAX];
	const char *nearest;
	size_t count = 0;

	for (size_t i = 0; i < ARG_COUNT; i++)
		if (option_rows[i].mask & a->command->bit)
			names[count++] = option_rows[i].name;
	snprintf(name, sizeof(name), "%.*s", (int)(length < WORD_MAX ? length : WORD_MAX), word);
	nearest = args_nearest(name, names, count);
	if (nearest)
		return args_refuse(a, "no option '--%s'; did you mean '--%s'?", name, nearest);
	return args_refuse(a, "no option '--%s'; 'arenactl %s --help' lists them", name,
			   a->command->name);
}

/* Is @word one of "a|b|c"? */
static bool one_of(const char *words, const char *word)
{
	size_t length = strlen(word);

	for (const char *w = words; w; w = strchr(w, '|')) {
		w += *w == '|';
		if (!strncmp(w, word, length) && (w[length] == '|' || !w[length]))
			return true;
	}
	return false;
}

static int set_value(struct args *a, size_t which, const char *value)
{
	const struct option_row *row = &option_rows[which];

	if (strchr(row->value, '|') && !one_of(row->value, value))
		return args_refuse(a, "--%s=%s: must be one of %s", row->name, value, row->value);
	a->values[which] = value;
	return 0;
}

/* --name, --name=value, --name value. @return words used, 0 after a complaint. */
static int take_long(struct args *a, char **argv)
{
	const char *name = argv[0] + 2;
	size_t length = strcspn(name, "=");

	for (size_t i = 0; i < ARG_COUNT; i++) {
		const struct option_row *row = &option_rows[i];

		if (!(row->mask & a->command->bit) || strlen(row->name) != length ||
		    strncmp(row->name, name, length) != 0)
			continue;
		if (!row->value) {
			if (name[length])
				return args_refuse(a, "--%s takes no value", row->name), 0;
			a->values[i] = "";
			return 1;
		}
		if (name[length])
			return set_value(a, i, name + length + 1) ? 0 : 1;
		if (!argv[1])
			return args_refuse(a, "--%s needs a value: %s", row->name, row->value), 0;
		return set_value(a, i, argv[1]) ? 0 : 2;
	}
	unknown_option(a, name, length);
	return 0;
}

/* -abc, -fVALUE, -f VALUE. @return words used, 0 after a complaint. */
static int take_short(struct args *a, char **argv)
{
	for (const char *at = argv[0] + 1; *at; at++) {
		size_t i = 0;

		while (i < ARG_COUNT &&
		       !(option_rows[i].letter == *at && option_rows[i].mask & a->command->bit))
			i++;
		if (i == ARG_COUNT)
			return args_refuse(a, "no option '-%c'; 'arenactl %s --help' lists them",
					   *at >= ' ' && *at <= '~' ? *at : '?', a->command->name),
			       0;
		if (!option_rows[i].value) {
			a->values[i] = "";
			continue;
		}
		if (at[1])
			return set_value(a, i, at + 1) ? 0 : 1;
		if (!argv[1])
			return args_refuse(a, "-%c needs a value: %s", *at, option_rows[i].value),
			       0;
		return set_value(a, i, argv[1]) ? 0 : 2;
	}
	return 1;
}

static int check_count(const struct args *a)
{
	const struct command *c = a->command;

	if (a->count < c->operands_min)
		return args_refuse(a, "too few arguments: arenactl %s [OPTIONS] %s", c->name,
				   c->synopsis);
	if (c->operands_max && a->count > c->operands_max)
		return args_refuse(a, "too many arguments, '%s': arenactl %s [OPTIONS] %s",
				   a->operands[c->operands_max], c->name, c->synopsis);
	return 0;
}

int args_parse(struct args *a, const struct command *c, int argc, char **argv)
{
	int i = 0, used;

	*a = (struct args){ .command = c, .operands = argv };
	while (i < argc) {
		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		if (argv[i][0] != '-' || !argv[i][1]) {
			if (c->rest)
				break;
			/* Operands before options move to the front, which was read already. */
			argv[a->count++] = argv[i++];
			continue;
		}
		used = argv[i][1] == '-' ? take_long(a, argv + i) : take_short(a, argv + i);
		if (!used)
			return STATUS_USAGE;
		i += used;
	}
	while (i < argc)
		argv[a->count++] = argv[i++];
	if (c->rest)
		argv[a->count] = NULL;
	if (a->values[ARG_HELP]) {
		help_print(c);
		exit(fflush(stdout) ? STATUS_UNREADABLE : STATUS_PASS);
	}
	return check_count(a);
}

const char *args_text(const struct args *a, enum arg which, const char *otherwise)
{
	return a->values[which] ? a->values[which] : otherwise;
}

bool args_given(const struct args *a, enum arg which)
{
	return a->values[which];
}

int args_number(const struct args *a, enum arg which, uint64_t min, uint64_t max, uint64_t *out)
{
	const char *text = a->values[which];
	unsigned long long n;
	char *end;

	if (!text)
		return 0;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || errno || n < min || n > max)
		return args_refuse(a, "--%s=%s: must be a number from %" PRIu64 " to %" PRIu64,
				   option_rows[which].name, text, min, max);
	*out = n;
	return 0;
}

static bool is_file(const char *path, const struct stat *st)
{
	struct stat other;

	return path && !stat(path, &other) && other.st_dev == st->st_dev &&
	       other.st_ino == st->st_ino;
}

int args_spare_inputs(const struct args *a, const char *const *more, size_t count)
{
	const char *path = a->values[ARG_OUTPUT];
	bool same = false;
	struct stat st;

	/* Of a device there is nothing to write over. */
	if (!path || stat(path, &st) || !S_ISREG(st.st_mode))
		return 0;
	for (size_t i = 0; i < a->count; i++)
		same |= is_file(a->operands[i], &st);
	for (size_t i = 0; i < count; i++)
		same |= is_file(more[i], &st);
	return same ? args_refuse(a, "--output=%s: is read, too: name another file", path) : 0;
}

bool args_listed(const struct args *a, enum arg which, const char *word)
{
	const char *list = a->values[which];
	size_t length = strlen(word);

	for (const char *w = list; w; w = strchr(w, ',')) {
		w += *w == ',';
		if (!strncmp(w, word, length) && (w[length] == ',' || !w[length]))
			return true;
	}
	return !list;
}
