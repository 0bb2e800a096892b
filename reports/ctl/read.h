/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading reports line by line in bounded memory. Strict about the types of known keys and about
 * JSON itself (duplicate keys, depth), lenient about unknown keys and types. Every problem is
 * located and counted; a bad line is left out, the rest is read. One thread.
 */
#ifndef CTL_READ_H
#define CTL_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model.h"

/* Longest line and deepest nesting that is read; a report of the shim stays far below. */
#define READ_LINE_MAX  (64U << 20)
#define READ_DEPTH_MAX 32U

/* Problems whose text is kept and printed, of one file; the others are counted. */
#define READ_PROBLEMS_MAX 20

/* What came of reading. */
struct read_result {
	uint64_t files, files_unreadable; /* given; could not be opened or read to the end */
	uint64_t lines, lines_bad;	  /* read; left out because something was wrong */
	uint64_t lines_unknown;		  /* of types that this version does not know */
	uint64_t truncated;		  /* files whose last line has no end */
	uint64_t lost_bytes;		  /* in lines that were left out */
	uint64_t problems;		  /* all that was wrong */
	const char *name;		  /* in: what read_bytes() calls its bytes */
	bool quiet;			  /* in: say no problem on stderr */
	void (*problem)(void *to, const char *text); /* in: who is told; NULL: stderr */
	void *to;
};

/* Told of every good line. @return false: read no more of this file. */
typedef bool (*read_line_fn)(void *to, const struct line *line);

/*
 * @brief Read one file ("-": stdin; gzip if zlib was there).
 * @return false if something was wrong with it; @r counts it.
 */
bool read_file(const char *path, read_line_fn visit, void *to, struct read_result *r);
/* @brief The same from memory. */
bool read_bytes(const char *bytes, size_t size, read_line_fn visit, void *to,
		struct read_result *r);
/* @brief Is everything that was given read without a problem? */
bool read_clean(const struct read_result *r);

#endif
