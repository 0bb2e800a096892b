/* SPDX-License-Identifier: Apache-2.0 */
/* Members of JSON objects. No state; any thread with an object of its own. */
#include "reports/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *value_bytes(const char *s)
{
	json_t *value = json_string(s ? s : "");
	char *copy;

	if (value)
		return value;
	copy = strdup(s);
	if (!copy)
		return NULL;
	for (char *c = copy; *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	value = json_string(copy);
	free(copy);
	return value;
}

void value_set_text(json_t *o, const char *key, const char *s)
{
	json_object_set_new(o, key, value_bytes(s));
}

void value_set_uint(json_t *o, const char *key, uint64_t n)
{
	/* The library's integers have a sign; what has no room in one loses its last digits. */
	json_object_set_new(o, key,
			    n <= INT64_MAX ? json_integer((json_int_t)n) : json_real((double)n));
}

void value_set_hex(json_t *o, const char *key, uint64_t n)
{
	char hex[sizeof("0x") + 16];

	snprintf(hex, sizeof(hex), "0x%llx", (unsigned long long)n);
	value_set_text(o, key, hex);
}

json_t *value_line(const char *type)
{
	json_t *o = json_object();

	value_set_uint(o, "schema", SCHEMA);
	value_set_text(o, "type", type);
	return o;
}

static int append(const char *bytes, size_t count, void *to)
{
	text_add(to, bytes, count);
	return 0;
}

void value_dump(struct text *t, json_t *o)
{
	if (json_dump_callback(o, append, t, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
		t->failed = true;
	json_decref(o);
}
