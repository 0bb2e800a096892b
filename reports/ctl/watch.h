/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reports of one run, while they grow. A report belongs to it when its start line has the name
 * of the run (ARENA_RUN); other processes may write into the same folder, or the same file. One
 * thread.
 */
#ifndef CTL_WATCH_H
#define CTL_WATCH_H

#include "metrics.h"

struct watched_file;

struct watch {
	struct metrics metrics;
	char *pattern; /* for glob(3) */
	const char *run;
	struct watched_file *files;
};

/* @brief Begin: what files have now is not of this run. @param report as ARENA_REPORT, absolute. */
void watch_begin(struct watch *w, const char *report, const char *run);
/* @brief Read what was written since. @param last also what has no end of line. */
void watch_read(struct watch *w, bool last);
void watch_end(struct watch *w);

#endif
