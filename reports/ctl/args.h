/* SPDX-License-Identifier: Apache-2.0 */
/* The command line, parsed by options.def. One thread. */
#ifndef CTL_ARGS_H
#define CTL_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "command.h"

/* ARG_FAIL_ON for "fail-on", ... */
enum arg {
#define OPTION(id, name, letter, value, mask, doc) ARG_##id,
#include "options.def"
#undef OPTION
	ARG_COUNT
};

/* A row of options.def. */
struct option_row {
	const char *name;
	char letter;	   /* 0: none */
	const char *value; /* name of its argument, "a|b" if those are all; NULL: a switch */
	unsigned mask;	   /* commands that take it */
	const char *doc;
};
extern const struct option_row option_rows[ARG_COUNT];

struct args {
	const struct command *command;
	const char *values[ARG_COUNT]; /* as given last; switches: ""; NULL: not given */
	char **operands;
	size_t count;
};

/*
 * @brief Parse what follows the command's name. --help prints and exits the program with 0.
 * @return 0, or STATUS_USAGE after one line on stderr. Values "a|b|c" are checked here.
 */
int args_parse(struct args *a, const struct command *c, int argc, char **argv);
/* @brief The value, or @otherwise when the option was not given. */
const char *args_text(const struct args *a, enum arg which, const char *otherwise);
bool args_given(const struct args *a, enum arg which);
/* @brief A decimal number between @min and @max. @return 0, or STATUS_USAGE after a line. */
int args_number(const struct args *a, enum arg which, uint64_t min, uint64_t max, uint64_t *out);
/* @brief Is @word one of the comma-separated values of the option? true when it was not given. */
bool args_listed(const struct args *a, enum arg which, const char *word);
/* @brief Refuse to write over what is read: --output is an operand, or @more (may be NULL). */
int args_spare_inputs(const struct args *a, const char *const *more, size_t count);
/* @brief "arenactl CMD: TEXT" on stderr. @return STATUS_USAGE. */
int args_refuse(const struct args *a, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* @brief Of @words, the one that is nearest to @word; NULL: none is near. */
const char *args_nearest(const char *word, const char *const *words, size_t count);

/* @brief Help of one command, or of all (NULL), to stdout. */
void help_print(const struct command *c);
/* @brief A completion script for bash, to stdout. */
void help_bash(void);

#endif
