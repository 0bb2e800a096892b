/* SPDX-License-Identifier: Apache-2.0 */
/* What the calling thread runs in Python. Any thread; never takes the GIL, never calls Python. */
#ifndef SHIM_PYTHON_H
#define SHIM_PYTHON_H

#include <stddef.h>

#include "arena/stack.h"

/* @brief Python frames of the calling thread, innermost first. @return their number; 0 without
 * Python, in a thread that Python does not know, and while the interpreter ends. Keeps errno. */
size_t python_stack(struct python_frame *out, size_t max);
/* @brief In a forked child: look for Python anew. */
void python_forget(void);

#endif
