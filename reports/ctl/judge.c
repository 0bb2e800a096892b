/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a report means: verdicts, and what a finding is about.
 *
 * Threads: one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "read.h"

const char *const severity_names[SEVERITY_COUNT] = { "info", "warn", "error" };
const char *const verdict_names[] = { "none", "pass", "fail", "unproven" };

/* What makes a verdict unproven, as the shim has it. */
static const struct {
	const char *key, *text;
	bool decisive;
} gaps[] = {
#define COVERAGE(id, key, decisive, text) { key, text, decisive },
#include "shim/coverage.def"
#undef COVERAGE
};

static const char *first_gap(const struct report_exit *e)
{
	if (e->unproven.count)
		return e->unproven.v[0];
	for (size_t i = 0; i < e->coverage.count; i++)
		for (size_t k = 0; k < sizeof(gaps) / sizeof(gaps[0]); k++)
			if (gaps[k].decisive && e->coverage.v[i].number &&
			    !strcmp(gaps[k].key, e->coverage.v[i].key))
				return gaps[k].text;
	return NULL;
}

/* Why an exit line proves nothing, in its own words; NULL: it is whole. */
static const char *exit_doubt(const struct report_exit *e)
{
	const char *gap = first_gap(e);

	if (gap)
		return gap;
	if (e->reload_open)
		return "a reload is open";
	if (e->reload_last == VERDICT_UNPROVEN)
		return "the last reload is unproven";
	if (e->lines_lost)
		return "lines of its report could not be written";
	return e->findings_left_out ? "it had more findings than a report holds" : NULL;
}

enum verdict exit_verdict(const struct report_exit *e)
{
	if (e->unsafe || e->reload_last == VERDICT_FAIL || e->verdict == VERDICT_FAIL)
		return VERDICT_FAIL;
	return exit_doubt(e) ? VERDICT_UNPROVEN : e->verdict;
}

const struct report_reload *report_last_reload(const struct report *r)
{
	for (size_t i = r->reloads.count; i-- > 0;)
		if (r->reloads.v[i]->id)
			return r->reloads.v[i];
	return NULL;
}

const char *report_unsafe(const struct report *r)
{
	const struct report_reload *last = report_last_reload(r);

	if ((r->exit && r->exit->unsafe) || (last && last->unsafe))
		return "a reload failed and the weights may be a mixture: the process is unsafe";
	return last && last->aborted ? "the last reload was aborted" : NULL;
}

/* Findings that an exit line counts and no line tells. */
static bool counts_more(const struct report *r)
{
	for (unsigned s = 0; s < SEVERITY_COUNT; s++)
		if (r->exit->findings[s] > r->seen[s])
			return true;
	return false;
}

const char *report_doubt(const struct report *r)
{
	const struct report_reload *last = report_last_reload(r);
	const char *doubt;

	if (!r->exit)
		return "no exit line: the process was killed, runs still, or ended by _exit()";
	doubt = exit_doubt(r->exit);
	if (doubt)
		return doubt;
	if (r->lines[LINE_EXIT] > 1)
		return "it has more than one exit line: lines of two processes, or written anew";
	if (r->not_kept[LINE_FINDING])
		return "it has more findings than arenactl keeps";
	if (counts_more(r))
		return "its exit line counts more findings than there are lines of";
	if (last && last->verdict == VERDICT_UNPROVEN)
		return "the last reload is unproven";
	return r->exit->verdict == VERDICT_UNPROVEN ? "its exit line says so" : NULL;
}

/* An exit line may say pass: what failed before it counts all the same. */
enum verdict report_verdict(const struct report *r)
{
	const struct report_reload *last = report_last_reload(r);

	if ((r->exit && exit_verdict(r->exit) == VERDICT_FAIL) || r->launch_errors ||
	    report_unsafe(r) || (last && last->verdict == VERDICT_FAIL))
		return VERDICT_FAIL;
	return report_doubt(r) ? VERDICT_UNPROVEN : VERDICT_PASS;
}

static const char *why_failed(const struct report *r)
{
	const struct report_reload *last = report_last_reload(r);
	const struct report_finding *worst = NULL;

	if (report_unsafe(r))
		return report_unsafe(r);
	for (size_t i = 0; i < r->findings.count; i++)
		if (!worst || r->findings.v[i]->severity > worst->severity)
			worst = r->findings.v[i];
	if (worst && worst->severity == SEVERITY_ERROR)
		return worst->title;
	if ((r->exit && r->exit->reload_last == VERDICT_FAIL) ||
	    (last && last->verdict == VERDICT_FAIL))
		return "the last reload failed";
	return "its exit line says so";
}

const char *report_why(const struct report *r)
{
	return report_verdict(r) == VERDICT_FAIL ? why_failed(r) : report_doubt(r);
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
