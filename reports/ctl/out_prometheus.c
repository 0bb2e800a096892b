/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Prometheus text format (version 0.0.4), as node_exporter's textfile collector reads it. Each
 * process is a label set; what Prometheus adds up, it adds up itself. One thread.
 */
#include "metrics.h"
#include "out.h"
#include "read.h"
#include "term.h"

#include <inttypes.h>
#include <string.h>

/* What labels a sample besides those of the process; value: one number a process. */
struct family {
	const char *name, *type, *help;
	void (*samples)(const struct family *f, const struct process *p, FILE *to);
	uint64_t (*value)(const struct process *p);
};

/* In a label only these three need an escape; a report's bytes that are no UTF-8 must not go out.
 */
static void print_label(FILE *to, const char *name, const char *value)
{
	char clean[1024];

	term_clean(clean, sizeof(clean), value);
	fprintf(to, "%s=\"", name);
	for (const char *c = clean; *c; c++) {
		if (*c == '"' || *c == '\\')
			fputc('\\', to);
		fputc(*c, to);
	}
	fputc('"', to);
}

static void print_sample(const struct family *f, const struct process *p, FILE *to,
			 const struct counted *label, const char *label_name)
{
	fprintf(to, "%s{", f->name);
	print_label(to, "host", p->host);
	fprintf(to, ",rank=\"%" PRIu64 "\",pid=\"%" PRIu64 "\"", p->rank, p->pid);
	if (label_name) {
		fputc(',', to);
		print_label(to, label_name, label->word);
	}
	fprintf(to, "} %" PRIu64 "\n", label->count);
}

static void one_value(const struct family *f, const struct process *p, FILE *to)
{
	struct counted sample = { NULL, f->value(p) };

	print_sample(f, p, to, &sample, NULL);
}

static uint64_t running(const struct process *p)
{
	return !p->has_ended;
}

static uint64_t generation(const struct process *p)
{
	return p->generation;
}

static uint64_t is_unsafe(const struct process *p)
{
	return p->is_unsafe;
}

static uint64_t lines_lost(const struct process *p)
{
	return p->lines_lost;
}

/* All three, so that a rule can rest on one of them being 0. */
static void verdicts(const struct family *f, const struct process *p, FILE *to)
{
	enum verdict now = metrics_process_verdict(p);

	for (enum verdict v = VERDICT_PASS; v <= VERDICT_UNPROVEN; v++) {
		struct counted sample = { (char *)verdict_names[v], v == now };

		print_sample(f, p, to, &sample, "verdict");
	}
}

static void severities(const struct family *f, const struct process *p, FILE *to)
{
	for (size_t s = 0; s < SEVERITY_COUNT; s++) {
		struct counted sample = { (char *)severity_names[s], p->findings[s] };

		print_sample(f, p, to, &sample, "severity");
	}
}

static void reloads(const struct family *f, const struct process *p, FILE *to)
{
	for (enum verdict v = VERDICT_PASS; v <= VERDICT_UNPROVEN; v++) {
		struct counted sample = { (char *)verdict_names[v], p->reloads[v] };

		print_sample(f, p, to, &sample, "verdict");
	}
}

static void kinds(const struct family *f, const struct process *p, FILE *to)
{
	for (size_t i = 0; i < p->kinds.count; i++)
		print_sample(f, p, to, &p->kinds.v[i], "kind");
}

static void coverage(const struct family *f, const struct process *p, FILE *to)
{
	for (size_t i = 0; i < p->coverage.count; i++)
		print_sample(f, p, to, &p->coverage.v[i], "reason");
}

static const struct family families[] = {
	{ "arena_process_running", "gauge", "1 until the report has its last line.", one_value,
	  running },
	{ "arena_verdict", "gauge", "1 for the verdict that holds; a running process is unproven.",
	  verdicts, NULL },
	{ "arena_generation", "gauge", "Reloads that passed.", one_value, generation },
	{ "arena_unsafe", "gauge", "1 after a failed reload, until a full one passes.", one_value,
	  is_unsafe },
	{ "arena_findings_total", "counter", "Findings by severity.", severities, NULL },
	{ "arena_findings_by_kind_total", "counter", "Findings by kind.", kinds, NULL },
	{ "arena_reloads_total", "counter", "Reloads by verdict.", reloads, NULL },
	{ "arena_unseen_total", "counter", "What was not seen, by reason; known at the end.",
	  coverage, NULL },
	{ "arena_report_lines_lost_total", "counter", "Report lines that could not be written.",
	  one_value, lines_lost },
};

void prometheus_print(const struct metrics *m, bool is_final, FILE *to)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		const struct family *f = &families[i];

		fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, f->type);
		for (size_t k = 0; k < m->count; k++)
			f->samples(f, &m->v[k], to);
	}
	fprintf(to,
		"# HELP arena_report_time_seconds Time of the last line that was read.\n"
		"# TYPE arena_report_time_seconds gauge\n"
		"arena_report_time_seconds %" PRIu64 ".%03" PRIu64 "\n"
		"# HELP arena_report_unread_total Lines that could not be read.\n"
		"# TYPE arena_report_unread_total counter\n"
		"arena_report_unread_total %" PRIu64 "\n"
		"# HELP arena_run_finished 1 when the metrics are final.\n"
		"# TYPE arena_run_finished gauge\n"
		"arena_run_finished %d\n",
		m->time_ns / 1000000000, m->time_ns / 1000000 % 1000, m->unread, is_final);
}

static int print(const struct report_set *set, const struct selection *chosen, const struct args *a,
		 FILE *to)
{
	struct metrics m = { 0 };
	bool has_ended = true;

	metrics_set(&m, set);
	m.unread = set->read ? set->read->problems : 0;
	for (size_t i = 0; i < m.count; i++)
		has_ended &= m.v[i].has_ended;
	prometheus_print(&m, has_ended, to);
	metrics_free(&m);
	return STATUS_PASS;
}

const struct output output_prometheus = {
	.name = "prometheus",
	.print = print,
};
