/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON (RFC 8259) pulled from one line that lies in memory: no tree, no copy; strings are
 * unescaped where they stand. The first mistake ends it and says why. One thread.
 */
#ifndef CTL_JSON_H
#define CTL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
	char *at, *end; /* *end is NUL and may be written */
	unsigned depth, depth_max;
	const char *why; /* the first mistake, a constant; NULL: none */
};

/* @brief The first character of the next value, NUL at the end. */
char json_peek(struct json *j);
/* @brief Say why (if nothing was said before). @return false */
bool json_fail(struct json *j, const char *why);

/* @brief Enter an object or an array. */
bool json_open(struct json *j, char bracket);
/*
 * @brief Is there one more member? Takes the comma, or the closing bracket.
 * @param first is true before the first one.
 */
bool json_more(struct json *j, bool *first, char bracket);
/* @brief A key and its colon; the key is unescaped and ends with NUL. */
bool json_key(struct json *j, char **key, size_t *length);
/* @brief A string; broken UTF-8 stays as it is, a NUL becomes U+FFFD. */
bool json_text(struct json *j, char **text, size_t *length);
bool json_uint(struct json *j, uint64_t *out);
bool json_int(struct json *j, int64_t *out);
bool json_bool(struct json *j, bool *out);
/* @brief Take a null if the next value is one. */
bool json_null(struct json *j);
/* @brief Pass over any value; keys of objects in it are not compared. */
bool json_skip(struct json *j);
/* @brief Nothing but white space is left. */
bool json_end(struct json *j);

#endif
