/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says of a process. Any thread. */
#ifndef CTL_PROC_H
#define CTL_PROC_H

#include <stddef.h>
#include <sys/types.h>

/* @brief Read /proc/PID/NAME, as much as fits. @return bytes read; the text has a NUL behind it. */
size_t proc_read(pid_t pid, const char *name, char *text, size_t bytes);

#endif
