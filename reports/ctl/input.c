/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input through zlib, which reads what is not gzip as it is.
 *
 * Threads: one.
 */
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define BUFFER_BYTES (256U << 10)

int input_open(struct input *in, const char *path, char why[INPUT_WHY_MAX])
{
	struct stat st;

	*in = (struct input){ .fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : dup(0) };
	if (in->fd < 0 || fstat(in->fd, &st)) {
		snprintf(why, INPUT_WHY_MAX, "%s", strerror(errno));
	} else if (S_ISDIR(st.st_mode)) {
		snprintf(why, INPUT_WHY_MAX, "a directory: name the reports in it");
	} else {
		in->size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
		in->handle = gzdopen(in->fd, "rb");
		if (in->handle) {
			gzbuffer(in->handle, BUFFER_BYTES);
			return 0;
		}
		snprintf(why, INPUT_WHY_MAX, "no memory to read it");
	}
	if (in->fd >= 0)
		close(in->fd);
	return -1;
}

ssize_t input_read(struct input *in, void *to, size_t room, char why[INPUT_WHY_MAX])
{
	int code, got = gzread(in->handle, to, room < BUFFER_BYTES ? (unsigned)room : BUFFER_BYTES);
	const char *text = gzerror(in->handle, &code);

	/* A compressed file that is cut gives what there is; the error comes with the end. */
	if (got > 0 || (got == 0 && code == Z_OK))
		return got;
	if (code == Z_ERRNO)
		text = strerror(errno);
	if (code == Z_BUF_ERROR)
		text = "the compressed file has no end";
	snprintf(why, INPUT_WHY_MAX, "%s", text);
	return -1;
}

uint64_t input_at(const struct input *in)
{
	z_off_t at = gzoffset(in->handle);

	return at > 0 ? (uint64_t)at : 0;
}

void input_close(struct input *in)
{
	gzclose(in->handle);
}
