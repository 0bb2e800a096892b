/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options from the environment: one row of options.def is one option, ARENA_<NAME> its variable.
 *
 * options_init() runs once, in one thread, before any reader depends on the values; afterwards
 * nothing changes and any thread may read. A value that is not understood never stops the host:
 * it is said in one line with what would be valid, and the default stays.
 */
#include "shim/options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#include "shim/log.h"

#define PREFIX "ARENA_"
#define PREFIX_CHARS (sizeof(PREFIX) - 1)
/* Longer names and words are cut for the comparison; no row comes near. */
#define WORD_MAX 32

enum option_type { TYPE_ENUM, TYPE_UINT, TYPE_TEXT };

struct option_row {
	const char *name;
	enum option_type type;
	const char *words;	/* enum: "v0|v1|..."; uint: unit */
	uint64_t min, max;	/* uint */
	uint64_t value;		/* enum: index of the word */
	char *text;		/* text: OPTION_TEXT_BYTES of it */
};

#define OPTION_ENUM(name, def, words, doc)
#define OPTION_UINT(name, def, unit, min, max, doc)
#define OPTION_TEXT(name, def, doc) static char text_##name[OPTION_TEXT_BYTES] = def;
#include "shim/options.def"
#undef OPTION_ENUM
#undef OPTION_UINT
#undef OPTION_TEXT

static struct option_row rows[OPTION_COUNT] = {
#define OPTION_ENUM(name, def, words, doc) { #name, TYPE_ENUM, words, 0, 0, def, NULL },
#define OPTION_UINT(name, def, unit, min, max, doc) { #name, TYPE_UINT, unit, min, max, def, NULL },
#define OPTION_TEXT(name, def, doc) { #name, TYPE_TEXT, "", 0, 0, 0, text_##name },
#include "shim/options.def"
#undef OPTION_ENUM
#undef OPTION_UINT
#undef OPTION_TEXT
};

/* ---- the nearest valid word ---- */

static unsigned least(unsigned a, unsigned b, unsigned c)
{
	unsigned ab = a < b ? a : b;

	return ab < c ? ab : c;
}

/* ASCII only: what the locale thinks of letters does not matter here. */
static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

static bool same_letter(char a, char b)
{
	return lower(a) == lower(b);
}

/* Edit distance, case ignored, a swap of neighbours counts one (optimal string alignment). */
static unsigned distance(const char *a, size_t na, const char *b, size_t nb)
{
	unsigned d[WORD_MAX + 1][WORD_MAX + 1];

	na = na < WORD_MAX ? na : WORD_MAX;
	nb = nb < WORD_MAX ? nb : WORD_MAX;
	for (size_t i = 0; i <= na; i++)
		d[i][0] = (unsigned)i;
	for (size_t j = 0; j <= nb; j++)
		d[0][j] = (unsigned)j;
	for (size_t i = 1; i <= na; i++) {
		for (size_t j = 1; j <= nb; j++) {
			unsigned differs = !same_letter(a[i - 1], b[j - 1]);

			d[i][j] = least(d[i - 1][j] + 1, d[i][j - 1] + 1,
					d[i - 1][j - 1] + differs);
			if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
			    same_letter(a[i - 2], b[j - 1]) && d[i - 2][j - 2] + 1 < d[i][j])
				d[i][j] = d[i - 2][j - 2] + 1;
		}
	}
	return d[na][nb];
}

/* Candidates are tried one by one; the nearest that is not too far stays. */
struct nearest {
	const char *want;
	size_t want_chars;
	const char *best;
	size_t best_chars;
	unsigned best_distance;
};

static struct nearest nearest_begin(const char *want, size_t chars)
{
	/* A third of the letters wrong is another word. */
	return (struct nearest){ .want = want, .want_chars = chars,
				 .best_distance = (unsigned)(chars < 3 ? 1 : chars / 3) + 1 };
}

static void nearest_try(struct nearest *n, const char *word, size_t chars)
{
	unsigned d = distance(n->want, n->want_chars, word, chars);

	if (d < n->best_distance) {
		n->best = word;
		n->best_chars = chars;
		n->best_distance = d;
	}
}

/* ", did you mean X?" or, when nothing is near, only the colon. */
static const char *nearest_hint(const struct nearest *n, const char *prefix, char *buf, size_t size)
{
	if (!n->best)
		return ":";
	snprintf(buf, size, ", did you mean %s%.*s?", prefix, (int)n->best_chars, n->best);
	return buf;
}

/* ---- words of an enum row ---- */

/* @return the first word and its length, then the next one; NULL at the end. */
static const char *word_next(const char *word, size_t *chars)
{
	if (!word || !*word)
		return NULL;
	*chars = strcspn(word, "|");
	return word;
}

static const char *word_after(const char *word, size_t chars)
{
	return word[chars] ? word + chars + 1 : NULL;
}

#define for_each_word(w, n, words)                                                            \
	for (const char *w = word_next((words), &(n)); w; w = word_next(word_after(w, n), &(n)))

/* ---- reading ---- */

static void read_enum(struct option_row *row, const char *value)
{
	struct nearest near = nearest_begin(value, strlen(value));
	uint64_t index = 0, best = 0;
	char hint[64], now[64];
	size_t chars;

	for_each_word(word, chars, row->words) {
		nearest_try(&near, word, chars);
		if (near.best == word)
			best = index;
		index++;
	}
	if (near.best && near.best_distance == 0) {
		row->value = best;
		return;
	}
	option_print((enum option_id)(row - rows), now, sizeof(now));
	log_warn(PREFIX "%s=%.64s: not one of %s%s using %s", row->name, value, row->words,
		 nearest_hint(&near, "", hint, sizeof(hint)), now);
}

/* Digits only: no sign, no blanks, no suffix. @return false when it is not a number <= max. */
static bool parse_uint(const char *s, uint64_t max, uint64_t *out)
{
	uint64_t v = 0;

	if (!*s)
		return false;
	for (; *s; s++) {
		unsigned digit = (unsigned)(*s - '0');

		if (digit > 9 || v > max / 10 || v * 10 > max - digit)
			return false;
		v = v * 10 + digit;
	}
	*out = v;
	return true;
}

static void read_uint(struct option_row *row, const char *value)
{
	uint64_t v;

	if (parse_uint(value, row->max, &v) && v >= row->min) {
		row->value = v;
		return;
	}
	log_warn(PREFIX "%s=%.64s: not a number from %llu to %llu (%s): using %llu", row->name,
		 value, (unsigned long long)row->min, (unsigned long long)row->max, row->words,
		 (unsigned long long)row->value);
}

static void read_text(struct option_row *row, const char *value)
{
	size_t chars = strlen(value);

	if (chars < OPTION_TEXT_BYTES) {
		memcpy(row->text, value, chars + 1);
		return;
	}
	log_warn(PREFIX "%s=%.64s...: longer than %d bytes: using %.64s", row->name, value,
		 OPTION_TEXT_BYTES - 1, row->text);
}

/* As getenv(): the first one counts. */
static const char *find_env(char *const *env, const char *name)
{
	size_t chars = strlen(name);

	for (; *env; env++) {
		const char *s = *env;

		if (strncmp(s, PREFIX, PREFIX_CHARS) == 0 &&
		    strncmp(s + PREFIX_CHARS, name, chars) == 0 && s[PREFIX_CHARS + chars] == '=')
			return s + PREFIX_CHARS + chars + 1;
	}
	return NULL;
}

static void read_row(struct option_row *row, char *const *env)
{
	const char *value = find_env(env, row->name);

	if (!value)
		return;
	switch (row->type) {
	case TYPE_ENUM:
		read_enum(row, value);
		break;
	case TYPE_UINT:
		read_uint(row, value);
		break;
	case TYPE_TEXT:
		read_text(row, value);
		break;
	}
}

/* Say it when @assignment is an ARENA_ name that is no option. */
static void check_name(const char *assignment)
{
	const char *name = assignment + PREFIX_CHARS;
	size_t chars = strcspn(assignment, "=");
	struct nearest near;
	char hint[64];

	if (strncmp(assignment, PREFIX, PREFIX_CHARS) != 0 || chars < PREFIX_CHARS)
		return;
	chars -= PREFIX_CHARS;
	near = nearest_begin(name, chars);
	for (int i = 0; i < OPTION_COUNT; i++) {
		if (strlen(rows[i].name) == chars && strncmp(rows[i].name, name, chars) == 0)
			return;
		nearest_try(&near, rows[i].name, strlen(rows[i].name));
	}
	log_warn(PREFIX "%.*s: no such option%s ignored, see arena-shim(7)",
		 (int)(chars < 64 ? chars : 64), name,
		 nearest_hint(&near, PREFIX, hint, sizeof(hint)));
}

static void say_all(void)
{
	char value[256];

	for (int i = 0; i < OPTION_COUNT; i++) {
		counter_t site = 0; /* each is a message of its own */

		option_print((enum option_id)i, value, sizeof(value));
		log_write(LOG_DEBUG, &site, PREFIX "%s=%s", rows[i].name, value);
	}
}

void options_init(char *const *env)
{
	/* Whoever starts a set-user-id program does not choose which files it writes. */
	if (getauxval(AT_SECURE)) {
		rows[OPTION_REPORT].text[0] = '\0';
		return;
	}
	if (!env)
		return;
	read_row(&rows[OPTION_LOG], env);	/* first: it decides what the others may say */
	for (int i = 0; i < OPTION_COUNT; i++)
		if (i != OPTION_LOG)
			read_row(&rows[i], env);
	for (; *env; env++)
		check_name(*env);
	if (option_value(OPTION_LOG) >= LOG_DEBUG)
		say_all();
}

uint64_t option_value(enum option_id id)
{
	return rows[id].value;
}

const char *option_text(enum option_id id)
{
	return rows[id].text;
}

const char *option_name(enum option_id id)
{
	return rows[id].name;
}

size_t option_print(enum option_id id, char *buf, size_t buf_bytes)
{
	const struct option_row *row = &rows[id];
	uint64_t index = 0;
	size_t chars;

	switch (row->type) {
	case TYPE_ENUM:
		for_each_word(word, chars, row->words) {
			if (index++ == row->value)
				return (size_t)snprintf(buf, buf_bytes, "%.*s", (int)chars, word);
		}
		break;
	case TYPE_UINT:
		return (size_t)snprintf(buf, buf_bytes, "%llu", (unsigned long long)row->value);
	case TYPE_TEXT:
		return (size_t)snprintf(buf, buf_bytes, "%s", row->text);
	}
	return 0;
}
