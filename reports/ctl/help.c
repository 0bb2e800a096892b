/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Help and completion, from the tables of commands and options.
 *
 * Threads: one.
 */
#include <stdio.h>
#include <string.h>

#include "args.h"

/* Column in which the explanations begin. */
#define DOC_COLUMN 28

static void print_option(const struct option_row *row)
{
	int width;

	if (row->letter)
		width = printf("  -%c, --%s", row->letter, row->name);
	else
		width = printf("      --%s", row->name);
	if (row->value)
		width += printf("=%s", row->value);
	if (width >= DOC_COLUMN) {
		putchar('\n');
		width = 0;
	}
	printf("%*s%s\n", DOC_COLUMN - width, "", row->doc);
}

static void print_commands(void)
{
	printf("Usage: arenactl COMMAND [OPTIONS] [ARGUMENTS]\n\n"
	       "Reads the reports of arena-shim: what moved, who did it, what holds it, "
	       "may I serve.\n\n"
	       "Commands:\n");
	for (const struct command *const *c = commands; *c; c++)
		printf("  %-12s%s\n", (*c)->name, (*c)->summary);
	printf("\n'arenactl COMMAND --help' lists the options of a command; "
	       "arenactl(1) tells more.\n"
	       "Exit codes: 0 pass, 1 findings, 2 usage, 3 unreadable or truncated, 4 unproven.\n");
}

void help_print(const struct command *c)
{
	if (!c) {
		print_commands();
		return;
	}
	printf("Usage: arenactl %s [OPTIONS] %s\n\n%s: %s\n\nOptions:\n", c->name, c->synopsis,
	       c->name, c->summary);
	for (size_t i = 0; i < ARG_COUNT; i++)
		if (option_rows[i].mask & c->bit)
			print_option(&option_rows[i]);
}

static void bash_options(const struct command *c)
{
	for (size_t i = 0; i < ARG_COUNT; i++)
		if (option_rows[i].mask & c->bit)
			printf(" --%s%s", option_rows[i].name, option_rows[i].value ? "=" : "");
}

/* The words of "a|b|c" complete the value of an option. */
static void bash_values(void)
{
	for (size_t i = 0; i < ARG_COUNT; i++) {
		const char *words = option_rows[i].value;

		if (!words || !strchr(words, '|'))
			continue;
		printf("\t--%s)\n\t\twords=\"", option_rows[i].name);
		for (; *words; words++)
			putchar(*words == '|' ? ' ' : *words);
		printf("\" ;;\n");
	}
}

void help_bash(void)
{
	printf("# Completion of arenactl for bash; made by 'arenactl completion bash'.\n"
	       "_arenactl()\n{\n"
	       "\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
	       "\tif [ \"$COMP_CWORD\" = 1 ]; then\n\t\twords=\"");
	for (const struct command *const *c = commands; *c; c++)
		printf("%s ", (*c)->name);
	printf("--help --version\"\n"
	       "\t\tCOMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n\t\treturn\n\tfi\n"
	       "\tif [ \"$before\" = = ]; then\n\t\tbefore=${COMP_WORDS[COMP_CWORD-2]}\n"
	       "\telif [ \"$word\" = = ]; then\n\t\tword=\n\tfi\n"
	       "\tcase $before in\n");
	bash_values();
	printf("\tesac\n"
	       "\tif [ -z \"$words\" ] && [[ $word = -* ]]; then\n\t\tcase ${COMP_WORDS[1]} in\n");
	for (const struct command *const *c = commands; *c; c++) {
		printf("\t\t%s)\n\t\t\twords=\"", (*c)->name);
		bash_options(*c);
		printf("\" ;;\n");
	}
	printf("\t\tesac\n\t\tCOMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
	       "\t\t[[ ${COMPREPLY[0]} = *= ]] && compopt -o nospace\n\t\treturn\n\tfi\n"
	       "\tif [ -n \"$words\" ]; then\n"
	       "\t\tCOMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
	       "\telse\n\t\tCOMPREPLY=($(compgen -f -- \"$word\"))\n\tfi\n}\n"
	       "complete -o filenames -F _arenactl arenactl\n");
}
