/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input without zlib: plain files; a compressed one is refused with the remedy.
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

int input_open(struct input *in, const char *path, char why[INPUT_WHY_MAX])
{
	unsigned char magic[2];
	struct stat st;

	*in = (struct input){ .fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : dup(0) };
	if (in->fd < 0 || fstat(in->fd, &st)) {
		snprintf(why, INPUT_WHY_MAX, "%s", strerror(errno));
	} else if (S_ISDIR(st.st_mode)) {
		snprintf(why, INPUT_WHY_MAX, "a directory: name the reports in it");
	} else if (pread(in->fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
		snprintf(why, INPUT_WHY_MAX,
			 "compressed, and this arenactl was built without zlib: "
			 "use gunzip");
	} else {
		in->size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
		return 0;
	}
	if (in->fd >= 0)
		close(in->fd);
	return -1;
}

ssize_t input_read(struct input *in, void *to, size_t room, char why[INPUT_WHY_MAX])
{
	ssize_t got;

	do
		got = read(in->fd, to, room);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		snprintf(why, INPUT_WHY_MAX, "%s", strerror(errno));
	return got;
}

uint64_t input_at(const struct input *in)
{
	off_t at = lseek(in->fd, 0, SEEK_CUR);

	return at > 0 ? (uint64_t)at : 0;
}

void input_close(struct input *in)
{
	close(in->fd);
}
