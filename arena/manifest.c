/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must arrive, against what has arrived.
 *
 * A receipt finds its entry by (layer, key), else by the key alone where the manifest names no
 * layer, or the thread was in none. Without a manifest any receipt inside the scope is good.
 *
 * Threads: any; one mutex guards everything, nothing is called out under it.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "arena/intern.h"
#include "arena/manifest.h"
#include "arena/source.h"

#define KEY_BYTES_MAX 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t expected_count;

/* ---- the manifest ---- */

static int key_check(const char *what, const char *key)
{
	size_t length = key ? strnlen(key, KEY_BYTES_MAX) : 0;

	if (!key || !*key)
		return arena_fail(ARENA_E_INVALID, "%s: the key is empty: name the source", what);
	if (length >= KEY_BYTES_MAX)
		return arena_fail(ARENA_E_INVALID,
				  "%s: key %.40s... is longer than %d bytes: shorten it", what, key,
				  KEY_BYTES_MAX - 1);
	return 0;
}

static int no_memory(const char *what)
{
	return arena_fail(ARENA_E_NOMEM, "%s: no host memory", what);
}

/* Lock held. */
static int entry_add(struct source entry)
{
	struct source *s = source_find(entry.layer, entry.key);

	if (s && s->expected)
		return arena_fail(ARENA_E_INVALID,
				  "manifest: source %s of layer \"%s\" is listed twice: remove one",
				  interned(entry.key), interned(entry.layer));
	if (!s)
		s = source_add(entry.layer, entry.key);
	if (!s)
		return no_memory("manifest");
	s->expected = true;
	s->parts = entry.parts;
	s->bytes = entry.bytes;
	s->role = entry.role;
	expected_count++;
	return 0;
}

int manifest_add(const char *layer, const char *key, uint64_t parts, uint64_t bytes,
		 const char *role)
{
	struct source entry = { .parts = parts, .bytes = bytes };
	int err = key_check("manifest", key);

	if (!err && role && *role)
		err = scope_role_check(role);
	if (err)
		return err;
	entry.layer = intern(layer);
	entry.key = intern(key);
	entry.role = intern(role);
	if (!entry.key || (layer && *layer && !entry.layer) || (role && *role && !entry.role))
		return no_memory("manifest");
	pthread_mutex_lock(&lock);
	err = entry_add(entry);
	pthread_mutex_unlock(&lock);
	return err;
}

void manifest_clear(void)
{
	pthread_mutex_lock(&lock);
	for (struct source *s = source_first(); s; s = s->next)
		s->expected = false;
	expected_count = 0;
	source_sweep();
	pthread_mutex_unlock(&lock);
}

bool manifest_known(void)
{
	bool known;

	pthread_mutex_lock(&lock);
	known = expected_count != 0;
	pthread_mutex_unlock(&lock);
	return known;
}

/* ---- receipts ---- */

/* Where a receipt goes: to one source, or to all entries of the key (*every). Lock held. */
static struct source *receipt_target(uint32_t layer, uint32_t key, bool *every)
{
	struct source *s = source_find(layer, key);
	struct source *any = source_find(0, key);

	*every = false;
	if (s && s->expected)
		return s;
	if (any && any->expected)
		return any;
	if (!layer)
		for (struct source *e = source_of_key(key); e; e = e->next_of_key)
			if (e->expected) {
				*every = true;
				return e;
			}
	return s ? s : source_add(layer, key);
}

/* Lock held. */
static int receipt_note(uint32_t layer, uint32_t key, uint64_t part, uint64_t bytes)
{
	bool every;
	struct source *first = receipt_target(layer, key, &every), *s;

	if (!first || source_room(first))
		return no_memory("receive");
	for (s = first; every && s; s = s->next_of_key)
		if (s->expected && source_room(s))
			return no_memory("receive");
	source_receive(first, layer, part, bytes);
	for (s = first->next_of_key; every && s; s = s->next_of_key)
		if (s->expected)
			source_receive(s, layer, part, bytes);
	return 0;
}

int receipt_add(const struct arena *layer, const char *key, uint64_t part, uint64_t bytes)
{
	int err = key_check("receive", key);
	uint32_t id;

	if (err)
		return err;
	id = intern(key);
	if (!id)
		return no_memory("receive");
	pthread_mutex_lock(&lock);
	err = receipt_note(layer ? layer->path : 0, id, part, bytes);
	pthread_mutex_unlock(&lock);
	return err;
}

void receipts_clear(void)
{
	pthread_mutex_lock(&lock);
	for (struct source *s = source_first(); s; s = s->next)
		source_forget_receipts(s);
	source_sweep();
	pthread_mutex_unlock(&lock);
}

void receipts_count(struct receipt_counts *out)
{
	*out = (struct receipt_counts){ .sources = 0 };
	pthread_mutex_lock(&lock);
	for (const struct source *s = source_first(); s; s = s->next) {
		out->sources += s->seen_count != 0;
		out->parts += s->seen_count + s->again;
		out->bytes += s->got_bytes;
	}
	pthread_mutex_unlock(&lock);
}

bool receipts_arrived(uint32_t layer)
{
	const struct source *s;
	bool arrived;

	pthread_mutex_lock(&lock);
	s = source_of_layer(layer);
	while (s && !s->seen_count)
		s = s->next_of_layer;
	arrived = s != NULL;
	pthread_mutex_unlock(&lock);
	return arrived;
}

void receipts_doubt(uint32_t layer)
{
	pthread_mutex_lock(&lock);
	for (struct source *s = source_first(); s; s = s->next)
		if (s->seen_count && (s->layer ? s->layer : s->got_layer) == layer)
			s->doubted = true;
	pthread_mutex_unlock(&lock);
}

void receipts_trust(bool full)
{
	pthread_mutex_lock(&lock);
	for (struct source *s = source_first(); s; s = s->next)
		s->doubted &= !full && !s->seen_count;
	pthread_mutex_unlock(&lock);
}

void receipts_learn(void)
{
	pthread_mutex_lock(&lock);
	for (struct source *s = expected_count ? NULL : source_first(); s; s = s->next) {
		if (!s->seen_count)
			continue;
		s->expected = true;
		s->parts = s->seen_count;
		s->bytes = s->got_bytes;
		s->role = 0;
	}
	for (struct source *s = expected_count ? NULL : source_first(); s; s = s->next)
		expected_count += s->expected;
	pthread_mutex_unlock(&lock);
}

/* ---- comparison; lock held ---- */

static bool is_covered(const struct arena_scope *scope, const struct source *s)
{
	return scope_covers_layer(scope, interned(s->layer ? s->layer : s->got_layer)) &&
	       scope_covers_source(scope, interned(s->key), interned(s->role));
}

/* Must it arrive? What has no role belongs to all of them, so none of them can demand it. */
static bool is_demanded(const struct arena_scope *scope, const struct source *s)
{
	/* Without a manifest, at least what a failed reload may have left half loaded. */
	if (!s->expected)
		return s->doubted && !expected_count && scope_full(scope);
	return scope_covers_layer(scope, interned(s->layer)) &&
	       scope_covers_source(scope, interned(s->key), interned(s->role)) &&
	       (s->role || !scope || !scope->role);
}

/* A list of findings that is being made; an error is sticky. */
struct telling {
	struct slot_findings *out;
	int err;
};

static __attribute__((format(printf, 4, 5))) void
tell(struct telling *t, enum finding_kind kind, const struct source *s, const char *format, ...)
{
	struct slot_finding f = {
		.kind = kind, .severity = finding_severity(kind), .path = s->layer, .name = s->key
	};
	char text[128];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	f.detail = intern(text);
	if (slot_findings_add(t->out, &f))
		t->err = ARENA_E_NOMEM;
}

/* What arrived of an entry against what it says. */
static void compare_amount(struct telling *t, const struct source *s)
{
	if ((!s->parts || s->seen_count == s->parts) && (!s->bytes || s->got_bytes == s->bytes))
		return;
	tell(t, FINDING_SOURCE_SHORT, s,
	     "%" PRIu32 " parts, %" PRIu64 " bytes; manifest: %" PRIu64 ", %" PRIu64, s->seen_count,
	     s->got_bytes, s->parts, s->bytes);
}

static void compare(struct telling *t, const struct arena_scope *scope, const struct source *s)
{
	if (!s->seen_count) {
		if (is_demanded(scope, s))
			tell(t, FINDING_SOURCE_MISSING, s,
			     s->expected ? "nothing arrived"
					 : "nothing arrived since a reload that failed");
		return;
	}
	if (!is_covered(scope, s))
		tell(t, FINDING_SOURCE_UNEXPECTED, s, "outside the declared scope");
	else if (!s->expected && expected_count)
		tell(t, FINDING_SOURCE_UNEXPECTED, s, "not in the manifest");
	if (s->again)
		tell(t, FINDING_SOURCE_DUPLICATE, s, "parts that arrived again: %" PRIu64,
		     s->again);
	if (s->expected)
		compare_amount(t, s);
}

/* A source that the scope lists must arrive, also when no manifest says whose it is. */
static void compare_listed(struct telling *t, const struct arena_scope *scope, const char *key)
{
	const struct source *s;
	uint32_t id = intern(key);

	if (!id) {
		t->err = ARENA_E_NOMEM;
		return;
	}
	for (s = source_of_key(id); s; s = s->next_of_key)
		if (s->seen_count || is_demanded(scope, s))
			return;
	tell(t, FINDING_SOURCE_MISSING, &(struct source){ .key = id },
	     "listed in the scope, nothing arrived");
}

int manifest_verify(const struct arena_scope *scope, const struct arena *a,
		    struct slot_findings *out)
{
	struct telling t = { .out = out };
	const struct source *s;

	pthread_mutex_lock(&lock);
	if (a) {
		s = source_of_layer(a->path);
		for (; s; s = s->next_of_layer)
			compare(&t, scope, s);
	} else {
		for (s = source_first(); s; s = s->next)
			compare(&t, scope, s);
		for (uint32_t i = 0; scope && i < scope->sources_count; i++)
			compare_listed(&t, scope, scope->sources[i]);
	}
	pthread_mutex_unlock(&lock);
	return t.err;
}

bool manifest_demands(const struct arena_scope *scope)
{
	bool demanded = false;

	pthread_mutex_lock(&lock);
	for (const struct source *s = source_first(); s && !demanded; s = s->next)
		demanded = is_demanded(scope, s);
	pthread_mutex_unlock(&lock);
	return demanded;
}

bool manifest_blind(const struct arena_scope *scope)
{
	struct receipt_counts got;

	if (scope_full(scope) || scope->sources_count)
		return false;
	receipts_count(&got);
	/* What arrived has company somewhere. */
	return (got.sources || manifest_known()) && !manifest_demands(scope);
}
