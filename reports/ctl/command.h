/* SPDX-License-Identifier: Apache-2.0 */
/* What a command of arenactl is. One thread; commands print to stdout, complaints to stderr. */
#ifndef CTL_COMMAND_H
#define CTL_COMMAND_H

#include <stdbool.h>

struct args;

/* A bit for each command: options.def says with them who takes an option. */
enum command_bit {
	CMD_CHECK = 1 << 0,
	CMD_COMPLETION = 1 << 1,
	CMD_DIFF = 1 << 2,
	CMD_DOCTOR = 1 << 3,
	CMD_ENTRIES = 1 << 4,
	CMD_EXPLAIN = 1 << 5,
	CMD_MERGE = 1 << 6,
	CMD_REPORT = 1 << 7,
	CMD_RUN = 1 << 8,
};

/* Those that read reports. */
#define CMD_READERS (CMD_CHECK | CMD_DIFF | CMD_EXPLAIN | CMD_MERGE | CMD_REPORT)
#define CMD_ALL	    ((1 << 9) - 1)

/* Exit codes. */
enum status {
	STATUS_PASS = 0,
	STATUS_FINDINGS = 1, /* at or above --fail-on */
	STATUS_USAGE = 2,
	STATUS_UNREADABLE = 3, /* unreadable or truncated; what could be read was printed */
	STATUS_UNPROVEN = 4,
};

struct command {
	const char *name;
	const char *synopsis;		     /* what follows the options, "FILE..." */
	const char *summary;		     /* one line, lower case, no full stop */
	unsigned bit;			     /* one of enum command_bit */
	unsigned operands_min, operands_max; /* max 0: any number */
	bool rest;		    /* the first operand ends the options: a command line follows */
	int (*run)(struct args *a); /* returns an enum status, or a program's exit code */
};

/* All commands, sorted by name, up to a NULL. */
extern const struct command *const commands[];

#endif
