/* SPDX-License-Identifier: Apache-2.0 */
/* What a run left behind: processes that still run, after the one that was waited for. */
#ifndef CTL_RUNNING_H
#define CTL_RUNNING_H

#include <stddef.h>
#include <sys/types.h>

/*
 * @brief Processes with ARENA_RUN=@run in their environment that began after this one. One that
 * lost its environment, or is another user's, is not known.
 * @param first one of them
 */
size_t running_count(const char *run, pid_t *first);
/* @brief The same, when they have had a moment to end: helpers outlive a program by a little. */
size_t running_left(const char *run, pid_t *first);

#endif
