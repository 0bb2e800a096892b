/* SPDX-License-Identifier: Apache-2.0 */
/* Writing to a descriptor without ever hurting the process: no signal, no endless wait. */
#ifndef REPORTS_QUIET_H
#define REPORTS_QUIET_H

#include <stdbool.h>
#include <stddef.h>

/* Longest wait, in all, for a reader who does not read. */
#define QUIET_WAIT_MS 200

/* @brief Would a write get on now? Also true where it would fail. Waits for nothing. */
bool quiet_writable(int fd);

/*
 * @brief Write all of it, in one write() unless the kernel takes less.
 * Raises no SIGPIPE and no SIGXFSZ. Any thread.
 * @return bytes written; fewer than asked: *error says why (errno is kept).
 */
size_t quiet_write(int fd, const void *bytes, size_t count, int *error);

#endif
