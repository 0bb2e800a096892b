/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a terminal gets. Names in reports come from programs that may be hostile: nothing of
 * theirs reaches a terminal unescaped.
 *
 * Threads: one.
 */
#include "term.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "args.h"

static bool coloured;
static int terminal_fd = -1; /* what stdout was, while output is gathered for the pager */

/* stdout becomes a file in memory: what a pager that does not work has not read is still there. */
static void gather_for_pager(void)
{
	const char *pager = getenv("PAGER");
	int file;

	if (pager && (!*pager || !strcmp(pager, "cat")))
		return;
	file = memfd_create("arenactl", MFD_CLOEXEC);
	fflush(stdout);
	terminal_fd = file < 0 ? -1 : fcntl(1, F_DUPFD_CLOEXEC, 3);
	if (terminal_fd >= 0)
		dup2(file, 1);
	if (file >= 0)
		close(file);
}

static void run_pager(int file)
{
	const char *pager = getenv("PAGER");
	pid_t pid = fork();

	if (pid == 0) {
		dup2(file, 0);
		setenv("LESS", "FRX", 0);
		execl("/bin/sh", "sh", "-c", pager ? pager : "less || cat", NULL);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* What is left of @file, to stdout. */
static void copy_rest(int file)
{
	char bytes[65536];
	ssize_t got;

	while ((got = read(file, bytes, sizeof(bytes))) > 0)
		fwrite(bytes, 1, (size_t)got, stdout);
}

/* The offset of the file is the pager's, too: at 0 it has read nothing. */
static void show_gathered(void)
{
	int file = fcntl(1, F_DUPFD_CLOEXEC, 3);

	dup2(terminal_fd, 1);
	close(terminal_fd);
	terminal_fd = -1;
	if (file < 0)
		return;
	lseek(file, 0, SEEK_SET);
	run_pager(file);
	if (lseek(file, 0, SEEK_CUR) == 0)
		copy_rest(file);
	close(file);
}

void term_open(const struct args *a)
{
	const char *wish = args_text(a, ARG_COLOUR, "auto"), *terminal = getenv("TERM");
	const char *no_colour = getenv("NO_COLOR");
	bool human = isatty(1);

	coloured = !strcmp(wish, "yes") ||
		   (!strcmp(wish, "auto") && human && !(no_colour && *no_colour) && terminal &&
		    strcmp(terminal, "dumb") != 0);
	if (human && !args_given(a, ARG_NO_PAGER))
		gather_for_pager();
}

bool term_close(void)
{
	bool written = fflush(stdout) == 0 && !ferror(stdout);

	/* Leaving the pager early is no failure. */
	if (terminal_fd >= 0) {
		show_gathered();
		written &= fflush(stdout) == 0 && !ferror(stdout);
	}
	if (!written) {
		fprintf(stderr, "arenactl: the output could not be written: %m\n");
		/* It is said; what is left in the buffer must not fail again. */
		__fpurge(stdout);
		clearerr(stdout);
	}
	return written;
}

const char *term_paint(enum paint p)
{
	static const char *const sequences[] = {
		[PAINT_NONE] = "\033[0m",  [PAINT_BOLD] = "\033[1m",  [PAINT_DIM] = "\033[2m",
		[PAINT_GOOD] = "\033[32m", [PAINT_WARN] = "\033[33m", [PAINT_BAD] = "\033[31m",
	};

	return coloured ? sequences[p] : "";
}

enum paint term_verdict_paint(enum verdict v)
{
	return v == VERDICT_PASS ? PAINT_GOOD : v == VERDICT_FAIL ? PAINT_BAD : PAINT_WARN;
}

enum paint term_severity_paint(enum severity s)
{
	return s == SEVERITY_ERROR ? PAINT_BAD : s == SEVERITY_WARN ? PAINT_WARN : PAINT_NONE;
}

/*
 * Text
 */

/* Bytes of the UTF-8 character at @s and its value; 0: broken, overlong or a surrogate. */
static size_t utf8_length(const char *s, uint32_t *value)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *b = (const unsigned char *)s;
	size_t length = b[0] < 0x80	  ? 1
			: b[0] >> 5 == 6  ? 2
			: b[0] >> 4 == 14 ? 3
			: b[0] >> 3 == 30 ? 4
					  : 0;
	uint32_t c = length > 1 ? b[0] & (0x7fU >> length) : b[0];

	for (size_t i = 1; i < length; i++) {
		if (b[i] >> 6 != 2)
			return 0;
		c = c << 6 | (b[i] & 0x3f);
	}
	if (length > 1 && (c < least[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)))
		return 0;
	*value = c;
	return length;
}

/* Control characters, and those that reorder, hide or break what stands around them. */
static bool harmful(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c ||
	       (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
	       (c >= 0xfff9 && c <= 0xffff && c != 0xfffd) || (c >= 0xe0000 && c <= 0xe007f);
}

size_t term_clean(char *buf, size_t size, const char *s)
{
	size_t used = 0, most = size ? size - 1 : 0;
	uint32_t c;

	while (*s) {
		size_t length = utf8_length(s, &c);
		char escape[5];

		if (length && !harmful(c)) {
			if (used + length > most)
				break;
			memcpy(buf + used, s, length);
			used += length;
			s += length;
			continue;
		}
		/* Byte by byte: the escape says exactly what stands in the report. */
		snprintf(escape, sizeof(escape), "\\x%02x", (unsigned char)*s);
		if (used + 4 > most)
			break;
		memcpy(buf + used, escape, 4);
		used += 4;
		s++;
		while (length > 1 && used + 4 <= most) {
			snprintf(escape, sizeof(escape), "\\x%02x", (unsigned char)*s++);
			memcpy(buf + used, escape, 4);
			used += 4;
			length--;
		}
		if (length > 1)
			break;
	}
	if (size)
		buf[used] = '\0';
	return used;
}

void term_text(FILE *to, const char *s)
{
	size_t room = 4 * strlen(s) + 1;
	char small[512], *buf = room <= sizeof(small) ? small : malloc(room);

	if (!buf)
		return;
	term_clean(buf, room, s);
	fputs(buf, to);
	if (buf != small)
		free(buf);
}

static void put_csv(FILE *to, const char *s)
{
	/* A spreadsheet takes what begins with these for a formula. */
	bool formula = *s && strchr("=+-@", *s);

	if (!formula && !s[strcspn(s, ",\"\r\n")] && s[0] != ' ') {
		fputs(s, to);
		return;
	}
	fputc('"', to);
	if (formula)
		fputc('\'', to);
	for (; *s; s++) {
		if (*s == '"')
			fputc('"', to);
		fputc(*s, to);
	}
	fputc('"', to);
}

void term_csv(FILE *to, const char *s)
{
	size_t room = 4 * strlen(s) + 1;
	char *clean = malloc(room);

	if (!clean)
		return;
	term_clean(clean, room, s);
	put_csv(to, clean);
	free(clean);
}

void term_json(FILE *to, const char *s)
{
	uint32_t c;

	fputc('"', to);
	while (*s) {
		size_t length = utf8_length(s, &c);

		if (!length)
			fputs("\\ufffd", to);
		else if (c == '"' || c == '\\')
			fprintf(to, "\\%c", (int)c);
		else if (c < 0x20 || c == 0x7f)
			fprintf(to, "\\u%04x", (unsigned)c);
		else
			fwrite(s, 1, length, to);
		s += length ? length : 1;
	}
	fputc('"', to);
}

/*
 * Units
 */

char *unit_bytes(char buf[UNIT_SIZE], uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double n = (double)bytes;
	size_t i = 0;

	while (n >= 1024 && i < 6) {
		n /= 1024;
		i++;
	}
	snprintf(buf, UNIT_SIZE, i ? "%.4g %s" : "%.0f %s", n, units[i]);
	return buf;
}

char *unit_ns(char buf[UNIT_SIZE], uint64_t ns)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	double n = (double)ns;
	size_t i = 0;

	while (n >= 1000 && i < 3) {
		n /= 1000;
		i++;
	}
	snprintf(buf, UNIT_SIZE, i ? "%.4g %s" : "%.0f %s", n, units[i]);
	return buf;
}

char *unit_time(char buf[TIME_SIZE], uint64_t time_ns)
{
	time_t seconds = (time_t)(time_ns / 1000000000);
	char date[TIME_SIZE / 2];
	struct tm tm;

	if (!gmtime_r(&seconds, &tm))
		memset(&tm, 0, sizeof(tm));
	strftime(date, sizeof(date), "%F %T", &tm);
	snprintf(buf, TIME_SIZE, "%s.%03u UTC", date, (unsigned)(time_ns / 1000000 % 1000));
	return buf;
}

/*
 * Progress
 */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t progress_begin_ns, progress_said_ns;
static bool progress_is_off;

void progress_off(void)
{
	progress_is_off = true;
}

void progress(const char *what, uint64_t done, uint64_t total)
{
	uint64_t now;

	if (progress_is_off || !isatty(2))
		return;
	now = now_ns();
	if (!progress_begin_ns)
		progress_begin_ns = now;
	if (now - progress_begin_ns < 1000000000 || now - progress_said_ns < 200000000)
		return;
	progress_said_ns = now;
	fputs("\r\033[K", stderr);
	term_text(stderr, what);
	if (total)
		fprintf(stderr, ": %" PRIu64 " %%", done >= total ? 100 : done * 100 / total);
	else
		fprintf(stderr, ": %" PRIu64 " MiB", done >> 20);
}

void progress_end(void)
{
	if (progress_said_ns)
		fputs("\r\033[K", stderr);
	progress_begin_ns = progress_said_ns = 0;
}
