/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process as data of a page; html/data.js reads it.
 *
 * Threads: one.
 */
#include "out_html.h"
#include "symbolise.h"

void html_time(struct html_page *p, const char *key, uint64_t time_ns)
{
	html_number(&p->json, key, time_ns > p->origin_ns ? time_ns - p->origin_ns : 0);
}

static void put_texts(struct html_json *j, const char *key, const struct texts *t)
{
	html_open(j, key, '[');
	for (size_t i = 0; i < t->count; i++)
		html_text(j, NULL, t->v[i]);
	html_close(j, ']');
}

static void put_numbers(struct html_json *j, const char *key, const struct pairs *list)
{
	html_open(j, key, '{');
	for (size_t i = 0; i < list->count; i++)
		html_number(j, list->v[i].key, list->v[i].number);
	html_close(j, '}');
}

/* Numbers, and text where there is one. */
static void put_mixed(struct html_json *j, const char *key, const struct pairs *list)
{
	html_open(j, key, '{');
	for (size_t i = 0; i < list->count; i++) {
		if (list->v[i].text)
			html_text(j, list->v[i].key, list->v[i].text);
		else
			html_number(j, list->v[i].key, list->v[i].number);
	}
	html_close(j, '}');
}

static void put_start(struct html_json *j, const struct report_start *s)
{
	html_open(j, "options", '{');
	for (size_t i = 0; s && i < s->options.count; i++)
		html_text(j, s->options.v[i].key, s->options.v[i].text);
	html_close(j, '}');
	if (!s) {
		html_null(j, "start");
		return;
	}
	html_open(j, "start", '{');
	html_number(j, "ppid", s->ppid);
	html_number(j, "rank", s->rank);
	html_number(j, "driver_version", s->driver_version);
	html_text(j, "host", s->host);
	html_text(j, "exe", s->exe);
	html_text(j, "argv0", s->argv0);
	html_text(j, "version", s->version);
	html_text(j, "library", s->library);
	html_text(j, "unwinder", s->unwinder);
	html_text(j, "ld_preload", s->ld_preload);
	html_close(j, '}');
}

static void put_modules(struct html_json *j, const struct report *r)
{
	html_open(j, "modules", '[');
	for (size_t i = 0; i < r->modules.count; i++) {
		html_open(j, NULL, '[');
		html_number(j, NULL, r->modules.v[i]->id);
		html_text(j, NULL, r->modules.v[i]->path);
		html_text(j, NULL, r->modules.v[i]->build_id);
		html_close(j, ']');
	}
	html_close(j, ']');
}

/* [function or null, file or null, line, inlined into the next?, module+offset] */
static void put_frame(struct html_json *j, const struct symbol_frame *f, const char *place)
{
	html_open(j, NULL, '[');
	html_text(j, NULL, f ? f->function : NULL);
	html_text(j, NULL, f ? f->file : NULL);
	html_number(j, NULL, f ? f->line : 0);
	html_bool(j, NULL, f && f->is_inlined);
	html_text(j, NULL, place);
	html_close(j, ']');
}

static void put_native(struct html_json *j, const struct report *r, const struct frame_ref *raw)
{
	const struct report_module *m = raw->module ? report_module(r, raw->module) : NULL;
	struct symbol_ref ref = {
		.path = m ? m->path : NULL,
		.build_id = m ? m->build_id : NULL,
		.offset = raw->offset,
	};
	struct symbol_frames frames;

	symbolise(&ref, &frames);
	if (!frames.count)
		put_frame(j, NULL, frames.place);
	for (size_t i = 0; i < frames.count; i++)
		put_frame(j, &frames.at[i], frames.place);
}

static void put_stacks(struct html_json *j, const struct report *r)
{
	char id[24];

	html_open(j, "stacks", '{');
	for (size_t i = 0; i < r->stacks.count; i++) {
		const struct report_stack *s = r->stacks.v[i];

		snprintf(id, sizeof(id), "%llu", (unsigned long long)s->id);
		html_open(j, id, '{');
		html_open(j, "python", '[');
		for (size_t k = 0; k < s->python_count; k++) {
			html_open(j, NULL, '[');
			html_text(j, NULL, s->python[k].file);
			html_number(j, NULL, s->python[k].line);
			html_text(j, NULL, s->python[k].function);
			html_close(j, ']');
		}
		html_close(j, ']');
		html_open(j, "native", '[');
		for (size_t k = 0; k < s->frame_count; k++)
			put_native(j, r, &s->frames[k]);
		html_close(j, ']');
		html_close(j, '}');
	}
	html_close(j, '}');
}

static void put_scope(struct html_json *j, const struct report_scope *s)
{
	html_open(j, "scope", '{');
	html_bool(j, "full", s->full);
	html_text(j, "role", s->role);
	put_texts(j, "layers", &s->layers);
	put_texts(j, "sources", &s->sources);
	html_close(j, '}');
}

static void put_reload(struct html_page *p, const struct report_reload *r)
{
	struct html_json *j = &p->json;

	html_open(j, NULL, '{');
	html_bool(j, "verify", !r->id);
	html_text(j, "verdict", verdict_names[r->verdict]);
	html_text(j, "counts_as", verdict_names[r->counts_as ? r->counts_as : r->verdict]);
	html_time(p, "t", r->time_ns);
	html_number(j, "line", r->line);
	html_number(j, "id", r->id);
	html_number(j, "published", r->published_bytes);
	html_number(j, "peak", r->shadow_peak_bytes);
	html_time(p, "begin", r->id ? r->begin_ns : r->time_ns);
	html_time(p, "end", r->id ? r->end_ns : r->time_ns);
	html_bool(j, "aborted", r->aborted);
	html_bool(j, "unsafe", r->unsafe);
	html_text(j, "why", r->why ? r->why : "");
	put_scope(j, &r->scope);
	put_numbers(j, "layers", &r->layers);
	put_numbers(j, "receipts", &r->receipts);
	html_open(j, "caches", '[');
	for (size_t i = 0; i < r->cache_count; i++) {
		html_open(j, NULL, '[');
		html_text(j, NULL, r->caches[i].name);
		html_bool(j, NULL, r->caches[i].flushed);
		html_close(j, ']');
	}
	html_close(j, ']');
	html_close(j, '}');
}

static void put_events(struct html_page *p, const struct report *r)
{
	struct html_json *j = &p->json;

	html_open(j, "events", '[');
	for (size_t i = 0; i < r->events.count; i++) {
		const struct report_event *e = r->events.v[i];

		html_open(j, NULL, '[');
		html_time(p, NULL, e->time_ns);
		html_text(j, NULL, e->event);
		html_text(j, NULL, e->what);
		html_hex(j, NULL, e->address);
		html_number(j, NULL, e->size);
		html_number(j, NULL, e->serial);
		html_close(j, ']');
	}
	html_close(j, ']');
}

/* Names of what was not seen: {key: [name, ...]}; a key's pairs need not be neighbours. */
static void put_noted(struct html_json *j, const struct pairs *noted)
{
	html_open(j, "noted", '{');
	for (size_t i = 0; i < noted->count; i++) {
		bool seen = false;

		for (size_t k = 0; k < i && !seen; k++)
			seen = same_text(noted->v[k].key, noted->v[i].key);
		if (seen)
			continue;
		html_open(j, noted->v[i].key, '[');
		for (size_t k = i; k < noted->count; k++)
			if (same_text(noted->v[k].key, noted->v[i].key))
				html_text(j, NULL, noted->v[k].text);
		html_close(j, ']');
	}
	html_close(j, '}');
}

static void put_exit(struct html_json *j, const struct report_exit *e)
{
	if (!e) {
		html_null(j, "exit");
		return;
	}
	html_open(j, "exit", '{');
	put_texts(j, "unproven", &e->unproven);
	html_bool(j, "unsafe", e->unsafe);
	html_number(j, "generation", e->generation);
	html_number(j, "findings_left_out", e->findings_left_out);
	html_number(j, "lines_lost", e->lines_lost);
	put_numbers(j, "coverage", &e->coverage);
	put_noted(j, &e->noted);
	put_mixed(j, "counters", &e->counters);
	put_texts(j, "entries", &e->entries);
	html_close(j, '}');
}

/* Lines of each type that the file has, and those that were not kept. */
static void put_counts(struct html_json *j, const char *key, const uint64_t counts[LINE_TYPE_COUNT])
{
	static const char *const names[LINE_TYPE_COUNT] = {
		"start", "module", "stack",  "finding", "event",
		"cross", "launch", "verify", "reload",	"exit",
	};

	html_open(j, key, '{');
	for (size_t i = 0; i < LINE_TYPE_COUNT; i++)
		if (counts[i])
			html_number(j, names[i], counts[i]);
	html_close(j, '}');
}

static void put_lists(struct html_page *p, const struct report *r)
{
	struct html_json *j = &p->json;

	put_modules(j, r);
	put_stacks(j, r);
	html_findings(p, r);
	html_open(j, "reloads", '[');
	for (size_t i = 0; i < r->reloads.count; i++)
		put_reload(p, r->reloads.v[i]);
	html_close(j, ']');
	put_events(p, r);
	html_open(j, "crosses", '[');
	for (size_t i = 0; i < r->crosses.count; i++) {
		html_open(j, NULL, '{');
		put_numbers(j, "reasons", &r->crosses.v[i]->reasons);
		html_close(j, '}');
	}
	html_close(j, ']');
}

void html_process(struct html_page *p, const struct report *r)
{
	struct html_json *j = &p->json;
	const char *why = report_why(r);

	html_open(j, NULL, '{');
	html_text(j, "file", r->file);
	html_number(j, "line", r->line);
	html_number(j, "pid", r->pid);
	html_time(p, "first", r->time_first_ns);
	html_time(p, "last", r->time_last_ns);
	html_text(j, "verdict", verdict_names[report_verdict(r)]);
	html_text(j, "why", why ? why : "");
	html_number(j, "refs_total", r->refs_total);
	html_bool(j, "interleaved", r->interleaved);
	put_counts(j, "lines", r->lines);
	put_counts(j, "not_kept", r->not_kept);
	put_start(j, r->start);
	put_lists(p, r);
	put_exit(j, r->exit);
	html_close(j, '}');
}
