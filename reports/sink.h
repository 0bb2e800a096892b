/* SPDX-License-Identifier: Apache-2.0 */
/* The file that lines are appended to, in a process that may do anything to it meanwhile. */
#ifndef REPORTS_SINK_H
#define REPORTS_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sink {
	char path[4096];	/* absolute, or as it was given if that does not fit */
	const char *shown;	/* the name as the user knows it; points into path */
	void (*warn)(const char *text);
	int fd;			/* -1: not open */
	dev_t device;		/* what fd was opened on: the host may close it and reuse the */
	ino_t inode;		/* number for a file of its own */
	bool torn;		/* the file does not end with a newline */
	bool stuck;		/* nobody read for as long as we wait; wait no more */
	bool said;		/* the user was told that lines are lost */
	uint64_t lines, lost;
};

/* @brief Name the file; it is opened by the first line. @param name "" for none. */
void sink_init(struct sink *s, const char *name, void (*warn)(const char *text));
/*
 * @brief Append @line (which ends with a newline) with one write().
 * @return false when it is not in the file; the first time the user is told why. Caller serialises.
 */
bool sink_write(struct sink *s, const char *line, size_t bytes);
/* @brief Close the descriptor, if it is still ours; the next line opens again. */
void sink_close(struct sink *s);

#endif
