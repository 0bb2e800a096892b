/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to stderr, one write() a line. No stdio lock, no memory, no state but the counters of
 * the call sites, so any thread may call it at any moment: before the constructor ran, in the
 * child of a fork, after the host closed stderr (then the line is lost, and nothing else).
 */
#include "shim/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "reports/quiet.h"
#include "shim/options.h"

/* Below PIPE_BUF, so that lines of several processes in one pipe do not mix. */
#define LINE_BYTES 2048

static const char closing[] = " (further ones are not shown)";
static const char cut[] = "...";

/* A message is one line: what a variable or a path brings along cannot start another. */
static void blank_controls(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			*s = '?';
}

void log_write(enum log_level level, counter_t *site, const char *format, ...)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	char line[LINE_BYTES + sizeof(cut) + sizeof(closing) + 1];
	int saved = errno, error, head, body;
	size_t used;
	uint64_t shown;
	va_list args;

	if (level > option_value(OPTION_LOG))
		return;
	shown = add_relaxed(site, 1) + 1;
	if (shown > LOG_LIMIT)
		return;
	head = snprintf(line, LINE_BYTES, "arena[%d/%ld]: %s: ", (int)getpid(),
			syscall(SYS_gettid), names[level]);
	errno = saved;	/* for %m */
	va_start(args, format);
	body = vsnprintf(line + head, LINE_BYTES - (size_t)head, format, args);
	va_end(args);
	blank_controls(line);
	used = strlen(line);
	if (body >= LINE_BYTES - head)
		used = (size_t)(stpcpy(line + used, cut) - line);
	if (shown == LOG_LIMIT)
		used = (size_t)(stpcpy(line + used, closing) - line);
	line[used++] = '\n';
	quiet_write(STDERR_FILENO, line, used, &error);
	errno = saved;
}
