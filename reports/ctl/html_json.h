/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON into a page: no '<' leaves here as it is, so that nothing of a report can end the element
 * that the data lies in. Also dictionaries, with which what comes often is written once. One
 * thread.
 */
#ifndef CTL_HTML_JSON_H
#define CTL_HTML_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct html_json {
	FILE *to;
	bool comma; /* before the next member */
};

/* @brief A stream into @page that escapes '<'; close it with fclose(). @return NULL: no memory. */
FILE *html_escaped(FILE *page);

/* Members of objects; @key NULL: of arrays. */
void html_open(struct html_json *j, const char *key, char bracket);
void html_close(struct html_json *j, char bracket);
void html_null(struct html_json *j, const char *key);
void html_bool(struct html_json *j, const char *key, bool value);
void html_number(struct html_json *j, const char *key, uint64_t value);
/* @brief Addresses and ids, as a string: a script's numbers have 53 bits. */
void html_hex(struct html_json *j, const char *key, uint64_t value);
/* @brief @value NULL: null. */
void html_text(struct html_json *j, const char *key, const char *value);

/* What was written before, by content; items stay the caller's. */
struct dictionary {
	uint64_t (*hash)(const void *item);
	bool (*same)(const void *a, const void *b);
	const void **items;
	uint32_t *slots; /* number of the item + 1; 0: free */
	size_t count, room;
};

/* @brief @return the item's number, or -1: it is new. */
int64_t dictionary_find(const struct dictionary *d, const void *item);
/* @brief The same, and a new item has the next number from now on. */
int64_t dictionary_add(struct dictionary *d, const void *item);
void dictionary_free(struct dictionary *d);

uint64_t hash_bytes(const void *bytes, size_t size, uint64_t seed);
uint64_t hash_text(const void *text);
bool same_text(const void *a, const void *b);

#endif
