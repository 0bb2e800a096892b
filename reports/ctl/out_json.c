/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole set as one JSON object: integers in base units, addresses as hex strings.
 *
 * Threads: one.
 */
#include <inttypes.h>

#include "out.h"
#include "read.h"
#include "stack.h"
#include "symbolise.h"
#include "term.h"

#define TEXT_MAX 1024

static void key(FILE *to, bool first, const char *name)
{
	fprintf(to, "%s\"%s\":", first ? "" : ",", name);
}

static void put_text(FILE *to, const char *name, const char *text)
{
	key(to, false, name);
	if (text)
		term_json(to, text);
	else
		fputs("null", to);
}

static void put_uint(FILE *to, const char *name, uint64_t n)
{
	key(to, false, name);
	fprintf(to, "%" PRIu64, n);
}

static void put_hex(FILE *to, const char *name, uint64_t n)
{
	key(to, false, name);
	fprintf(to, "\"0x%" PRIx64 "\"", n);
}

static void put_bool(FILE *to, const char *name, bool value)
{
	key(to, false, name);
	fputs(value ? "true" : "false", to);
}

static void put_pairs(FILE *to, const char *name, const struct pairs *p)
{
	key(to, false, name);
	fputc('{', to);
	for (size_t i = 0; i < p->count; i++) {
		fputs(i ? "," : "", to);
		term_json(to, p->v[i].key);
		fprintf(to, ":%" PRIu64, p->v[i].number);
	}
	fputc('}', to);
}

static void put_texts(FILE *to, const char *name, const struct texts *t)
{
	key(to, false, name);
	fputc('[', to);
	for (size_t i = 0; i < t->count; i++) {
		fputs(i ? "," : "", to);
		term_json(to, t->v[i]);
	}
	fputc(']', to);
}

static void put_stack(FILE *to, const char *name, const struct report *r, uint64_t id)
{
	char text[TEXT_MAX];

	put_text(to, name, id ? stack_brief(r, id, text, sizeof(text)) : NULL);
}

static void put_ref(FILE *to, const struct report *r, const struct report_ref *ref)
{
	fprintf(to, "{\"exec\":%" PRIu64, ref->exec);
	put_uint(to, "node", ref->node);
	put_text(to, "node_kind", ref->node_kind);
	put_text(to, "kernel", ref->kernel);
	put_text(to, "name", ref->kernel ? symbolise_name(ref->kernel) : NULL);
	put_uint(to, "param", ref->param);
	put_uint(to, "offset", ref->offset);
	put_text(to, "confidence", ref->confidence);
	put_text(to, "reason", ref->reason);
	put_hex(to, "value", ref->value);
	if (ref->table) {
		put_hex(to, "table", ref->table);
		put_uint(to, "table_offset", ref->table_offset);
	}
	put_stack(to, "old_allocated", r, ref->old ? ref->old->stack_open : 0);
	put_stack(to, "old_freed", r, ref->old ? ref->old->stack_close : 0);
	put_stack(to, "new_allocated", r, ref->now ? ref->now->stack_open : 0);
	fputc('}', to);
}

static const char *const origins[] = {
	[ORIGIN_LAUNCH] = "finding",
	[ORIGIN_VERIFY] = "verify",
	[ORIGIN_RELOAD] = "reload",
};

static void put_finding(FILE *to, const struct selected *s)
{
	const struct report_finding *f = s->finding;
	char text[TEXT_MAX];

	fprintf(to, "{\"id\":\"0x%" PRIx64 "\"", f->id);
	put_text(to, "kind", f->kind);
	put_text(to, "severity", severity_names[f->severity]);
	put_text(to, "title", f->title);
	put_text(to, "text", f->text);
	put_text(to, "subject", finding_subject(f, text, sizeof(text)));
	put_text(to, "layer", finding_layer(f));
	put_hex(to, "old", finding_old(f));
	put_hex(to, "new", finding_now(f));
	put_uint(to, "size", finding_size(f));
	put_uint(to, "execs", finding_execs(f));
	put_text(to, "origin", origins[f->origin]);
	put_uint(to, "reload", f->reload);
	put_bool(to, "refused", f->refused);
	put_bool(to, "inferred", f->inferred);
	put_uint(to, "times", f->occurrences);
	put_text(to, "file", s->report->file);
	put_uint(to, "line", f->line);
	put_uint(to, "pid", s->report->pid);
	put_uint(to, "time_ns", f->time_ns);
	put_stack(to, "old_allocated", s->report, finding_old_stack(f));
	put_stack(to, "new_allocated", s->report, finding_now_stack(f));
	put_uint(to, "refs_total", f->refs_total);
	key(to, false, "refs");
	fputc('[', to);
	for (size_t i = 0; i < f->refs_count; i++) {
		fputs(i ? "," : "", to);
		put_ref(to, s->report, &f->refs[i]);
	}
	fputs("]}", to);
}

static void put_process(FILE *to, const struct report *r)
{
	static const struct pairs none;
	static const struct texts nothing;

	fputs("{\"file\":", to);
	term_json(to, r->file);
	put_uint(to, "pid", r->pid);
	put_uint(to, "rank", r->start ? r->start->rank : 0);
	put_text(to, "host", r->start ? r->start->host : NULL);
	put_text(to, "exe", r->start ? r->start->exe : NULL);
	put_text(to, "version", r->start ? r->start->version : NULL);
	put_text(to, "verdict", verdict_names[report_verdict(r)]);
	put_text(to, "why", report_why(r));
	put_bool(to, "finished", r->exit);
	put_bool(to, "unsafe", r->exit && r->exit->unsafe);
	put_uint(to, "generation", r->exit ? r->exit->generation : 0);
	put_uint(to, "reloads", r->lines[LINE_RELOAD]);
	put_uint(to, "findings", r->findings.count);
	put_uint(to, "findings_left_out", r->exit ? r->exit->findings_left_out : 0);
	put_uint(to, "findings_not_kept", r->not_kept[LINE_FINDING]);
	put_uint(to, "lines_lost", r->exit ? r->exit->lines_lost : 0);
	put_uint(to, "refs_total", r->refs_total);
	put_bool(to, "interleaved", r->interleaved);
	put_texts(to, "unproven", r->exit ? &r->exit->unproven : &nothing);
	put_pairs(to, "coverage", r->exit ? &r->exit->coverage : &none);
	fputc('}', to);
}

static void put_read(FILE *to, const struct read_result *r)
{
	fprintf(to, ",\"read\":{\"files\":%" PRIu64, r->files);
	put_uint(to, "files_unreadable", r->files_unreadable);
	put_uint(to, "lines", r->lines);
	put_uint(to, "lines_bad", r->lines_bad);
	put_uint(to, "lines_unknown", r->lines_unknown);
	put_uint(to, "truncated", r->truncated);
	put_uint(to, "lost_bytes", r->lost_bytes);
	fputs("}", to);
}

static int print(const struct report_set *set, const struct selection *chosen, const struct args *a,
		 FILE *to)
{
	fprintf(to, "{\"schema\":1,\"verdict\":\"%s\"", verdict_names[set_verdict(set)]);
	put_read(to, set->read);
	fputs(",\n\"processes\":[", to);
	for (size_t i = 0; i < set->reports.count; i++) {
		fputs(i ? ",\n" : "\n", to);
		put_process(to, set->reports.v[i]);
	}
	fputs("],\n\"findings\":[", to);
	for (size_t i = 0; i < chosen->count; i++) {
		fputs(i ? ",\n" : "\n", to);
		put_finding(to, &chosen->v[i]);
	}
	fprintf(to, "],\n\"filtered\":%zu}\n", chosen->left_out);
	return 0;
}

const struct output output_json = { .name = "json", .print = print };
