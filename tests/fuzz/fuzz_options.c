/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of options against any environment.
 *
 * Input: assignments, each ended by a newline. Values are kept from input to input, so a bad value
 * must leave what was there; a plain second reading of the rows says what is a good one.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "shim/log.h"
#include "shim/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ASSIGNMENTS_MAX 64

static void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "fuzz_options: %s\n", what);
	abort();
}

/* Messages are made, so that a sanitizer sees what they read, and not shown. */
void log_write(enum log_level level, counter_t *site, const char *format, ...)
{
	char line[1024];
	va_list args;

	va_start(args, format);
	check(vsnprintf(line, sizeof(line), format, args) > 0, "an empty message");
	va_end(args);
}

/* As the documentation says it: the first assignment of a name counts. */
static const char *given(char *const *env, const char *name)
{
	for (size_t chars = strlen(name); *env; env++)
		if (strncmp(*env, name, chars) == 0 && (*env)[chars] == '=')
			return *env + chars + 1;
	return NULL;
}

static uint64_t want_word(const char *words, const char *value, uint64_t before)
{
	char copy[256], *rest, *word;
	uint64_t index = 0;

	snprintf(copy, sizeof(copy), "%s", words);
	for (word = strtok_r(copy, "|", &rest); value && word; word = strtok_r(NULL, "|", &rest)) {
		if (strcasecmp(word, value) == 0)
			return index;
		index++;
	}
	return before;
}

static uint64_t want_number(const char *value, uint64_t min, uint64_t max, uint64_t before)
{
	unsigned long long v;
	char *end;

	if (!value || !isdigit((unsigned char)*value))
		return before;
	errno = 0;
	v = strtoull(value, &end, 10);
	return errno || *end || v < min || v > max ? before : v;
}

static void read_options(char *const *env)
{
	uint64_t before[OPTION_COUNT];
	char printed[OPTION_TEXT_BYTES];

	for (int i = 0; i < OPTION_COUNT; i++)
		before[i] = option_value((enum option_id)i);
	options_init(env);
	for (int i = 0; i < OPTION_COUNT; i++)
		check(option_print((enum option_id)i, printed, sizeof(printed)) < sizeof(printed),
		      "a value that cannot be printed");
#define OPTION_ENUM(name, def, words, doc)                                                    \
	check(option_value(OPTION_##name) ==                                                  \
		      want_word(words, given(env, "ARENA_" #name), before[OPTION_##name]),    \
	      "ARENA_" #name);
#define OPTION_UINT(name, def, unit, min, max, doc)                                           \
	check(option_value(OPTION_##name) ==                                                  \
		      want_number(given(env, "ARENA_" #name), min, max, before[OPTION_##name]), \
	      "ARENA_" #name);
#define OPTION_TEXT(name, def, doc)                                                           \
	if (given(env, "ARENA_" #name) &&                                                     \
	    strlen(given(env, "ARENA_" #name)) < OPTION_TEXT_BYTES)                           \
		check(strcmp(option_text(OPTION_##name), given(env, "ARENA_" #name)) == 0,    \
		      "ARENA_" #name);
#include "shim/options.def"
#undef OPTION_ENUM
#undef OPTION_UINT
#undef OPTION_TEXT
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = malloc(size + 1), *rest = copy;
	char *env[ASSIGNMENTS_MAX + 1];
	size_t count = 0;

	memcpy(copy, data, size);
	copy[size] = '\0';
	while (rest && count < ASSIGNMENTS_MAX)
		env[count++] = strsep(&rest, "\n");
	env[count] = NULL;
	read_options(env);
	free(copy);
	return 0;
}
