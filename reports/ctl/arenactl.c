/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arenactl: finds the command and runs it. What a command takes is in options.def.
 *
 * Threads: one.
 */
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "term.h"
#include "canary.h"
#include "version.h"

extern const struct command cmd_check, cmd_completion, cmd_diff, cmd_doctor, cmd_entries,
	cmd_explain, cmd_merge, cmd_report, cmd_run;

const struct command *const commands[] = {
	&cmd_check,   &cmd_completion, &cmd_diff,   &cmd_doctor, &cmd_entries,
	&cmd_explain, &cmd_merge,      &cmd_report, &cmd_run,	 NULL,
};

static int no_command(const char *word)
{
	const char *names[sizeof(commands) / sizeof(commands[0])];
	const char *nearest;
	size_t count = 0;

	while (commands[count]) {
		names[count] = commands[count]->name;
		count++;
	}
	nearest = args_nearest(word, names, count);
	if (nearest)
		fprintf(stderr, "arenactl: no command '%s'; did you mean '%s'?\n", word, nearest);
	else
		fprintf(stderr, "arenactl: no command '%s'; 'arenactl --help' lists them\n", word);
	return STATUS_USAGE;
}

/* A full disk must not look like a pass. */
static int finish(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	fprintf(stderr, "arenactl: the output could not be written: %m\n");
	return status == STATUS_PASS ? STATUS_UNREADABLE : status;
}

int main(int argc, char **argv)
{
	struct args a;

	if (argc > 1 && !strcmp(argv[1], CANARY_WORD))
		return canary_main(argc == 2);
	if (argc < 2) {
		fprintf(stderr, "arenactl: no command; 'arenactl --help' lists them\n");
		return STATUS_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		help_print(NULL);
		return finish(STATUS_PASS);
	}
	if (!strcmp(argv[1], "--version")) {
		printf("arenactl %s\n", CTL_VERSION);
		return finish(STATUS_PASS);
	}
	for (const struct command *const *c = commands; *c; c++)
		if (!strcmp((*c)->name, argv[1])) {
			int status = args_parse(&a, *c, argc - 2, argv + 2);

			if (status)
				return status;
			if (args_given(&a, ARG_QUIET))
				progress_off();
			return finish((*c)->run(&a));
		}
	return no_command(argv[1]);
}
