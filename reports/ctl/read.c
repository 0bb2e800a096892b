/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One buffer holds the line in progress; it grows up to READ_LINE_MAX, and a longer line is
 * passed over. What a line means lies in a pool that is emptied for the next one: memory does
 * not depend on the size of the file.
 *
 * Threads: one.
 */
#include "read.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "input.h"
#include "term.h"

#define BUFFER_MIN ((size_t)1 << 20)

/* Bad lines after which a file without a good one is taken for something else. */
#define STRANGE_LINES 20

#define MESSAGE_MAX 512

struct reader {
	const char *name;
	read_line_fn visit;
	void *to;
	struct read_result *r;
	struct pool pool;
	uint64_t number, good, told, problems; /* lines of this file; problems said */
	bool stopped;
	char *held; /* the first problem, until it is known whether this is a report at all */
};

static void tell(struct reader *x, const char *text)
{
	char clean[2 * MESSAGE_MAX];

	term_clean(clean, sizeof(clean), text);
	if (x->r->problem)
		x->r->problem(x->r->to, clean);
	else if (!x->r->quiet)
		fprintf(stderr, "arenactl: %s\n", clean);
}

static __attribute__((format(printf, 2, 3))) void problem(struct reader *x, const char *format, ...)
{
	char text[MESSAGE_MAX];
	va_list list;

	x->r->problems++;
	x->problems++;
	if (x->told++ >= READ_PROBLEMS_MAX)
		return;
	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	tell(x, text);
}

/* What is wrong with the first lines; of something that is no report, one message is enough. */
static __attribute__((format(printf, 2, 3))) void hold(struct reader *x, const char *format, ...)
{
	char text[MESSAGE_MAX];
	va_list list;

	x->r->problems++;
	x->problems++;
	x->told++;
	if (x->held)
		return;
	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	x->held = strdup(text);
}

/* It is a report: say what was held back. */
static void release(struct reader *x)
{
	uint64_t more = x->told - 1;

	if (!x->held)
		return;
	tell(x, x->held);
	free(x->held);
	x->held = NULL;
	if (more) {
		char text[MESSAGE_MAX];

		snprintf(text, sizeof(text),
			 "%s: %" PRIu64 " more problems in the lines before line %" PRIu64, x->name,
			 more, x->number);
		tell(x, text);
	}
	x->told = 1;
}

static void lose(struct reader *x, size_t length)
{
	x->r->lines_bad++;
	x->r->lost_bytes += length;
}

static void refuse(struct reader *x, size_t length, const char *why)
{
	if (x->good) {
		problem(x, "%s:%" PRIu64 ": %s: the line is left out (%zu bytes)", x->name,
			x->number, why, length);
		return;
	}
	hold(x, "%s:%" PRIu64 ": %s: the line is left out (%zu bytes)", x->name, x->number, why,
	     length);
	if (x->number < STRANGE_LINES)
		return;
	x->stopped = true;
	x->r->files_unreadable++;
	free(x->held);
	x->held = NULL;
	x->told = 0;
	problem(x, "%s: not a report: none of its first %u lines is a line of one", x->name,
		STRANGE_LINES);
}

/* @param cut: no newline behind it. */
static void take_line(struct reader *x, char *bytes, size_t length, bool cut)
{
	char why[DECODE_WHY_MAX];
	struct line line;

	x->number++;
	while (length && (bytes[length - 1] == '\r' || bytes[length - 1] == ' '))
		length--;
	if (!length)
		return;
	x->r->lines++;
	pool_reset(&x->pool);
	if (!decode_line(bytes, length, &x->pool, &line, why)) {
		lose(x, length);
		if (cut) {
			x->r->truncated++;
			release(x);
			problem(x,
				"%s:%" PRIu64 ": the last line has no end: %zu bytes are lost; the "
				"process was killed or the disk was full",
				x->name, x->number, length);
			return;
		}
		refuse(x, length, why);
		return;
	}
	release(x);
	x->good++;
	if (line.type == LINE_UNKNOWN) {
		x->r->lines_unknown++;
		return;
	}
	line.file = x->name;
	line.number = x->number;
	if (!x->visit(x->to, &line))
		x->stopped = true;
}

/*
 * Text that an editor or a shell has written anew. @return bytes to pass over; a file of the other
 * encoding has no line that could be read.
 */
static size_t take_mark(struct reader *x, const char *bytes, size_t size)
{
	if (size >= 2 && (!memcmp(bytes, "\xff\xfe", 2) || !memcmp(bytes, "\xfe\xff", 2))) {
		problem(x,
			"%s: UTF-16, and a report is UTF-8: iconv -f UTF-16 -t UTF-8 makes it one",
			x->name);
		x->r->files_unreadable++;
		x->stopped = true;
		return size;
	}
	if (size < 3 || memcmp(bytes, "\xef\xbb\xbf", 3) != 0)
		return 0;
	problem(x, "%s: begins with a byte order mark, which no report has: it was written anew",
		x->name);
	return 3;
}

/* Whole lines of @bytes. @return what is behind the last newline. */
static size_t take_lines(struct reader *x, char *bytes, size_t size)
{
	size_t at = x->number ? 0 : take_mark(x, bytes, size);

	while (!x->stopped) {
		char *end = memchr(bytes + at, '\n', size - at);

		if (!end)
			break;
		take_line(x, bytes + at, (size_t)(end - bytes) - at, false);
		at = (size_t)(end - bytes) + 1;
	}
	return size - at;
}

static void end_file(struct reader *x)
{
	release(x);
	if (x->told > READ_PROBLEMS_MAX) {
		uint64_t more = x->told - READ_PROBLEMS_MAX;

		x->told = 0;
		problem(x, "%s: %" PRIu64 " more problems like these", x->name, more);
		x->r->problems--; /* it is no new one */
	}
	if (!x->number && !x->problems)
		problem(x, "%s: empty: no process wrote into it", x->name);
	pool_free(&x->pool);
}

/* Everything up to the newline is too long: read on without keeping it. */
struct buffer {
	char *bytes;
	size_t room, used;
	uint64_t passed; /* bytes of a line that is too long, 0: none */
};

static bool make_room(struct reader *x, struct buffer *b)
{
	char *larger;

	if (b->used >= READ_LINE_MAX) {
		b->passed += b->used;
		b->used = 0;
	}
	if (b->room - b->used > BUFFER_MIN / 4)
		return true;
	larger = realloc(b->bytes, (b->room ? b->room * 2 : BUFFER_MIN) + 1);
	if (!larger) {
		problem(x, "%s:%" PRIu64 ": no memory for a line of more than %zu bytes", x->name,
			x->number + 1, b->used);
		return false;
	}
	b->room = b->room ? b->room * 2 : BUFFER_MIN;
	b->bytes = larger;
	return true;
}

/* The rest of a line that is too long; its newline is in the buffer. */
static void pass_long(struct reader *x, struct buffer *b)
{
	char *end = memchr(b->bytes, '\n', b->used);
	size_t behind = (size_t)(end - b->bytes) + 1;

	x->number++;
	x->r->lines++;
	x->r->lines_bad++;
	x->r->lost_bytes += b->passed + behind;
	problem(x,
		"%s:%" PRIu64 ": %" PRIu64 " bytes in a line, more than %u: the line is left out",
		x->name, x->number, b->passed + behind, READ_LINE_MAX);
	b->passed = 0;
	b->used -= behind;
	memmove(b->bytes, b->bytes + behind, b->used);
}

static void end_buffer(struct reader *x, struct buffer *b)
{
	if (b->passed) {
		x->r->truncated++;
		lose(x, b->passed + b->used);
		problem(x, "%s:%" PRIu64 ": the last line is too long and has no end", x->name,
			x->number + 1);
	} else if (b->used && !x->stopped) {
		size_t mark = x->number ? 0 : take_mark(x, b->bytes, b->used);

		if (b->used > mark)
			take_line(x, b->bytes + mark, b->used - mark, true);
	}
}

/* @return false: it ended with a failure. */
static bool read_all(struct reader *x, struct input *in, struct buffer *b)
{
	char why[INPUT_WHY_MAX];

	while (!x->stopped) {
		ssize_t got;
		size_t rest;
		bool newline;

		if (!make_room(x, b))
			return false;
		got = input_read(in, b->bytes + b->used, b->room - b->used, why);
		if (got < 0) {
			problem(x, "%s: read up to line %" PRIu64 ": %s", x->name, x->number, why);
			return false;
		}
		if (!got)
			break;
		newline = memchr(b->bytes + b->used, '\n', (size_t)got);
		b->used += (size_t)got;
		if (!newline)
			continue;
		if (b->passed)
			pass_long(x, b);
		rest = take_lines(x, b->bytes, b->used);
		memmove(b->bytes, b->bytes + b->used - rest, rest);
		b->used = rest;
		if (!x->r->quiet)
			progress(x->name, input_at(in), in->size);
	}
	return true;
}

bool read_file(const char *path, read_line_fn visit, void *to, struct read_result *r)
{
	struct reader x = { .name = path, .visit = visit, .to = to, .r = r };
	uint64_t problems_before = r->problems;
	struct buffer b = { 0 };
	char why[INPUT_WHY_MAX];
	struct input in;

	r->files++;
	if (input_open(&in, path, why)) {
		r->files_unreadable++;
		problem(&x, "%s: %s", path, why);
		return false;
	}
	if (!read_all(&x, &in, &b))
		r->files_unreadable++;
	end_buffer(&x, &b);
	progress_end();
	input_close(&in);
	free(b.bytes);
	end_file(&x);
	return r->problems == problems_before;
}

bool read_bytes(const char *bytes, size_t size, read_line_fn visit, void *to, struct read_result *r)
{
	struct reader x = {
		.name = r->name ? r->name : "memory", .visit = visit, .to = to, .r = r
	};
	uint64_t problems_before = r->problems;
	char *copy = malloc(size + 1);
	size_t rest;

	r->files++;
	if (!copy) {
		r->files_unreadable++;
		problem(&x, "%s: no memory for %zu bytes", x.name, size);
		return false;
	}
	memcpy(copy, bytes, size);
	rest = take_lines(&x, copy, size);
	if (rest && !x.stopped)
		take_line(&x, copy + size - rest, rest, true);
	free(copy);
	end_file(&x);
	return r->problems == problems_before;
}

bool read_clean(const struct read_result *r)
{
	return !r->problems && !r->files_unreadable;
}
