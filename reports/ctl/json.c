/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every loop ends at the NUL behind the line at the latest: no character of JSON is one.
 *
 * Threads: one.
 */
#include "json.h"

#include <string.h>

#define REPLACEMENT 0xfffd /* U+FFFD stands for what is no character */

bool json_fail(struct json *j, const char *why)
{
	if (!j->why)
		j->why = why;
	return false;
}

char json_peek(struct json *j)
{
	while (*j->at == ' ' || *j->at == '\t' || *j->at == '\r' || *j->at == '\n')
		j->at++;
	return *j->at;
}

bool json_open(struct json *j, char bracket)
{
	if (json_peek(j) != bracket)
		return json_fail(j, bracket == '{' ? "no object where one must be"
						   : "no array where one must be");
	if (++j->depth > j->depth_max)
		return json_fail(j, "nested too deep");
	j->at++;
	return true;
}

bool json_more(struct json *j, bool *first, char bracket)
{
	char c = json_peek(j);

	if (j->why)
		return false;
	if (c == bracket + 2) { /* of ASCII: [ ] and { } are two apart */
		j->at++;
		j->depth--;
		return false;
	}
	if (*first) {
		*first = false;
		return true;
	}
	if (c != ',')
		return json_fail(j, "no comma between two members");
	j->at++;
	return true;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four digits after \u; -1: not four. */
static int32_t take_unit(const char *at)
{
	int32_t unit = 0;

	for (int i = 0; i < 4; i++) {
		int digit = hex_digit(at[i]);

		if (digit < 0)
			return -1;
		unit = unit << 4 | digit;
	}
	return unit;
}

static char *put_utf8(char *to, uint32_t c)
{
	if (c < 0x80) {
		*to++ = (char)c;
	} else if (c < 0x800) {
		*to++ = (char)(0xc0 | c >> 6);
		*to++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*to++ = (char)(0xe0 | c >> 12);
		*to++ = (char)(0x80 | (c >> 6 & 0x3f));
		*to++ = (char)(0x80 | (c & 0x3f));
	} else {
		*to++ = (char)(0xf0 | c >> 18);
		*to++ = (char)(0x80 | (c >> 12 & 0x3f));
		*to++ = (char)(0x80 | (c >> 6 & 0x3f));
		*to++ = (char)(0x80 | (c & 0x3f));
	}
	return to;
}

/* @at stands behind \u. @return where it goes on, NULL: bad digits. */
static char *take_escaped_unit(char *at, char **to)
{
	int32_t unit = take_unit(at), low;
	uint32_t c;

	if (unit < 0)
		return NULL;
	at += 4;
	c = (uint32_t)unit;
	if (c >= 0xd800 && c < 0xdc00 && at[0] == '\\' && at[1] == 'u') {
		low = take_unit(at + 2);
		if (low >= 0xdc00 && low < 0xe000) {
			at += 6;
			c = 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
		}
	}
	if (c == 0 || (c >= 0xd800 && c < 0xe000))
		c = REPLACEMENT;
	*to = put_utf8(*to, c);
	return at;
}

/* From the first backslash on; the text never grows. */
static char *unescape(struct json *j, char *at, char **to)
{
	static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
	const char *which;

	while (*at != '"') {
		if ((unsigned char)*at < 0x20)
			return json_fail(j, at == j->end ? "a string has no end"
							 : "a control character in a string"),
			       NULL;
		if (*at != '\\') {
			*(*to)++ = *at++;
			continue;
		}
		at++;
		if (*at == 'u') {
			at = take_escaped_unit(at + 1, to);
			if (!at)
				return json_fail(j, "a bad \\u escape"), NULL;
			continue;
		}
		which = *at ? strchr(from, *at) : NULL;
		if (!which)
			return json_fail(j, "a bad escape"), NULL;
		*(*to)++ = into[which - from];
		at++;
	}
	return at;
}

bool json_text(struct json *j, char **text, size_t *length)
{
	char *at, *to;

	if (json_peek(j) != '"')
		return json_fail(j, "no string where one must be");
	at = ++j->at;
	*text = at;
	while ((unsigned char)*at >= 0x20 && *at != '"' && *at != '\\')
		at++;
	to = at;
	if (*at != '"') {
		at = unescape(j, at, &to);
		if (!at)
			return false;
	}
	*to = '\0'; /* at the closing quote or before it */
	*length = (size_t)(to - *text);
	j->at = at + 1;
	return true;
}

bool json_key(struct json *j, char **key, size_t *length)
{
	if (!json_text(j, key, length))
		return false;
	if (json_peek(j) != ':')
		return json_fail(j, "no colon behind a key");
	j->at++;
	return true;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool json_uint(struct json *j, uint64_t *out)
{
	const char *at;
	uint64_t n = 0;
	char c = json_peek(j);

	if (!is_digit(c))
		return json_fail(j, c == '-' ? "a negative number where none may be"
					     : "no number where one must be");
	for (at = j->at; is_digit(*at); at++) {
		uint64_t digit = (uint64_t)(*at - '0');

		if (n > (UINT64_MAX - digit) / 10)
			return json_fail(j, "a number that is too large");
		n = n * 10 + digit;
	}
	if (at - j->at > 1 && c == '0')
		return json_fail(j, "a number with a leading zero");
	if (*at == '.' || *at == 'e' || *at == 'E')
		return json_fail(j, "a number that is not whole");
	j->at = (char *)at;
	*out = n;
	return true;
}

bool json_int(struct json *j, int64_t *out)
{
	bool negative = json_peek(j) == '-';
	uint64_t n;

	j->at += negative;
	if (!is_digit(*j->at))
		return json_fail(j, "no number where one must be");
	if (!json_uint(j, &n))
		return false;
	if (n > INT64_MAX)
		return json_fail(j, "a number that is too large");
	*out = negative ? -(int64_t)n : (int64_t)n;
	return true;
}

static bool take_word(struct json *j, const char *word)
{
	size_t length = strlen(word);

	if (strncmp(j->at, word, length) != 0)
		return false;
	j->at += length;
	return true;
}

bool json_bool(struct json *j, bool *out)
{
	json_peek(j);
	*out = *j->at == 't';
	return take_word(j, *out ? "true" : "false") ||
	       json_fail(j, "no true or false where one must be");
}

bool json_null(struct json *j)
{
	return json_peek(j) == 'n' && take_word(j, "null");
}

/* @at stands behind a backslash. @return where it goes on, NULL: no escape. */
static char *skip_escape(char *at)
{
	if (*at == 'u')
		return take_unit(at + 1) < 0 ? NULL : at + 5;
	return *at && strchr("\"\\/bfnrt", *at) ? at + 1 : NULL;
}

static bool skip_text(struct json *j)
{
	char *at = j->at + 1;

	while (*at != '"') {
		if ((unsigned char)*at < 0x20)
			return json_fail(j, "a string has no end");
		at = *at == '\\' ? skip_escape(at + 1) : at + 1;
		if (!at)
			return json_fail(j, "a bad escape");
	}
	j->at = at + 1;
	return true;
}

static bool skip_digits(struct json *j)
{
	if (!is_digit(*j->at))
		return json_fail(j, "no value that JSON knows");
	while (is_digit(*j->at))
		j->at++;
	return true;
}

static bool skip_number(struct json *j)
{
	j->at += *j->at == '-';
	if (*j->at == '0' && is_digit(j->at[1]))
		return json_fail(j, "a number with a leading zero");
	if (!skip_digits(j))
		return false;
	if (*j->at == '.') {
		j->at++;
		if (!skip_digits(j))
			return false;
	}
	if (*j->at == 'e' || *j->at == 'E') {
		j->at++;
		j->at += *j->at == '-' || *j->at == '+';
		return skip_digits(j);
	}
	return true;
}

bool json_skip(struct json *j)
{
	char c = json_peek(j);
	bool first = true;

	if (c == '"')
		return skip_text(j);
	if (c != '{' && c != '[')
		return take_word(j, "true") || take_word(j, "false") || take_word(j, "null") ||
		       skip_number(j);
	if (!json_open(j, c))
		return false;
	while (json_more(j, &first, c)) {
		if (c == '{') {
			if (json_peek(j) != '"')
				return json_fail(j, "no key where one must be");
			if (!skip_text(j))
				return false;
			if (json_peek(j) != ':')
				return json_fail(j, "no colon behind a key");
			j->at++;
		}
		if (!json_skip(j))
			return false;
	}
	return !j->why;
}

bool json_end(struct json *j)
{
	json_peek(j);
	return j->at == j->end || json_fail(j, "something behind the object");
}
