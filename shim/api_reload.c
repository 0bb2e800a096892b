/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reloads of the public API, and the gate: what a verdict means for the caller.
 *
 * One verdict, from reload.h, is what the caller gets, what the report line says, what
 * arena_status() tells and what the exit line rests on.
 *
 * Any thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena/client.h"
#include "arena/reload.h"
#include "reports/write.h"
#include "shim/api.h"
#include "shim/coverage.h"
#include "shim/log.h"
#include "shim/options.h"
#include "shim/outside.h"

int arena_reload_begin(const struct arena_scope *scope, uint64_t *id)
{
	int err = api_on();

	err = err ? err : api_pointer("arena_reload_begin", "id", id);
	return err ? err : reload_begin(scope, id);
}

int arena_receive(const char *key, uint64_t part, uint64_t bytes)
{
	int err = api_on();

	err = err ? err : api_name("arena_receive", "key", key);
	return err ? err : reload_receive(key, part, bytes);
}

int arena_reload_doubt(const char *why)
{
	char text[256];
	int err = api_on();

	err = err ? err : api_pointer("arena_reload_doubt", "why", why);
	if (err)
		return err;
	snprintf(text, sizeof(text), "%s", why);
	err = reload_doubt(text);
	if (!err)
		coverage_note(COVERAGE_RELOAD_DOUBTED, text);
	return err;
}

int arena_reload_wrote(const void *ptr, uint64_t bytes)
{
	int err = api_on();

	err = err ? err : api_pointer("arena_reload_wrote", "ptr", ptr);
	return err ? err : reload_wrote((uintptr_t)ptr, bytes);
}

int arena_layer_commit(struct arena *a, void *stream)
{
	int err = api_on();

	err = err ? err : api_pointer("arena_layer_commit", "the arena", a);
	return err ? err : reload_commit(a, (uintptr_t)stream);
}

/* ---- the end ---- */

/* What weighs most in the outcome, in words. */
static void outcome_text(const struct reload_outcome *o, char *buf, size_t buf_bytes)
{
	const struct slot_finding *worst = NULL;

	for (uint32_t i = 0; i < o->findings.count; i++)
		if (worst == NULL || o->findings.list[i].severity > worst->severity)
			worst = &o->findings.list[i];
	if (o->aborted || worst == NULL)
		snprintf(buf, buf_bytes, "%s", *o->why ? o->why : "no reason was told");
	else
		slot_finding_text(worst, buf, buf_bytes);
}

static void tell(const struct reload_outcome *o, const char *why)
{
	if (o->aborted)
		log_warn("reload %" PRIu64 " was aborted, the process is unsafe: %s", o->id, why);
	else if (o->verdict != RELOAD_PASS)
		log_warn("reload %" PRIu64 ": %s: %s", o->id,
			 verdict_name((enum verdict)o->verdict), why);
}

/* @return what the gate makes of the outcome. */
static int gate(const struct reload_outcome *o, const char *why)
{
	if (option_value(OPTION_GATE) == GATE_ABORT && reload_outcome_fails(o))
		outside_abort();
	if (o->aborted || option_value(OPTION_GATE) < GATE_STRICT)
		return ARENA_OK;
	if (reload_outcome_fails(o))
		return arena_fail(ARENA_E_REFUSED, "reload %" PRIu64 ": %s: %s", o->id,
				  verdict_name((enum verdict)o->verdict), why);
	if (o->unsafe)
		return arena_fail(ARENA_E_UNSAFE, "reload %" PRIu64 " passes, but an earlier one "
						  "failed: reload everything, or restart", o->id);
	return ARENA_OK;
}

static int settle(struct reload_outcome *o, char **json)
{
	char why[384], *line = report_reload(o);
	int err;

	outcome_text(o, why, sizeof(why));
	tell(o, why);
	if (json != NULL)
		*json = line;
	else
		free(line);
	err = gate(o, why);
	reload_outcome_free(o);
	return err;
}

int arena_reload_end(uint64_t id, char **json)
{
	struct reload_outcome o;
	int err = api_on();

	if (json != NULL)
		*json = NULL;
	err = err ? err : reload_end(id, &o);
	return err ? err : settle(&o, json);
}

int arena_reload_abort(uint64_t id, const char *why, char **json)
{
	struct reload_outcome o;
	int err = api_on();

	if (json != NULL)
		*json = NULL;
	err = err ? err : reload_abort(id, why, &o);
	return err ? err : settle(&o, json);
}
