/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text in pages of its own (arena/slab.h). Any thread, one at a time for one text; a failure is
 * sticky. Numbers are not left to printf(): a report of a million refs has twenty million of them.
 */
#include "reports/text.h"

#include <string.h>

#include "arena/slab.h"

/* A line beyond this is a mistake. */
#define TEXT_MAX (1u << 30)

void text_clear(struct text *t)
{
	t->used = 0;
	t->failed = false;
}

static bool text_reserve(struct text *t, size_t more)
{
	if (more > TEXT_MAX - t->used)
		t->failed = true;
	if (!t->failed && t->used + more > t->cap)
		t->failed = pages_grow(&t->bytes, &t->cap, t->used + (uint32_t)more, 1) != 0;
	return !t->failed;
}

void text_add(struct text *t, const char *bytes, size_t count)
{
	if (!text_reserve(t, count))
		return;
	memcpy(t->bytes + t->used, bytes, count);
	t->used += (uint32_t)count;
}

void text_string(struct text *t, const char *s)
{
	text_add(t, s, strlen(s));
}

static void add_digits(struct text *t, uint64_t value, unsigned base)
{
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	text_add(t, digits + at, sizeof(digits) - at);
}

void text_uint(struct text *t, uint64_t value)
{
	add_digits(t, value, 10);
}

void text_hex(struct text *t, uint64_t value)
{
	text_add(t, "0x", 2);
	add_digits(t, value, 16);
}
