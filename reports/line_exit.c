/* SPDX-License-Identifier: Apache-2.0 */
/* The last line of a report: the verdict, and all that was counted. Any thread, one at a time. */
#include <stdio.h>
#include <unistd.h>

#include "arena/block.h"
#include "arena/exec.h"
#include "arena/ledger.h"
#include "reports/lines.h"
#include "reports/value.h"

static json_t *findings_by_severity(const struct report_totals *totals)
{
	json_t *o = json_object();

	for (int s = 0; s < SEVERITY_COUNT; s++)
		value_set_uint(o, severity_name((enum severity)s), totals->by_severity[s]);
	return o;
}

static json_t *findings_by_kind(const struct report_totals *totals)
{
	json_t *o = json_object();

	for (int k = 0; k < FINDING_KIND_COUNT; k++)
		value_set_uint(o, finding_kind_name((enum finding_kind)k), totals->by_kind[k]);
	return o;
}

struct gaps {
	json_t *counts, *reasons;
};

static void add_gap(void *to, const char *key, const char *text, uint64_t count, bool decisive)
{
	struct gaps *gaps = to;
	char reason[256];

	value_set_uint(gaps->counts, key, count);
	if (decisive && count) {
		snprintf(reason, sizeof(reason), "%llu %s", (unsigned long long)count, text);
		json_array_append_new(gaps->reasons, value_bytes(reason));
	}
}

static void set_coverage(json_t *o, const struct report_source *s, const char *why)
{
	struct gaps gaps = { json_object(), json_array() };

	if (why)
		json_array_append_new(gaps.reasons, value_bytes(why));
	if (report_reload_gap())
		json_array_append_new(gaps.reasons, value_bytes(report_reload_gap()));
	if (s->coverage)
		s->coverage(add_gap, &gaps);
	json_object_set_new(o, "unproven", gaps.reasons);
	json_object_set_new(o, "coverage", gaps.counts);
}

/* Where reloads stand; the verdict rests on it. */
static json_t *reload_state(void)
{
	json_t *o = json_object();
	enum reload_verdict last;
	bool any = reload_last(&last);

	json_object_set_new(o, "last", any ? value_bytes(verdict_name((enum verdict)last)) :
					     json_null());
	value_set_uint(o, "id", reload_id());
	value_set_uint(o, "generation", reload_generation());
	json_object_set_new(o, "unsafe", json_boolean(reload_unsafe()));
	json_object_set_new(o, "open", json_boolean(reload_open()));
	return o;
}

/* Whether anybody told blocks, and whether what was told fits together. */
static json_t *block_counts(void)
{
	struct block_counters c;
	json_t *o = json_object();

	block_read_counters(&c);
#define X(field) value_set_uint(o, #field, c.field)
	X(live);
	X(bytes);
	X(allocations);
	X(frees);
	X(unknown_frees);
	X(overlaps);
#undef X
	return o;
}

static json_t *ledger_counts(void)
{
	struct ledger_counters c;
	json_t *o = json_object(), *kinds = json_object();

	ledger_read_counters(&c);
#define X(field) value_set_uint(o, #field, c.field)
	X(opened);
	X(closed);
	X(live);
	X(dropped);
	X(overlaps);
	X(unknown_frees);
	X(refused_frees);
	X(invented_reservations);
#undef X
	for (int k = 0; k < RANGE_KIND_COUNT; k++) {
		json_t *kind = json_object();

		value_set_uint(kind, "live", c.live_by_kind[k]);
		value_set_uint(kind, "bytes", c.bytes_by_kind[k]);
		json_object_set_new(kinds, range_kind_name((enum range_kind)k), kind);
	}
	json_object_set_new(o, "kinds", kinds);
	json_object_set_new(o, "blocks", block_counts());
	return o;
}

static json_t *graph_counts(void)
{
	struct exec_counters c;
	json_t *o = json_object(), *kinds = json_object();

	exec_read_counters(&c);
#define X(field) value_set_uint(o, #field, c.field)
	X(execs_opened);
	X(execs_live);
	X(nodes);
	X(nodes_live);
	X(refs);
	X(refs_exact);
	X(refs_struct);
	X(refs_suspect);
	X(births);
	X(launches_judged);
	X(launches_stale);
	X(launches_refused);
	X(dropped);
	X(bytes);
#undef X
	for (int k = 0; k < NODE_KIND_COUNT; k++)
		value_set_uint(kinds, node_kind_name((enum node_kind)k), c.nodes_by_kind[k]);
	json_object_set_new(o, "nodes_by_kind", kinds);
	return o;
}

static void add_text(void *to, const char *key, const char *value)
{
	value_set_text(to, key, value);
}

static void add_count(void *to, const char *group, const char *key, uint64_t count)
{
	json_t *o = to;

	if (group) {
		if (!json_object_get(to, group))
			json_object_set_new(to, group, json_object());
		o = json_object_get(to, group);
	}
	value_set_uint(o, key, count);
}

static json_t *cupti_facts(const struct report_source *s)
{
	json_t *o = json_object();

	if (s->cupti)
		s->cupti(add_text, add_count, o);
	json_object_set_new(o, "cross", line_cross_sums());
	return o;
}

static void add_item(void *to, const char *list, const char *item)
{
	json_t *array = json_object_get(to, list);

	if (!array) {
		array = json_array();
		json_object_set_new(to, list, array);
	}
	json_array_append_new(array, value_bytes(item));
}

void line_exit(struct text *t, const struct report_source *s, const struct report_totals *totals,
	       enum verdict verdict, const char *why)
{
	json_t *o = value_line("exit"), *notes = json_object();
	bool fails = verdict == VERDICT_FAIL || (verdict == VERDICT_UNPROVEN && s->unproven_fails);

	value_set_uint(o, "time_ns", lines_now_ns());
	value_set_uint(o, "pid", (uint64_t)getpid());
	value_set_text(o, "verdict", verdict_name(verdict));
	value_set_text(o, "counts_as", fails ? "fail" : "pass");
	json_object_set_new(o, "findings", findings_by_severity(totals));
	json_object_set_new(o, "findings_by_kind", findings_by_kind(totals));
	value_set_uint(o, "findings_repeated", totals->findings_repeated);
	value_set_uint(o, "findings_left_out", totals->findings_left_out);
	value_set_uint(o, "lines_lost", totals->lines_lost);
	set_coverage(o, s, why);
	json_object_set_new(o, "reload", reload_state());
	json_object_set_new(o, "ledger", ledger_counts());
	json_object_set_new(o, "graphs", graph_counts());
	json_object_set_new(o, "cupti", cupti_facts(s));
	json_object_set_new(o, "noted", notes);
	if (s->notes)
		s->notes(add_item, notes);
	json_object_set_new(o, "entries", json_array());
	if (s->entries)
		s->entries(add_item, o);
	lines_end(t, o);
}
