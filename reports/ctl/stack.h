/* SPDX-License-Identifier: Apache-2.0 */
/* Call stacks of a report as text. One thread. */
#ifndef CTL_STACK_H
#define CTL_STACK_H

#include <stdio.h>

#include "model.h"
#include "term.h"

/* @brief The place that a human looks for first: "file.py:12 load" or "libx.so+0x1234". "": none.
 * @return buf */
const char *stack_brief(const struct report *r, uint64_t id, char *buf, size_t size);
/* @brief A line for each frame, Python before native, each after @indent. @param most frames. */
void stack_print(FILE *to, const struct report *r, uint64_t id, const char *indent, size_t most);

#endif
