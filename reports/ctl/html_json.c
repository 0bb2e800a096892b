/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place where what a report says becomes part of a page.
 *
 * Threads: one.
 */
#include "html_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "term.h"

/* In JSON a '<' can stand in strings only, where it may be written by its number. */
static ssize_t escaped_write(void *page, const char *bytes, size_t size)
{
	const char *at = bytes, *end = bytes + size;

	while (at < end) {
		const char *mark = memchr(at, '<', (size_t)(end - at));
		size_t plain = (size_t)((mark ? mark : end) - at);

		if (fwrite(at, 1, plain, page) != plain)
			return 0;
		at += plain;
		if (mark) {
			if (fputs("\\u003c", page) == EOF)
				return 0;
			at++;
		}
	}
	return (ssize_t)size;
}

FILE *html_escaped(FILE *page)
{
	return fopencookie(page, "w", (cookie_io_functions_t){ .write = escaped_write });
}

static void begin(struct html_json *j, const char *key)
{
	if (j->comma)
		fputc(',', j->to);
	j->comma = true;
	if (key) {
		term_json(j->to, key);
		fputc(':', j->to);
	}
}

void html_open(struct html_json *j, const char *key, char bracket)
{
	begin(j, key);
	fputc(bracket, j->to);
	j->comma = false;
}

void html_close(struct html_json *j, char bracket)
{
	fputc(bracket, j->to);
	j->comma = true;
}

void html_null(struct html_json *j, const char *key)
{
	begin(j, key);
	fputs("null", j->to);
}

void html_bool(struct html_json *j, const char *key, bool value)
{
	begin(j, key);
	fputs(value ? "true" : "false", j->to);
}

void html_number(struct html_json *j, const char *key, uint64_t value)
{
	begin(j, key);
	fprintf(j->to, "%" PRIu64, value);
}

void html_hex(struct html_json *j, const char *key, uint64_t value)
{
	begin(j, key);
	fprintf(j->to, "\"0x%" PRIx64 "\"", value);
}

void html_text(struct html_json *j, const char *key, const char *value)
{
	if (!value) {
		html_null(j, key);
		return;
	}
	begin(j, key);
	term_json(j->to, value);
}

uint64_t hash_bytes(const void *bytes, size_t size, uint64_t seed)
{
	const unsigned char *at = bytes;

	/* FNV-1a: the items are short, and nobody else chooses the table's size. */
	for (size_t i = 0; i < size; i++)
		seed = (seed ^ at[i]) * 0x100000001b3;
	return seed ^ seed >> 29;
}

uint64_t hash_text(const void *text)
{
	return hash_bytes(text, strlen(text), 0xcbf29ce484222325);
}

bool same_text(const void *a, const void *b)
{
	return !strcmp(a, b);
}

static void place(struct dictionary *d, size_t number)
{
	size_t at = d->hash(d->items[number]) & (d->room - 1);

	while (d->slots[at])
		at = (at + 1) & (d->room - 1);
	d->slots[at] = (uint32_t)number + 1;
}

/* At most half full, so that a search ends soon. */
static void grow(struct dictionary *d)
{
	size_t room = d->room ? 2 * d->room : 256;
	const void **items = realloc(d->items, room / 2 * sizeof(*items));
	uint32_t *slots = calloc(room, sizeof(*slots));

	if (!items || !slots) {
		fprintf(stderr, "arenactl: out of memory\n");
		exit(3);
	}
	free(d->slots);
	d->items = items;
	d->slots = slots;
	d->room = room;
	for (size_t i = 0; i < d->count; i++)
		place(d, i);
}

int64_t dictionary_find(const struct dictionary *d, const void *item)
{
	size_t mask = d->room - 1;

	if (!d->room)
		return -1;
	for (size_t at = d->hash(item) & mask; d->slots[at]; at = (at + 1) & mask)
		if (d->same(d->items[d->slots[at] - 1], item))
			return d->slots[at] - 1;
	return -1;
}

int64_t dictionary_add(struct dictionary *d, const void *item)
{
	int64_t number = dictionary_find(d, item);

	if (number >= 0)
		return number;
	if (d->count == d->room / 2)
		grow(d);
	d->items[d->count++] = item;
	place(d, d->count - 1);
	return -1;
}

void dictionary_free(struct dictionary *d)
{
	free(d->items);
	free(d->slots);
	d->items = NULL;
	d->slots = NULL;
	d->count = d->room = 0;
}
