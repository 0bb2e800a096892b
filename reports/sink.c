/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appending lines to a file from inside a process that is not ours.
 *
 * The host may close every descriptor (daemons do), change its directory, fill the disk, or never
 * read the other end of a pipe. So: the name is made absolute at the start; before each line the
 * descriptor is checked to be the file that was opened, and opened again if not; a line that does
 * not fit is lost, counted, and the next one starts on a line of its own; nothing waits for long,
 * and for a reader who does not read only once.
 *
 * Any thread; callers serialise. Each line is one write() to an O_APPEND descriptor: a killed
 * process loses at most the line in progress, and processes that share a file do not mix their
 * lines.
 */
#include "reports/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reports/quiet.h"

void sink_init(struct sink *s, const char *name, void (*warn)(const char *text))
{
	size_t cwd_chars = 0;

	*s = (struct sink){ .fd = -1, .warn = warn };
	if (*name && *name != '/' && getcwd(s->path, sizeof(s->path) / 2)) {
		cwd_chars = strlen(s->path);
		s->path[cwd_chars++] = '/';
	}
	snprintf(s->path + cwd_chars, sizeof(s->path) - cwd_chars, "%s", name);
	s->shown = s->path + cwd_chars;
}

static bool is_ours(const struct sink *s)
{
	struct stat st;

	return s->fd >= 0 && fstat(s->fd, &st) == 0 && st.st_dev == s->device &&
	       st.st_ino == s->inode;
}

/* A process that was killed may have left half a line. */
static bool ends_torn(const char *path, off_t size)
{
	char last = '\n';
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return true;
	if (pread(fd, &last, 1, size - 1) != 1)
		last = '\0';
	close(fd);
	return last != '\n';
}

/* Where the host closed a standard descriptor, its output must not end up in the report. */
static int leave_standard(int fd)
{
	int high = fd;

	if (fd >= 0 && fd <= STDERR_FILENO) {
		high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		close(fd);
	}
	return high;
}

/* @return 0 or why not. */
static int open_file(struct sink *s)
{
	struct stat st;

	/* O_NONBLOCK: a FIFO without a reader must not stop the host. */
	s->fd = open(s->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
		     0644);
	s->fd = leave_standard(s->fd);
	if (s->fd < 0)
		return errno;
	if (fstat(s->fd, &st) != 0)
		return errno;
	s->device = st.st_dev;
	s->inode = st.st_ino;
	s->torn = S_ISREG(st.st_mode) && st.st_size > 0 && ends_torn(s->path, st.st_size);
	return 0;
}

static void lose(struct sink *s, int error)
{
	char text[1024];

	s->lost++;
	if (s->said)
		return;
	s->said = true;
	snprintf(text, sizeof(text),
		 "ARENA_REPORT: cannot write %.800s: %s: lines are lost, name a file in a place "
		 "that can be written",
		 s->path, strerrordesc_np(error));
	s->warn(text);
}

/* @return 0 or why nothing can be written. */
static int make_ready(struct sink *s)
{
	if (!is_ours(s)) {
		s->stuck = false;
		return open_file(s);
	}
	/* Whoever waited once for a reader in vain does not wait for each further line. */
	return s->stuck && !quiet_writable(s->fd) ? EAGAIN : 0;
}

bool sink_write(struct sink *s, const char *line, size_t bytes)
{
	int error, saved = errno;
	size_t done = 0;

	if (!*s->shown)
		return false;
	error = make_ready(s);
	if (!error && s->torn && quiet_write(s->fd, "\n", 1, &error) == 1)
		s->torn = false;
	if (!error)
		done = quiet_write(s->fd, line, bytes, &error);
	s->stuck = error == EAGAIN;
	if (done < bytes) {
		s->torn |= done > 0;
		lose(s, error);
	} else {
		s->lines++;
	}
	errno = saved;
	return done == bytes;
}

void sink_close(struct sink *s)
{
	if (is_ours(s))
		close(s->fd);
	s->fd = -1;
}
