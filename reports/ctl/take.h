/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a value of a line is taken, for the tables of decode.c: from JSON into the member of a
 * struct. One thread.
 */
#ifndef CTL_TAKE_H
#define CTL_TAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json.h"
#include "pool.h"

struct decoder {
	struct json j;
	struct pool *pool;
	const char *object, *key; /* where a mistake is */
};

struct rules;
typedef bool (*take_fn)(struct decoder *d, void *to, const struct rules *rules);

struct rule {
	const char *key;
	uint8_t length;
	bool required;
	uint16_t offset;
	take_fn take;
	const struct rules *rules; /* of what is inside */
};

struct rules {
	const char *name; /* for messages: "range" */
	size_t size_bytes;
	size_t count; /* at most 64: a bit each */
	const struct rule *v;
};

/* @brief FNV-1a. */
uint64_t take_hash(const char *key, size_t length);

/* @brief The members of an object into @to, as the rules say. */
bool take_members(struct decoder *d, void *to, const struct rules *rules);

/*
 * One function a form of value; @rules are of what is inside. A list is a pointer and, right behind
 * it, the count.
 */
bool take_counters(struct decoder *d, void *to, const struct rules *rules);
bool take_flag(struct decoder *d, void *to, const struct rules *rules);
bool take_frames(struct decoder *d, void *to, const struct rules *rules);
bool take_hex(struct decoder *d, void *to, const struct rules *rules);
bool take_ints(struct decoder *d, void *to, const struct rules *rules);
bool take_noted(struct decoder *d, void *to, const struct rules *rules);
bool take_numbers(struct decoder *d, void *to, const struct rules *rules);
bool take_object(struct decoder *d, void *to, const struct rules *rules);
bool take_objects(struct decoder *d, void *to, const struct rules *rules);
bool take_options(struct decoder *d, void *to, const struct rules *rules);
bool take_pointer(struct decoder *d, void *to, const struct rules *rules);
bool take_python(struct decoder *d, void *to, const struct rules *rules);
bool take_severity(struct decoder *d, void *to, const struct rules *rules);
bool take_text(struct decoder *d, void *to, const struct rules *rules);
bool take_text_or_null(struct decoder *d, void *to, const struct rules *rules);
bool take_texts(struct decoder *d, void *to, const struct rules *rules);
bool take_uint(struct decoder *d, void *to, const struct rules *rules);
bool take_verdict(struct decoder *d, void *to, const struct rules *rules);
bool take_verdict_or_null(struct decoder *d, void *to, const struct rules *rules);

#endif
