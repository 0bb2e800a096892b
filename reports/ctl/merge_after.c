/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a report tells from the reload that passed onwards, and how it ended. A pass is of one
 * moment: what came later may have undone it, and what was lost may have told so.
 *
 * Threads: one.
 */
#include <inttypes.h>

#include "merge.h"
#include "term.h"

/* @param fails false: it is no more than a doubt */
static void doubt(struct merge *m, struct merge_rank *r, bool fails, const char *text)
{
	r->only_unproven = !fails && (r->only_unproven || !r->reasons.count);
	LIST_ADD(&m->pool, r->reasons, text);
}

#define TEXT(m, ...) pool_print(&(m)->pool, __VA_ARGS__)

/* Where one reload was asked for, there may be others after it. */
static void doubt_later_reloads(struct merge *m, struct merge_rank *r)
{
	const struct report *report = r->report;

	for (size_t i = 0; i < report->reloads.count; i++) {
		const struct report_reload *later = report->reloads.v[i];

		if (later->id <= r->reload->id ||
		    (later->verdict == VERDICT_PASS && !later->unsafe && !later->aborted))
			continue;
		doubt(m, r, later->verdict != VERDICT_UNPROVEN || later->unsafe || later->aborted,
		      TEXT(m, "passed, but the later reload %" PRIu64 " %s%s%s", later->id,
			   later->aborted  ? "was aborted"
			   : later->unsafe ? "left the process unsafe"
					   : verdict_names[later->verdict],
			   *later->why ? ": " : "", later->why));
	}
}

/* Launches and verifies; what a reload found belongs to its verdict. */
static void doubt_later_findings(struct merge *m, struct merge_rank *r)
{
	const struct report *report = r->report;
	const struct report_finding *first = NULL;
	size_t count = 0;
	uint64_t not_kept = report->not_kept[LINE_FINDING];

	for (size_t i = 0; i < report->findings.count; i++) {
		const struct report_finding *f = report->findings.v[i];

		if (f->severity != SEVERITY_ERROR || f->origin == ORIGIN_RELOAD)
			continue;
		not_kept += f->not_kept;
		if (f->line <= r->reload->line)
			continue;
		first = first ? first : f;
		count++;
	}
	if (first)
		doubt(m, r, true,
		      TEXT(m, "after it: %s%s", first->text,
			   count > 1 ? TEXT(m, "; and %zu more", count - 1) : ""));
	else if (not_kept)
		doubt(m, r, false,
		      TEXT(m, "%" PRIu64 " of its findings are beyond what arenactl keeps",
			   not_kept));
	for (size_t i = 0; i < report->reloads.count && !first; i++) {
		const struct report_reload *v = report->reloads.v[i];

		if (v->id || v->line <= r->reload->line || v->verdict == VERDICT_PASS)
			continue;
		doubt(m, r, v->verdict == VERDICT_FAIL,
		      TEXT(m, "a verify after it: %s", verdict_names[v->verdict]));
		break;
	}
}

/* The last line counts as well: what was lost, and reloads that are not in the report. */
static void doubt_exit(struct merge *m, struct merge_rank *r)
{
	const struct report_exit *e = r->report->exit;
	const struct report_reload *last = NULL;
	enum verdict verdict = report_verdict(r->report);

	for (size_t i = 0; i < r->report->reloads.count; i++)
		if (r->report->reloads.v[i]->id)
			last = r->report->reloads.v[i];
	if (e->reload_id != last->id || e->reload_last != last->verdict)
		doubt(m, r, e->reload_last == VERDICT_FAIL,
		      TEXT(m,
			   "its exit line tells of reload %ju, %s: that is not the last one in the "
			   "report",
			   (uintmax_t)e->reload_id, verdict_names[e->reload_last]));
	if (e->lines_lost)
		doubt(m, r, false,
		      TEXT(m, "%" PRIu64 " lines of its report are lost: one may be a reload",
			   e->lines_lost));
	if (e->findings_left_out)
		doubt(m, r, false,
		      TEXT(m, "%" PRIu64 " findings are not in its report", e->findings_left_out));
	/* A doubt hides no failure. */
	if ((verdict == VERDICT_FAIL && (!r->reasons.count || r->only_unproven)) ||
	    (verdict == VERDICT_UNPROVEN && !r->reasons.count))
		doubt(m, r, verdict == VERDICT_FAIL,
		      TEXT(m, "the process ended with the verdict %s: %s", verdict_names[verdict],
			   report_why(r->report)));
}

/*
 * A worker that was restarted is alive with weights that no reload of this run brought. It cannot
 * be told from a helper that uses CUDA, unless the process that passed had ended before.
 */
static void doubt_restart(struct merge *m, struct merge_rank *r, const struct report *later)
{
	bool ended = r->report->exit && r->report->time_last_ns < later->time_first_ns;
	char at[TIME_SIZE];

	doubt(m, r, ended,
	      TEXT(m,
		   "%s pid %ju, of the same rank, started at %s, after the reload, and made none%s",
		   later->file, (uintmax_t)later->pid, unit_time(at, later->time_first_ns),
		   ended ? ": it was restarted" : ": restarted, or a helper?"));
}

void merge_after(struct merge *m, struct merge_rank *r, const struct report_set *set,
		 const struct merge_wish *wish)
{
	doubt_later_reloads(m, r);
	doubt_later_findings(m, r);
	if (r->report->exit)
		doubt_exit(m, r);
	for (size_t i = 0; i < set->reports.count; i++) {
		const struct report *other = set->reports.v[i];

		if (other == r->report || !other->start || other->start->rank != r->rank ||
		    merge_leaves_out(other, wish) || other->time_first_ns <= r->reload->time_ns)
			continue;
		doubt_restart(m, r, other);
		break;
	}
}
