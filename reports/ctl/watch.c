/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading growing files: whole lines only, from where the last reading ended, in pieces of bounded
 * size. One thread.
 */
#include "watch.h"

#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "read.h"

/* Most that is read at once; doubled up to READ_LINE_MAX for a line that is longer. */
#define PIECE_BYTES (1U << 20)

struct watched_file {
	struct watched_file *next;
	char *path;
	off_t at;	/* read up to here, and later: the start of a line */
	size_t process; /* whose lines these are, of this run; 0: another's */
	bool was_short; /* what is left of the file was no whole line */
};

/* What a visitor needs. */
struct visit {
	struct watch *w;
	struct watched_file *f;
};

static void *have(void *p)
{
	if (!p) {
		fprintf(stderr, "arenactl: no memory\n");
		exit(STATUS_UNREADABLE);
	}
	return p;
}

/* The name that the library makes of a pattern, for glob(): %h, %r, %p are any text. */
static char *glob_pattern(const char *report)
{
	char *pattern = have(malloc(2 * strlen(report) + 1)), *to = pattern;

	for (; *report; report++) {
		if (*report == '%' && report[1] && strchr("hrp", report[1])) {
			*to++ = '*';
			report++;
			continue;
		}
		report += *report == '%' && report[1] == '%';
		if (strchr("*?[]\\{}~", *report))
			*to++ = '\\';
		*to++ = *report;
	}
	*to = '\0';
	return pattern;
}

static struct watched_file *file_of(struct watch *w, const char *path)
{
	struct watched_file *f;

	for (f = w->files; f; f = f->next)
		if (strcmp(f->path, path) == 0)
			return f;
	f = have(calloc(1, sizeof(*f)));
	f->path = have(strdup(path));
	f->next = w->files;
	w->files = f;
	return f;
}

static bool is_of_run(const struct watch *w, const struct report_start *s)
{
	for (size_t i = 0; i < s->options.count; i++)
		if (strcmp(s->options.v[i].key, "ARENA_RUN") == 0)
			return strcmp(s->options.v[i].text, w->run) == 0;
	return false;
}

static bool visit_line(void *to, const struct line *line)
{
	struct visit *v = to;

	if (line->type == LINE_START && !is_of_run(v->w, &line->start))
		v->f->process = 0;
	else
		metrics_line(&v->w->metrics, &v->f->process, line);
	return true;
}

static void count_piece(struct watch *w, struct watched_file *f, const char *bytes, size_t size)
{
	struct read_result r = { .quiet = true };
	struct visit v = { w, f };

	r.name = f->path;
	read_bytes(bytes, size, visit_line, &v, &r);
	/* A problem in somebody else's lines is not this run's. */
	if (f->process)
		w->metrics.unread += r.problems;
}

/* @return false when nothing more is to be had. */
static bool read_piece(struct watch *w, struct watched_file *f, int fd, size_t room)
{
	char *bytes = have(malloc(room));
	ssize_t n = pread(fd, bytes, room, f->at);
	const char *newline = n > 0 ? memrchr(bytes, '\n', (size_t)n) : NULL;

	if (newline) {
		count_piece(w, f, bytes, (size_t)(newline + 1 - bytes));
		f->at += newline + 1 - bytes;
	}
	free(bytes);
	if (newline)
		return true;
	if (n == (ssize_t)room && room < READ_LINE_MAX)
		return read_piece(w, f, fd, 2 * room);
	if (n == (ssize_t)room) {
		/* No line of the library is as long: the file is not a report. */
		f->at += n;
		w->metrics.unread += f->process != 0;
		return true;
	}
	f->was_short = n > 0;
	return false;
}

static void read_file_from(struct watch *w, struct watched_file *f)
{
	int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return;
	f->was_short = false;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		while (read_piece(w, f, fd, PIECE_BYTES))
			;
	}
	close(fd);
}

/* Each file that the pattern names. */
static void for_each(struct watch *w, void (*visit)(struct watch *, struct watched_file *))
{
	glob_t found;

	if (glob(w->pattern, 0, NULL, &found) != 0)
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		visit(w, file_of(w, found.gl_pathv[i]));
	globfree(&found);
}

static void skip(struct watch *w, struct watched_file *f)
{
	struct stat st;

	if (stat(f->path, &st) == 0)
		f->at = st.st_size;
}

static void read_if_grown(struct watch *w, struct watched_file *f)
{
	struct stat st;

	if (stat(f->path, &st) == 0 && st.st_size > f->at)
		read_file_from(w, f);
}

void watch_begin(struct watch *w, const char *report, const char *run)
{
	*w = (struct watch){ .pattern = glob_pattern(report), .run = run };
	for_each(w, skip);
}

void watch_read(struct watch *w, bool last)
{
	for_each(w, read_if_grown);
	for (struct watched_file *f = w->files; f && last; f = f->next)
		w->metrics.unread += f->was_short && f->process;
}

void watch_end(struct watch *w)
{
	while (w->files) {
		struct watched_file *f = w->files;

		w->files = f->next;
		free(f->path);
		free(f);
	}
	free(w->pattern);
	metrics_free(&w->metrics);
}
