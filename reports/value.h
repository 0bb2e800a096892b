/* SPDX-License-Identifier: Apache-2.0 */
/* Members of JSON objects. A value for which there is no memory leaves its key out. */
#ifndef REPORTS_VALUE_H
#define REPORTS_VALUE_H

#include <jansson.h>
#include <stdint.h>

#include "reports/text.h"

#define SCHEMA 1

/* @brief A string of any bytes: what is not UTF-8 is shown byte by byte as '?'. NULL is "". */
json_t *value_bytes(const char *s);
void value_set_text(json_t *o, const char *key, const char *s);
void value_set_uint(json_t *o, const char *key, uint64_t n);
void value_set_hex(json_t *o, const char *key, uint64_t n);

/* @brief A line of @type with nothing in it yet. */
json_t *value_line(const char *type);
/* @brief Append @o to @t as text and release it. */
void value_dump(struct text *t, json_t *o);

#endif
