/* SPDX-License-Identifier: Apache-2.0 */
/* Operands that are files or folders of reports. One thread. */
#ifndef CTL_GATHER_H
#define CTL_GATHER_H

#include <stdbool.h>
#include <stddef.h>

#include "pool.h"

/* Paths, those of a folder sorted by name. */
struct gather {
	char **v;
	size_t count, room;
	size_t folders_empty; /* folders without a report */
	bool quiet;	      /* do not name what was passed by */
	struct pool pool;
};

/* @brief Is it the name of a report: *.jsonl, *.jsonl.gz? */
bool gather_is_report(const char *name);
/*
 * @brief Add @operand: itself, or the reports in it if it is a folder.
 * @return 0, or STATUS_UNREADABLE after a line on stderr.
 */
int gather_add(struct gather *g, const char *command, const char *operand);
void gather_free(struct gather *g);

#endif
