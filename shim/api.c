/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public API (arena/arena.h) but for slots and reloads: checks arguments, takes the registry
 * lock, calls the core. A call that fails says why in one line, and changes nothing.
 *
 * Any thread. No lock is held when something is called out.
 */
#include "shim/api.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arena/reload.h"
#include "arena/snapshot.h"
#include "arena/stage.h"
#include "arena/storage.h"
#include "arena/tag.h"
#include "reports/manifest.h"
#include "reports/write.h"
#include "shim/shim.h"

/* ---- checks ---- */

int api_on(void)
{
	if (shim_ready())
		return ARENA_OK;
	return arena_fail(ARENA_E_ABSENT, "the library is off in this process: ARENA_GATE=off, a "
					  "forked child before cuInit(), or it failed and said so");
}

int api_pointer(const char *call, const char *what, const void *p)
{
	if (p != NULL)
		return ARENA_OK;
	return arena_fail(ARENA_E_INVALID, "%s: %s is NULL: pass one", call, what);
}

int api_name(const char *call, const char *what, const char *name)
{
	int err = api_pointer(call, what, name);

	if (err)
		return err;
	if (*name == '\0')
		return arena_fail(ARENA_E_INVALID, "%s: %s is empty: name it", call, what);
	if (strnlen(name, ARENA_NAME_MAX + 1) > ARENA_NAME_MAX)
		return arena_fail(ARENA_E_INVALID, "%s: %s '%.40s...' is longer than %d bytes: "
						   "shorten it", call, what, name, ARENA_NAME_MAX);
	return ARENA_OK;
}

int api_slot(const char *call, const struct arena *a, const char *slot)
{
	int err = api_on();

	err = err ? err : api_pointer(call, "the arena", a);
	return err ? err : api_name(call, "the slot", slot);
}

/* ---- the library ---- */

const char *arena_strerror(int err)
{
	static const char *const texts[] = {
		[-ARENA_OK] = "no error",
		[-ARENA_E_ABSENT] = "the library is not loaded, is turned off, or has failed",
		[-ARENA_E_INVALID] = "an argument is not valid",
		[-ARENA_E_NOMEM] = "no host memory",
		[-ARENA_E_DEVICE] = "the driver refused",
		[-ARENA_E_SPEC] = "the slot exists with another spec or kind",
		[-ARENA_E_UNKNOWN] = "there is no such thing",
		[-ARENA_E_BUSY] = "not now: something is open, or must be open",
		[-ARENA_E_REFUSED] = "refused because of findings",
		[-ARENA_E_UNSAFE] = "an earlier reload failed: only a full one that passes helps",
		[-ARENA_E_SCOPE] = "outside of the declared scope",
	};

	if (err > 0 || err <= -(int)(sizeof(texts) / sizeof(texts[0])))
		return "not an error of the library";
	return texts[-err];
}

int arena_last_message(char *text, size_t text_bytes)
{
	const char *message = arena_message();
	size_t length = strlen(message), fits = length;

	if (text == NULL && text_bytes != 0)
		return ARENA_E_INVALID; /* no message: the one asked for would go */
	if (text_bytes != 0) {
		if (fits >= text_bytes)
			fits = text_bytes - 1;
		memcpy(text, message, fits);
		text[fits] = '\0';
	}
	return (int)length;
}

int arena_free(void *p)
{
	free(p);
	return ARENA_OK;
}

static void status_read(struct arena_status *s)
{
	enum reload_verdict last;

	*s = (struct arena_status)ARENA_STATUS_INIT;
	s->verdict = reload_last(&last) ? (int32_t)last : (int32_t)report_verdict();
	s->unsafe = reload_unsafe();
	s->reload_open = reload_open();
	s->reload_id = reload_id();
	s->generation = reload_generation();
	s->storage_bytes = storage_bytes();
	s->shadow_peak_bytes = stage_peak_bytes();
	s->findings_error = report_count(SEVERITY_ERROR);
	s->findings_warn = report_count(SEVERITY_WARN);
	registry_lock();
	for (const struct arena *a = registry_first(); a != NULL; a = a->next) {
		s->arenas++;
		s->slots += a->slots_count;
	}
	registry_unlock();
}

int arena_status(struct arena_status *out)
{
	struct arena_status s;
	uint32_t room;
	int err = api_on();

	err = err ? err : api_pointer("arena_status", "out", out);
	if (err)
		return err;
	room = out->struct_bytes;
	if (room < sizeof(room) || room > 4096)
		return arena_fail(ARENA_E_INVALID, "arena_status: struct_bytes is %" PRIu32
				  ": start from ARENA_STATUS_INIT", room);
	status_read(&s);
	/* A newer caller's fields are zero; both keep their own struct_bytes. */
	memset(out, 0, room);
	memcpy(out, &s, room < sizeof(s) ? room : sizeof(s));
	out->struct_bytes = room;
	return ARENA_OK;
}

/* ---- arenas, scopes, tags ---- */

int arena_open(const char *path, struct arena **out)
{
	struct arena *a;
	int err = api_on();

	err = err ? err : api_name("arena_open", "path", path);
	err = err ? err : api_pointer("arena_open", "out", out);
	if (err)
		return err;
	registry_lock();
	a = registry_open(path);
	registry_unlock();
	if (a == NULL)
		return arena_fail(ARENA_E_NOMEM, "arena_open: %s: no host memory", path);
	*out = a;
	return ARENA_OK;
}

int arena_enter(struct arena *a)
{
	int err = api_on();

	err = err ? err : api_pointer("arena_enter", "the arena", a);
	return err ? err : scope_enter(a);
}

int arena_leave(void)
{
	int err = api_on();

	return err ? err : scope_leave();
}

int arena_current(struct arena **out)
{
	int err = api_on();

	err = err ? err : api_pointer("arena_current", "out", out);
	if (!err)
		*out = scope_current();
	return err;
}

int arena_tag_push(const char *name, enum arena_kind kind)
{
	int err = api_on();

	err = err ? err : api_name("arena_tag_push", "name", name);
	return err ? err : tag_push(name, kind);
}

int arena_tag_pop(void)
{
	int err = api_on();

	return err ? err : tag_pop();
}

/* ---- looking ---- */

int arena_snapshot(struct arena_snapshot **out)
{
	int err = api_on();

	err = err ? err : api_pointer("arena_snapshot", "out", out);
	if (!err && snapshot_take(NULL, out) != 0)
		err = arena_fail(ARENA_E_NOMEM, "arena_snapshot: no host memory");
	return err;
}

/* @return the first error; NULL: none. */
static const struct slot_finding *first_error(const struct slot_findings *f)
{
	for (uint32_t i = 0; i < f->count; i++)
		if (f->list[i].severity == SEVERITY_ERROR)
			return &f->list[i];
	return NULL;
}

static int verify_tell(const struct slot_findings *found, char **json)
{
	const struct slot_finding *first = first_error(found);
	char *line = report_verify(found), text[384];

	if (json != NULL)
		*json = line;
	else
		free(line);
	if (first == NULL)
		return ARENA_OK;
	slot_finding_text(first, text, sizeof(text));
	return arena_fail(ARENA_E_REFUSED, "arena_verify: %" PRIu32 " findings: %s", found->count,
			  text);
}

int arena_verify(const struct arena_snapshot *s, char **json)
{
	struct slot_findings found = { .list = NULL };
	int err = api_on();

	if (json != NULL)
		*json = NULL;
	err = err ? err : api_pointer("arena_verify", "the snapshot", s);
	if (!err && (snapshot_verify(s, NULL, &found) != 0 || tag_verify(s, NULL, &found) != 0))
		err = arena_fail(ARENA_E_NOMEM, "arena_verify: no host memory");
	if (!err) {
		slot_findings_normalise(&found);
		err = verify_tell(&found, json);
	}
	slot_findings_free(&found);
	return err;
}

int arena_snapshot_free(struct arena_snapshot *s)
{
	if (s != NULL)
		snapshot_free(s);
	return ARENA_OK;
}

/* ---- caches, manifest ---- */

int arena_cache_register(const char *name, arena_flush_fn flush, void *ctx)
{
	int err = api_on();

	err = err ? err : api_name("arena_cache_register", "name", name);
	return err ? err : cache_register(name, flush, ctx);
}

int arena_cache_flushed(const char *name)
{
	int err = api_on();

	err = err ? err : api_name("arena_cache_flushed", "name", name);
	return err ? err : cache_flushed(name);
}

int arena_manifest_load(const char *path)
{
	int err = api_on();

	err = err ? err : api_pointer("arena_manifest_load", "path", path);
	if (err)
		return err;
	if (reload_open())
		return arena_fail(ARENA_E_BUSY, "arena_manifest_load: reload %" PRIu64
				  " is open: load it before or after", reload_id());
	return manifest_read(path);
}
