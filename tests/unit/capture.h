/* SPDX-License-Identifier: Apache-2.0 */
/* What is written to a descriptor while a test looks. */
#ifndef TESTS_CAPTURE_H
#define TESTS_CAPTURE_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct capture {
	int fd, saved, file;
	char text[1 << 16];
};

/* @brief Send @fd into a file of our own. */
static inline void capture_begin(struct capture *c, int fd)
{
	char name[] = "/tmp/arena-capture-XXXXXX";

	c->fd = fd;
	c->saved = dup(fd);
	c->file = mkstemp(name);
	cr_assert(c->saved >= 0 && c->file >= 0);
	unlink(name);
	dup2(c->file, fd);
}

/* @brief Put @fd back. @return what arrived. */
static inline const char *capture_end(struct capture *c)
{
	ssize_t n = pread(c->file, c->text, sizeof(c->text) - 1, 0);

	cr_assert(n >= 0);
	c->text[n] = '\0';
	dup2(c->saved, c->fd);
	close(c->saved);
	close(c->file);
	return c->text;
}

static inline unsigned count_lines(const char *text)
{
	unsigned n = 0;

	for (; (text = strchr(text, '\n')) != NULL; text++)
		n++;
	return n;
}

#endif
