/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of a report as text (format: arena-report(5), schema.json).
 *
 * Lines that are rare go through jansson. Refs and events come by the hundred thousand and are
 * numbers and fixed words only: they are put together here, which takes a tenth of the time. The
 * caller serialises.
 */
#include "reports/lines.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "arena/exec.h"
#include "arena/intern.h"
#include "arena/ledger.h"

#define SCHEMA 1

/* "0x" and 16 digits. */
#define HEX_BYTES 19

void lines_init(void)
{
	/* Else jansson opens /dev/urandom in the middle of the host. Keys here are our own. */
	json_object_seed(SCHEMA);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- values: a NULL value (no memory) leaves its key out ---- */

/* Paths and names come as bytes; what is not UTF-8 is shown byte by byte as '?'. */
static json_t *json_bytes(const char *s)
{
	json_t *value = json_string(s ? s : "");
	char *copy;

	if (value)
		return value;
	copy = strdup(s);
	if (!copy)
		return NULL;
	for (char *c = copy; *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	value = json_string(copy);
	free(copy);
	return value;
}

static void set_text(json_t *o, const char *key, const char *value)
{
	json_object_set_new(o, key, json_bytes(value));
}

static void set_number(json_t *o, const char *key, uint64_t value)
{
	json_object_set_new(o, key, json_integer((json_int_t)value));
}

static void set_hex(json_t *o, const char *key, uint64_t value)
{
	char hex[HEX_BYTES];

	snprintf(hex, sizeof(hex), "0x%llx", (unsigned long long)value);
	set_text(o, key, hex);
}

static json_t *line_begin(const char *type)
{
	json_t *o = json_object();

	set_number(o, "schema", SCHEMA);
	set_text(o, "type", type);
	return o;
}

static int append(const char *bytes, size_t count, void *to)
{
	text_add(to, bytes, count);
	return 0;
}

static void dump(struct text *t, json_t *o)
{
	if (json_dump_callback(o, append, t, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
		t->failed = true;
	json_decref(o);
}

static void line_end(struct text *t, json_t *o)
{
	dump(t, o);
	text_add(t, "\n", 1);
}

/* ---- the same by hand: what leads up to the value, then the value ---- */

static void put_uint(struct text *t, const char *lead, uint64_t value)
{
	text_string(t, lead);
	text_uint(t, value);
}

static void put_hex(struct text *t, const char *lead, uint64_t value)
{
	text_string(t, lead);
	text_add(t, "\"", 1);
	text_hex(t, value);
	text_add(t, "\"", 1);
}

/* @param word needs no escapes. */
static void put_word(struct text *t, const char *lead, const char *word)
{
	text_string(t, lead);
	text_add(t, "\"", 1);
	text_string(t, word);
	text_add(t, "\"", 1);
}

/* ---- start ---- */

static void add_pair(void *to, const char *key, const char *value)
{
	set_text(to, key, value);
}

void line_start(struct text *t, const struct report_source *s, const struct identity *id)
{
	json_t *o = line_begin("start"), *options = json_object();
	char exe[4096];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	exe[n > 0 ? n : 0] = '\0';
	set_number(o, "time_ns", now_ns());
	set_number(o, "pid", (uint64_t)getpid());
	set_number(o, "ppid", (uint64_t)getppid());
	set_text(o, "host", id->host);
	set_number(o, "rank", id->rank);
	set_text(o, "exe", exe);
	set_text(o, "argv0", program_invocation_name);
	set_text(o, "version", s->version);
	set_text(o, "library", s->library);
	set_text(o, "unwinder", s->unwinder);
	set_text(o, "ld_preload", getenv("LD_PRELOAD"));
	set_number(o, "driver_version", (uint64_t)s->driver_version);
	if (s->options)
		s->options(add_pair, options);
	json_object_set_new(o, "options", options);
	line_end(t, o);
}

/* ---- stacks ---- */

void line_module(struct text *t, uint32_t number, const struct stack_module *m)
{
	json_t *o = line_begin("module");

	set_number(o, "id", number);
	set_text(o, "path", m->path);
	set_text(o, "build_id", m->build_id);
	line_end(t, o);
}

void line_stack(struct text *t, uint32_t id, const struct stack_frame *frames, size_t count)
{
	put_uint(t, "{\"schema\":", SCHEMA);
	put_uint(t, ",\"type\":\"stack\",\"id\":", id);
	text_string(t, ",\"frames\":[");
	for (size_t i = 0; i < count; i++) {
		put_uint(t, i ? ",[" : "[", frames[i].module);
		put_hex(t, ",", frames[i].offset);
		text_string(t, "]");
	}
	text_string(t, "]}\n");
}

/* ---- findings ---- */

static void put_range(struct text *t, const char *lead, const struct finding_range *r)
{
	text_string(t, lead);
	if (!r->base) {
		text_string(t, "null");
		return;
	}
	put_hex(t, "{\"base\":", r->base);
	put_uint(t, ",\"size\":", r->size_bytes);
	put_uint(t, ",\"generation\":", r->generation);
	put_word(t, ",\"kind\":", range_kind_name(r->kind));
	put_uint(t, ",\"stack_open\":", r->stack_open);
	put_uint(t, ",\"stack_close\":", r->stack_close);
	text_string(t, "}");
}

/* Mangled names need no escapes; one that does comes from outside of C and C++. */
static void put_kernel(struct text *t, const char *lead, uint32_t name)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "_.$@";
	const char *s = interned(name);

	if (name && !s[strspn(s, plain)]) {
		put_word(t, lead, s);
		return;
	}
	text_string(t, lead);
	dump(t, name ? json_bytes(s) : json_null());
}

static void put_ref(struct text *t, const struct finding_ref *r)
{
	put_uint(t, "{\"exec\":", r->exec_serial);
	put_uint(t, ",\"node\":", r->node);
	put_word(t, ",\"node_kind\":", node_kind_name((enum node_kind)r->node_kind));
	put_kernel(t, ",\"kernel\":", r->name);
	put_uint(t, ",\"param\":", r->param);
	put_uint(t, ",\"offset\":", r->offset);
	put_word(t, ",\"confidence\":", confidence_name((enum confidence)r->confidence));
	put_word(t, ",\"reason\":", stale_reason_name((enum stale_reason)r->reason));
	put_hex(t, ",\"value\":", r->value);
	put_range(t, ",\"old\":", &r->old);
	put_range(t, ",\"now\":", &r->now);
	text_string(t, "}");
}

static void set_finding_text(json_t *o, const struct finding *f)
{
	char text[2048];

	finding_text(f, text, sizeof(text));
	set_text(o, "text", text);
}

void line_finding(struct text *t, const struct finding *f)
{
	json_t *o = line_begin("finding");

	set_number(o, "time_ns", f->time_ns);
	set_hex(o, "id", f->id);
	set_hex(o, "key", f->key);
	set_text(o, "kind", finding_kind_name(f->kind));
	set_text(o, "severity", severity_name(finding_severity(f->kind)));
	set_text(o, "title", finding_title(f->kind));
	set_finding_text(o, f);
	json_object_set_new(o, "refused", json_boolean(f->refused));
	set_number(o, "exec", f->exec_serial);
	set_hex(o, "handle", f->exec_handle);
	set_number(o, "stack", f->stack);
	set_number(o, "refs_total", f->refs_total);
	dump(t, o);
	if (t->failed)
		return;
	t->used--;	/* the brace: refs follow */
	text_string(t, ",\"refs\":[");
	for (uint32_t i = 0; i < f->refs_count; i++) {
		if (i)
			text_string(t, ",");
		put_ref(t, &f->refs[i]);
	}
	text_string(t, "]}\n");
}

/* ---- events ---- */

void line_event(struct text *t, const struct event *e)
{
	put_uint(t, "{\"schema\":", SCHEMA);
	put_uint(t, ",\"type\":\"event\",\"time_ns\":", now_ns());
	put_uint(t, ",\"tid\":", (uint64_t)syscall(SYS_gettid));
	put_word(t, ",\"event\":", event_kind_name(e->kind));
	put_word(t, ",\"what\":", e->what ? e->what : "");
	put_hex(t, ",\"address\":", e->address);
	put_uint(t, ",\"size\":", e->size_bytes);
	put_uint(t, ",\"serial\":", e->serial);
	put_uint(t, ",\"stack\":", e->stack);
	text_string(t, "}\n");
}

/* ---- exit ---- */

static json_t *findings_by_severity(const struct report_totals *totals)
{
	json_t *o = json_object();
	uint64_t counts[SEVERITY_COUNT] = { 0 };

	for (int k = 0; k < FINDING_KIND_COUNT; k++)
		counts[finding_severity((enum finding_kind)k)] += totals->by_kind[k];
	for (int s = 0; s < SEVERITY_COUNT; s++)
		set_number(o, severity_name((enum severity)s), counts[s]);
	return o;
}

static json_t *findings_by_kind(const struct report_totals *totals)
{
	json_t *o = json_object();

	for (int k = 0; k < FINDING_KIND_COUNT; k++)
		set_number(o, finding_kind_name((enum finding_kind)k), totals->by_kind[k]);
	return o;
}

struct gaps {
	json_t *counts, *reasons;
};

static void add_gap(void *to, const char *key, const char *text, uint64_t count, bool decisive)
{
	struct gaps *gaps = to;
	char reason[256];

	set_number(gaps->counts, key, count);
	if (decisive && count) {
		snprintf(reason, sizeof(reason), "%llu %s", (unsigned long long)count, text);
		json_array_append_new(gaps->reasons, json_bytes(reason));
	}
}

static void set_coverage(json_t *o, const struct report_source *s, const char *why)
{
	struct gaps gaps = { json_object(), json_array() };

	if (why)
		json_array_append_new(gaps.reasons, json_bytes(why));
	if (s->coverage)
		s->coverage(add_gap, &gaps);
	json_object_set_new(o, "unproven", gaps.reasons);
	json_object_set_new(o, "coverage", gaps.counts);
}

static json_t *ledger_counts(void)
{
	struct ledger_counters c;
	json_t *o = json_object(), *kinds = json_object();

	ledger_read_counters(&c);
#define X(field) set_number(o, #field, c.field);
	X(opened) X(closed) X(live) X(dropped) X(overlaps) X(unknown_frees) X(refused_frees)
	X(invented_reservations)
#undef X
	for (int k = 0; k < RANGE_KIND_COUNT; k++) {
		json_t *kind = json_object();

		set_number(kind, "live", c.live_by_kind[k]);
		set_number(kind, "bytes", c.bytes_by_kind[k]);
		json_object_set_new(kinds, range_kind_name((enum range_kind)k), kind);
	}
	json_object_set_new(o, "kinds", kinds);
	return o;
}

static json_t *graph_counts(void)
{
	struct exec_counters c;
	json_t *o = json_object(), *kinds = json_object();

	exec_read_counters(&c);
#define X(field) set_number(o, #field, c.field);
	X(execs_opened) X(execs_live) X(nodes) X(refs) X(refs_exact) X(refs_struct) X(refs_suspect)
	X(births) X(launches_judged) X(launches_stale) X(launches_refused) X(dropped) X(bytes)
#undef X
	for (int k = 0; k < NODE_KIND_COUNT; k++)
		set_number(kinds, node_kind_name((enum node_kind)k), c.nodes_by_kind[k]);
	json_object_set_new(o, "nodes_by_kind", kinds);
	return o;
}

static void add_item(void *to, const char *list, const char *item)
{
	json_t *array = json_object_get(to, list);

	if (!array) {
		array = json_array();
		json_object_set_new(to, list, array);
	}
	json_array_append_new(array, json_bytes(item));
}

void line_exit(struct text *t, const struct report_source *s, const struct report_totals *totals,
	       enum verdict verdict, const char *why)
{
	json_t *o = line_begin("exit"), *notes = json_object();

	set_number(o, "time_ns", now_ns());
	set_number(o, "pid", (uint64_t)getpid());
	set_text(o, "verdict", verdict_name(verdict));
	json_object_set_new(o, "findings", findings_by_severity(totals));
	json_object_set_new(o, "findings_by_kind", findings_by_kind(totals));
	set_number(o, "findings_repeated", totals->findings_repeated);
	set_number(o, "findings_left_out", totals->findings_left_out);
	set_number(o, "lines_lost", totals->lines_lost);
	set_coverage(o, s, why);
	json_object_set_new(o, "ledger", ledger_counts());
	json_object_set_new(o, "graphs", graph_counts());
	json_object_set_new(o, "noted", notes);
	if (s->notes)
		s->notes(add_item, notes);
	json_object_set_new(o, "entries", json_array());
	if (s->entries)
		s->entries(add_item, o);
	line_end(t, o);
}
