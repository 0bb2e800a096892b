/* SPDX-License-Identifier: Apache-2.0 */
/* A growing line of text in memory of its own: no malloc, reused from line to line. */
#ifndef REPORTS_TEXT_H
#define REPORTS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
	char *bytes;
	uint32_t cap, used;
	bool failed;		/* something did not fit into memory: the line is worth nothing */
};

void text_clear(struct text *t);
void text_add(struct text *t, const char *bytes, size_t count);
void text_string(struct text *t, const char *s);
/* @brief Decimal digits. */
void text_uint(struct text *t, uint64_t value);
/* @brief "0x" and hexadecimal digits. */
void text_hex(struct text *t, uint64_t value);

#endif
