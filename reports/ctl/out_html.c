/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `arenactl report --format=html`: one page that needs nothing else. What it looks like is in
 * html/; here the data of a set is written into it.
 *
 * Threads: one.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "out.h"
#include "out_html.h"
#include "read.h"
#include "symbolise.h"
#include "term.h"
#include "version.h"

struct advice {
	const char *kind, *text;
};
static const struct advice advice[] = {
#define ADVICE(kind, text) { kind, text },
#include "advice.def"
#undef ADVICE
};

struct reason {
	const char *key, *text;
	bool decisive;
};
static const struct reason reasons[] = {
#define COVERAGE(id, key, decisive, text) { key, text, decisive },
#include "shim/coverage.def"
#undef COVERAGE
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void put_words(struct html_json *j)
{
	html_open(j, "advice", '{');
	for (size_t i = 0; i < sizeof(advice) / sizeof(advice[0]); i++)
		html_text(j, advice[i].kind, advice[i].text);
	html_close(j, '}');
	html_open(j, "coverage", '{');
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		html_open(j, reasons[i].key, '[');
		html_bool(j, NULL, reasons[i].decisive);
		html_text(j, NULL, reasons[i].text);
		html_close(j, ']');
	}
	html_close(j, '}');
}

/* What could not be read; it was said on stderr, too. */
static void put_problems(struct html_json *j, const struct read_result *r)
{
	html_open(j, "problems", '{');
	html_number(j, "files_unreadable", r->files_unreadable);
	html_number(j, "truncated", r->truncated);
	html_number(j, "lines_bad", r->lines_bad);
	html_number(j, "lines_unknown", r->lines_unknown);
	html_number(j, "lost_bytes", r->lost_bytes);
	html_number(j, "problems", r->problems);
	html_close(j, '}');
}

/* File names, each once, in the order of the reports. */
static void put_inputs(struct html_json *j, const struct report_set *set)
{
	html_open(j, "inputs", '[');
	for (size_t i = 0; i < set->reports.count; i++)
		if (!i || strcmp(set->reports.v[i]->file, set->reports.v[i - 1]->file))
			html_text(j, NULL, set->reports.v[i]->file);
	html_close(j, ']');
}

static uint64_t first_time(const struct report_set *set)
{
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < set->reports.count; i++) {
		uint64_t t = set->reports.v[i]->time_first_ns;

		if (t && t < first)
			first = t;
	}
	return first == UINT64_MAX ? 0 : first;
}

static void put_head(struct html_page *p, const struct report_set *set)
{
	struct html_json *j = &p->json;
	char made[TIME_SIZE];

	html_number(j, "format", 1);
	html_text(j, "tool", CTL_VERSION);
	html_text(j, "made", unit_time(made, now_ns()));
	html_text(j, "verdict", verdict_names[set_verdict(set)]);
	html_number(j, "origin_ms", p->origin_ns / 1000000);
	html_number(j, "findings_filtered", p->chosen->left_out);
	put_inputs(j, set);
	put_problems(j, set->read);
	put_words(j);
}

static void put_data(struct html_page *p, const struct report_set *set)
{
	struct html_json *j = &p->json;

	html_open(j, NULL, '{');
	put_head(p, set);
	html_open(j, "processes", '[');
	for (size_t i = 0; i < set->reports.count; i++) {
		progress("writing", i, set->reports.count);
		html_process(p, set->reports.v[i]);
	}
	progress_end();
	html_close(j, ']');
	html_number(j, "refs_left_out", p->refs_left_out);
	html_open(j, "names", '{');
	for (size_t i = 0; i < p->names.count; i++)
		html_text(j, p->names.items[i], symbolise_name(p->names.items[i]));
	html_close(j, '}');
	html_close(j, '}');
}

static int print(const struct report_set *set, const struct selection *chosen, const struct args *a,
		 FILE *to)
{
	struct html_page p = {
		.chosen = chosen,
		.origin_ns = first_time(set),
		.texts = { .hash = hash_text, .same = same_text },
		.names = { .hash = hash_text, .same = same_text },
	};

	fputs(html_before, to);
	p.json.to = html_escaped(to);
	if (p.json.to) {
		put_data(&p, set);
		fclose(p.json.to);
	}
	fputs(html_after, to);
	dictionary_free(&p.texts);
	dictionary_free(&p.names);
	return p.json.to ? 0 : STATUS_UNREADABLE;
}

const struct output output_html = {
	.name = "html",
	.limits = { .refs = HTML_REFS_MAX, .events = HTML_EVENTS_MAX },
	.print = print,
};
