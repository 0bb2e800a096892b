/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says of a process. Any thread. */
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

size_t proc_read(pid_t pid, const char *name, char *text, size_t bytes)
{
	char path[64];
	size_t used = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && used + 1 < bytes && (n = read(fd, text + used, bytes - 1 - used)) > 0)
		used += (size_t)n;
	if (fd >= 0)
		close(fd);
	text[used] = '\0';
	return used;
}
