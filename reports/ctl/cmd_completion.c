/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arenactl completion SHELL: a script that completes command lines.
 *
 * Threads: one.
 */
#include <string.h>

#include "args.h"

static int run(struct args *a)
{
	if (strcmp(a->operands[0], "bash") != 0)
		return args_refuse(a, "no completion for '%s': the shells are bash",
				   a->operands[0]);
	help_bash();
	return STATUS_PASS;
}

const struct command cmd_completion = {
	.name = "completion",
	.synopsis = "bash",
	.summary = "print a script that completes command lines",
	.bit = CMD_COMPLETION,
	.operands_min = 1,
	.operands_max = 1,
	.run = run,
};
