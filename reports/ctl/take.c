/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects by tables, and the values in them. Keys nearly always come in the order of the table, so
 * the search begins behind the last hit. Known keys have strict types, unknown ones are passed
 * over, none may come twice.
 *
 * Threads: one.
 */
#include "take.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* Keys that are not in the table, by hash: only to find those that come twice. */
struct strangers {
	uint64_t *v;
	size_t count, room;
};

uint64_t take_hash(const char *key, size_t length)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)key[i]) * 0x100000001b3;
	return hash;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static bool all_different(struct decoder *d, uint64_t *v, size_t count)
{
	if (count > 1)
		qsort(v, count, sizeof(*v), by_number);
	for (size_t i = 1; i < count; i++)
		if (v[i] == v[i - 1])
			return json_fail(&d->j, "a key comes twice");
	return true;
}

static void add_stranger(struct decoder *d, struct strangers *s, const char *key, size_t length)
{
	s->v = pool_grow(d->pool, s->v, &s->room, s->count, sizeof(*s->v));
	s->v[s->count++] = take_hash(key, length);
}

static const struct rule *find_rule(const struct rules *rules, size_t *from, const char *key,
				    size_t length)
{
	for (size_t i = 0; i < rules->count; i++) {
		size_t at = *from + i < rules->count ? *from + i : *from + i - rules->count;
		const struct rule *r = &rules->v[at];

		if (r->length == length && !memcmp(r->key, key, length)) {
			*from = at + 1 == rules->count ? 0 : at + 1;
			return r;
		}
	}
	return NULL;
}

static bool all_there(struct decoder *d, const struct rules *rules, uint64_t seen)
{
	for (size_t i = 0; i < rules->count; i++)
		if (rules->v[i].required && !(seen >> i & 1)) {
			d->object = rules->name;
			d->key = rules->v[i].key;
			return json_fail(&d->j, "the key is missing");
		}
	return true;
}

/* One value; a mistake in it is placed at the innermost key. */
static bool take_value(struct decoder *d, const struct rules *rules, const struct rule *r, void *to)
{
	if (r->take(d, (char *)to + r->offset, r->rules))
		return true;
	if (!d->key) {
		d->object = rules->name;
		d->key = r->key;
	}
	return false;
}

bool take_members(struct decoder *d, void *to, const struct rules *rules)
{
	struct strangers strangers = { 0 };
	bool first = true;
	uint64_t seen = 0;
	size_t from = 0;

	if (!json_open(&d->j, '{'))
		return false;
	while (json_more(&d->j, &first, '{')) {
		const struct rule *r;
		size_t length;
		char *key;

		if (!json_key(&d->j, &key, &length))
			return false;
		r = find_rule(rules, &from, key, length);
		if (!r) {
			add_stranger(d, &strangers, key, length);
			if (!json_skip(&d->j))
				return false;
			continue;
		}
		if (seen >> (r - rules->v) & 1) {
			d->object = rules->name;
			d->key = r->key;
			return json_fail(&d->j, "the key comes twice");
		}
		seen |= 1ULL << (r - rules->v);
		if (!take_value(d, rules, r, to))
			return false;
	}
	return !d->j.why && all_different(d, strangers.v, strangers.count) &&
	       all_there(d, rules, seen);
}

/*
 * Values
 */

bool take_uint(struct decoder *d, void *to, const struct rules *rules)
{
	return json_uint(&d->j, to);
}

bool take_flag(struct decoder *d, void *to, const struct rules *rules)
{
	return json_bool(&d->j, to);
}

bool take_text(struct decoder *d, void *to, const struct rules *rules)
{
	size_t length;

	return json_text(&d->j, to, &length);
}

bool take_text_or_null(struct decoder *d, void *to, const struct rules *rules)
{
	return json_null(&d->j) || take_text(d, to, rules);
}

bool take_hex(struct decoder *d, void *to, const struct rules *rules)
{
	uint64_t n = 0;
	size_t length;
	char *text;

	if (!json_text(&d->j, &text, &length))
		return false;
	if (length < 3 || length > 18 || text[0] != '0' || text[1] != 'x')
		return json_fail(&d->j, "no address of the form 0x1234");
	for (const char *c = text + 2; *c; c++) {
		int digit = *c >= '0' && *c <= '9'   ? *c - '0'
			    : *c >= 'a' && *c <= 'f' ? *c - 'a' + 10
						     : -1;

		if (digit < 0)
			return json_fail(&d->j, "no address of the form 0x1234");
		n = n << 4 | (uint64_t)digit;
	}
	*(uint64_t *)to = n;
	return true;
}

/* The place of a word among @names. */
static bool take_name(struct decoder *d, unsigned *to, const char *const *names, unsigned count)
{
	size_t length;
	char *text;

	if (!json_text(&d->j, &text, &length))
		return false;
	for (unsigned i = 0; i < count; i++)
		if (!strcmp(names[i], text)) {
			*to = i;
			return true;
		}
	return json_fail(&d->j, "a word that is none of those that are allowed");
}

bool take_severity(struct decoder *d, void *to, const struct rules *rules)
{
	return take_name(d, to, severity_names, SEVERITY_COUNT);
}

bool take_verdict(struct decoder *d, void *to, const struct rules *rules)
{
	unsigned which = 0;

	if (!take_name(d, &which, verdict_names + 1, VERDICT_UNPROVEN))
		return false;
	*(enum verdict *)to = which + 1;
	return true;
}

bool take_verdict_or_null(struct decoder *d, void *to, const struct rules *rules)
{
	return json_null(&d->j) || take_verdict(d, to, rules);
}

bool take_object(struct decoder *d, void *to, const struct rules *rules)
{
	return take_members(d, to, rules);
}

bool take_pointer(struct decoder *d, void *to, const struct rules *rules)
{
	void *inner;

	if (json_null(&d->j))
		return true;
	inner = pool_take(d->pool, rules->size_bytes);
	*(void **)to = inner;
	return take_members(d, inner, rules);
}

/*
 * Lists: a pointer and, right behind it, the count.
 */

struct list {
	void *v;
	size_t count;
};

typedef bool (*item_fn)(struct decoder *d, void *to, const struct rules *rules);

static bool take_items(struct decoder *d, struct list *to, size_t size_bytes, item_fn take,
		       const struct rules *rules)
{
	size_t room = 0;
	bool first = true;

	if (!json_open(&d->j, '['))
		return false;
	while (json_more(&d->j, &first, '[')) {
		to->v = pool_grow(d->pool, to->v, &room, to->count, size_bytes);
		if (!take(d, (char *)to->v + to->count * size_bytes, rules))
			return false;
		to->count++;
	}
	return !d->j.why;
}

bool take_objects(struct decoder *d, void *to, const struct rules *rules)
{
	return take_items(d, to, rules->size_bytes, take_object, rules);
}

bool take_texts(struct decoder *d, void *to, const struct rules *rules)
{
	return take_items(d, to, sizeof(char *), take_text, NULL);
}

static bool take_int(struct decoder *d, void *to, const struct rules *rules)
{
	return json_int(&d->j, to);
}

bool take_ints(struct decoder *d, void *to, const struct rules *rules)
{
	return take_items(d, to, sizeof(int64_t), take_int, NULL);
}

/* [module, "0xoffset"] */
static bool take_frame(struct decoder *d, void *to, const struct rules *rules)
{
	struct frame_ref *f = to;
	bool first = true;

	return json_open(&d->j, '[') && json_more(&d->j, &first, '[') &&
	       json_uint(&d->j, &f->module) && json_more(&d->j, &first, '[') &&
	       take_hex(d, &f->offset, NULL) &&
	       (!json_more(&d->j, &first, '[') || json_fail(&d->j, "a frame has two members")) &&
	       !d->j.why;
}

bool take_frames(struct decoder *d, void *to, const struct rules *rules)
{
	return take_items(d, to, sizeof(struct frame_ref), take_frame, NULL);
}

/* ["file", line, "function"] */
static bool take_python_frame(struct decoder *d, void *to, const struct rules *rules)
{
	struct python_ref *f = to;
	bool first = true;

	return json_open(&d->j, '[') && json_more(&d->j, &first, '[') &&
	       take_text(d, &f->file, NULL) && json_more(&d->j, &first, '[') &&
	       json_uint(&d->j, &f->line) && json_more(&d->j, &first, '[') &&
	       take_text(d, &f->function, NULL) &&
	       (!json_more(&d->j, &first, '[') || json_fail(&d->j, "a frame has three members")) &&
	       !d->j.why;
}

bool take_python(struct decoder *d, void *to, const struct rules *rules)
{
	return take_items(d, to, sizeof(struct python_ref), take_python_frame, NULL);
}

/*
 * Maps with keys of any kind
 */

typedef bool (*pair_fn)(struct decoder *d, struct pairs *all, size_t *room, const char *key);

static void add_pair(struct decoder *d, struct pairs *all, size_t *room, struct pair p)
{
	all->v = pool_grow(d->pool, all->v, room, all->count, sizeof(p));
	all->v[all->count++] = p;
}

static bool pair_number(struct decoder *d, struct pairs *all, size_t *room, const char *key)
{
	struct pair p = { .key = key };

	if (!json_uint(&d->j, &p.number))
		return false;
	add_pair(d, all, room, p);
	return true;
}

static bool pair_text(struct decoder *d, struct pairs *all, size_t *room, const char *key)
{
	struct pair p = { .key = key };

	if (!take_text(d, &p.text, NULL))
		return false;
	add_pair(d, all, room, p);
	return true;
}

static bool pair_texts(struct decoder *d, struct pairs *all, size_t *room, const char *key)
{
	struct list names = { 0 };

	if (!take_items(d, &names, sizeof(char *), take_text, NULL))
		return false;
	for (size_t i = 0; i < names.count; i++)
		add_pair(d, all, room,
			 (struct pair){ .key = key, .text = ((const char **)names.v)[i] });
	return true;
}

static bool take_map(struct decoder *d, struct pairs *all, size_t *room, const char *prefix,
		     pair_fn take)
{
	struct strangers seen = { 0 };
	bool first = true;

	if (!json_open(&d->j, '{'))
		return false;
	while (json_more(&d->j, &first, '{')) {
		size_t length, before = prefix ? strlen(prefix) + 1 : 0;
		char *key, *name;

		if (!json_key(&d->j, &key, &length))
			return false;
		add_stranger(d, &seen, key, length);
		name = key;
		if (prefix) {
			name = pool_take(d->pool, before + length + 1);
			snprintf(name, before + length + 1, "%s.%s", prefix, key);
		}
		if (!take(d, all, room, name))
			return false;
	}
	return !d->j.why && all_different(d, seen.v, seen.count);
}

/* Counters lie in objects in objects: dotted keys. What is no number, text or object is skipped. */
static bool pair_counter(struct decoder *d, struct pairs *all, size_t *room, const char *key)
{
	char c = json_peek(&d->j);

	if (c == '{')
		return take_map(d, all, room, key, pair_counter);
	if (c == '"')
		return pair_text(d, all, room, key);
	if (c >= '0' && c <= '9')
		return pair_number(d, all, room, key);
	return json_skip(&d->j);
}

bool take_numbers(struct decoder *d, void *to, const struct rules *rules)
{
	size_t room = 0;

	return take_map(d, to, &room, NULL, pair_number);
}

bool take_options(struct decoder *d, void *to, const struct rules *rules)
{
	size_t room = 0;

	return take_map(d, to, &room, NULL, pair_text);
}

bool take_noted(struct decoder *d, void *to, const struct rules *rules)
{
	size_t room = 0;

	return take_map(d, to, &room, NULL, pair_texts);
}

/* ledger, graphs and cupti of an exit line go into one list, each behind the other. */
bool take_counters(struct decoder *d, void *to, const struct rules *rules)
{
	struct pairs *all = to;
	size_t room = all->count; /* full: the list is copied on */

	return take_map(d, all, &room, rules->name, pair_counter);
}
