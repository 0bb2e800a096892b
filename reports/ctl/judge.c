/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a report means: verdicts, and what a finding is about.
 *
 * Threads: one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"
#include "read.h"

const char *const severity_names[SEVERITY_COUNT] = { "info", "warn", "error" };
const char *const verdict_names[] = { "none", "pass", "fail", "unproven" };

/* A process without an exit line: what it wrote may be a failure, but is never a pass. */
static enum verdict verdict_unfinished(const struct report *r)
{
	for (size_t i = 0; i < r->findings.count; i++)
		if (r->findings.v[i]->origin == ORIGIN_LAUNCH &&
		    r->findings.v[i]->severity == SEVERITY_ERROR)
			return VERDICT_FAIL;
	for (size_t i = r->reloads.count; i-- > 0;)
		if (r->reloads.v[i]->id)
			return r->reloads.v[i]->verdict == VERDICT_FAIL || r->reloads.v[i]->unsafe
				       ? VERDICT_FAIL
				       : VERDICT_UNPROVEN;
	return VERDICT_UNPROVEN;
}

static bool lost_something(const struct report *r)
{
	return r->exit->lines_lost || r->exit->findings_left_out || r->not_kept[LINE_FINDING];
}

enum verdict report_verdict(const struct report *r)
{
	if (!r->exit)
		return verdict_unfinished(r);
	return r->exit->verdict == VERDICT_PASS && lost_something(r) ? VERDICT_UNPROVEN
								     : r->exit->verdict;
}

static const char *why_failed(const struct report *r)
{
	const struct report_finding *worst = NULL;

	for (size_t i = 0; i < r->findings.count; i++)
		if (!worst || r->findings.v[i]->severity > worst->severity)
			worst = r->findings.v[i];
	if (r->exit && r->exit->unsafe)
		return "a reload failed and the weights may be a mixture: the process is unsafe";
	if (worst && worst->severity == SEVERITY_ERROR)
		return worst->title;
	if (r->exit && r->exit->reload_last == VERDICT_FAIL)
		return "the last reload failed";
	return "its exit line says so";
}

const char *report_why(const struct report *r)
{
	enum verdict v = report_verdict(r);

	if (v == VERDICT_PASS)
		return NULL;
	if (v == VERDICT_FAIL)
		return why_failed(r);
	if (!r->exit)
		return "no exit line: the process was killed, runs still, or ended by _exit()";
	if (r->exit->unproven.count)
		return r->exit->unproven.v[0];
	if (r->exit->lines_lost)
		return "lines of its report could not be written";
	return r->not_kept[LINE_FINDING] ? "it has more findings than arenactl keeps"
					 : "it had more findings than a report holds";
}

enum verdict set_verdict(const struct report_set *set)
{
	enum verdict verdict =
		set->reports.count && read_clean(set->read) ? VERDICT_PASS : VERDICT_UNPROVEN;

	for (size_t i = 0; i < set->reports.count; i++) {
		enum verdict v = report_verdict(set->reports.v[i]);

		if (v == VERDICT_FAIL)
			return VERDICT_FAIL;
		if (v == VERDICT_UNPROVEN)
			verdict = VERDICT_UNPROVEN;
	}
	return verdict;
}

/*
 * What a finding is about
 */

/* Of a launch: the first ref stands for the others. */
static const struct report_ref *first_ref(const struct report_finding *f)
{
	return f->refs_count ? &f->refs[0] : NULL;
}

const char *finding_subject(const struct report_finding *f, char *buf, size_t size)
{
	const struct report_ref *r = first_ref(f);
	const char *name = *f->slot ? f->slot : *f->source ? f->source : f->cache;

	if (f->origin != ORIGIN_LAUNCH)
		snprintf(buf, size, "%s%s%s", f->layer, *f->layer && *name ? "." : "", name);
	else if (r && r->slot)
		snprintf(buf, size, "%s%s%s", r->arena ? r->arena : "", r->arena ? "." : "",
			 r->slot);
	else if (r && r->old)
		snprintf(buf, size, "0x%" PRIx64 "..0x%" PRIx64, r->old->base,
			 r->old->base + r->old->size);
	else if (r)
		snprintf(buf, size, "0x%" PRIx64, r->value);
	else
		snprintf(buf, size, "the process");
	return buf;
}

const char *finding_layer(const struct report_finding *f)
{
	const struct report_ref *r = first_ref(f);

	return *f->layer ? f->layer : r && r->arena ? r->arena : "";
}

uint64_t finding_old(const struct report_finding *f)
{
	const struct report_ref *r = first_ref(f);

	if (f->origin != ORIGIN_LAUNCH)
		return f->old ? f->old->base : 0;
	return !r ? 0 : r->slot_base ? r->slot_base : r->old ? r->old->base : r->value;
}

uint64_t finding_now(const struct report_finding *f)
{
	const struct report_ref *r = first_ref(f);

	if (f->origin != ORIGIN_LAUNCH)
		return f->now ? f->now->base : 0;
	return !r ? 0 : r->slot ? r->slot_now : r->now ? r->now->base : 0;
}

uint64_t finding_size(const struct report_finding *f)
{
	const struct report_ref *r = first_ref(f);

	if (f->origin != ORIGIN_LAUNCH)
		return f->old ? f->old->bytes : f->now ? f->now->bytes : 0;
	return r && r->old ? r->old->size : 0;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

uint64_t finding_execs(const struct report_finding *f)
{
	uint64_t *sorted, execs = 0;

	if (f->origin != ORIGIN_LAUNCH)
		return f->execs;
	sorted = malloc((f->refs_count + 1) * sizeof(*sorted));
	if (!sorted)
		return 0;
	for (size_t i = 0; i < f->refs_count; i++)
		sorted[i] = f->refs[i].exec;
	qsort(sorted, f->refs_count, sizeof(*sorted), by_number);
	for (size_t i = 0; i < f->refs_count; i++)
		execs += i == 0 || sorted[i] != sorted[i - 1];
	free(sorted);
	return execs;
}

uint64_t finding_old_stack(const struct report_finding *f)
{
	const struct report_ref *r = first_ref(f);

	if (f->origin != ORIGIN_LAUNCH)
		return f->old ? f->old->stack_open : 0;
	return r && r->old ? r->old->stack_open : 0;
}

uint64_t finding_now_stack(const struct report_finding *f)
{
	const struct report_ref *r = first_ref(f);

	if (f->origin != ORIGIN_LAUNCH)
		return f->now ? f->now->stack_open : 0;
	return r && r->now ? r->now->stack_open : 0;
}
