/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of a report as text (format: arena-report(5), schema.json).
 *
 * Lines that are rare go through jansson. Refs and events come by the hundred thousand and are
 * numbers and fixed words only: they are put together here, which takes a fifth of the time. Any
 * thread, one at a time for one text.
 */
#include "reports/lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "arena/exec.h"
#include "arena/intern.h"
#include "reports/value.h"

void lines_init(void)
{
	/* Else jansson opens /dev/urandom in the middle of the host. Keys here are our own. */
	json_object_seed(SCHEMA);
}

uint64_t lines_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void lines_end(struct text *t, json_t *o)
{
	value_dump(t, o);
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
	value_set_text(to, key, value);
}

void line_start(struct text *t, const struct report_source *s, const struct identity *id)
{
	json_t *o = value_line("start"), *options = json_object();
	char exe[4096];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	exe[n > 0 ? n : 0] = '\0';
	value_set_uint(o, "time_ns", lines_now_ns());
	value_set_uint(o, "pid", (uint64_t)getpid());
	value_set_uint(o, "ppid", (uint64_t)getppid());
	value_set_text(o, "host", id->host);
	value_set_uint(o, "rank", id->rank);
	value_set_text(o, "exe", exe);
	value_set_text(o, "argv0", program_invocation_name);
	value_set_text(o, "version", s->version);
	value_set_text(o, "library", s->library);
	value_set_text(o, "unwinder", s->unwinder);
	value_set_text(o, "ld_preload", getenv("LD_PRELOAD"));
	value_set_uint(o, "driver_version", (uint64_t)s->driver_version);
	if (s->options)
		s->options(add_pair, options);
	json_object_set_new(o, "options", options);
	lines_end(t, o);
}

/* ---- stacks ---- */

void line_module(struct text *t, uint32_t number, const struct stack_module *m)
{
	json_t *o = value_line("module");

	value_set_uint(o, "pid", (uint64_t)getpid());
	value_set_uint(o, "id", number);
	value_set_text(o, "path", m->path);
	value_set_text(o, "build_id", m->build_id);
	lines_end(t, o);
}

static void put_python(struct text *t, const struct python_frame *f)
{
	text_string(t, "[");
	value_dump(t, value_bytes(interned(f->file)));
	put_uint(t, ",", f->line > 0 ? (uint64_t)f->line : 0);
	text_string(t, ",");
	value_dump(t, value_bytes(interned(f->function)));
	text_string(t, "]");
}

void line_stack(struct text *t, uint32_t id, const struct stack_lists *s)
{
	put_uint(t, "{\"schema\":", SCHEMA);
	put_uint(t, ",\"type\":\"stack\",\"pid\":", (uint64_t)getpid());
	put_uint(t, ",\"id\":", id);
	text_string(t, ",\"frames\":[");
	for (size_t i = 0; i < s->count; i++) {
		put_uint(t, i ? ",[" : "[", s->frames[i].module);
		put_hex(t, ",", s->frames[i].offset);
		text_string(t, "]");
	}
	text_string(t, "],\"python\":[");
	for (size_t i = 0; i < s->python_count; i++) {
		text_string(t, i ? "," : "");
		put_python(t, &s->python[i]);
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
	value_dump(t, name ? value_bytes(s) : json_null());
}

/* Names that the program chose: anything may be in them. */
static void put_name(struct text *t, const char *lead, uint32_t name)
{
	text_string(t, lead);
	value_dump(t, value_bytes(interned(name)));
}

static void put_slot(struct text *t, const struct finding_ref *r)
{
	put_name(t, ",\"arena\":", r->arena);
	put_name(t, ",\"slot\":", r->slot);
	put_hex(t, ",\"slot_base\":", r->slot_base);
	put_hex(t, ",\"slot_now\":", r->slot_now);
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
	if (r->table) {
		put_hex(t, ",\"table\":", r->table);
		put_uint(t, ",\"table_offset\":", r->table_offset);
	}
	put_range(t, ",\"old\":", &r->old);
	put_range(t, ",\"now\":", &r->now);
	if (r->slot)
		put_slot(t, r);
	text_string(t, "}");
}

static void set_finding_text(json_t *o, const struct finding *f)
{
	char text[2048];

	finding_text(f, text, sizeof(text));
	value_set_text(o, "text", text);
}

void line_finding(struct text *t, const struct finding *f)
{
	json_t *o = value_line("finding");

	value_set_uint(o, "pid", (uint64_t)getpid());
	value_set_uint(o, "time_ns", f->time_ns);
	value_set_hex(o, "id", f->id);
	value_set_hex(o, "key", f->key);
	value_set_text(o, "kind", finding_kind_name(f->kind));
	value_set_text(o, "severity", severity_name(finding_severity(f->kind)));
	value_set_text(o, "title", finding_title(f->kind));
	set_finding_text(o, f);
	json_object_set_new(o, "refused", json_boolean(f->refused));
	value_set_uint(o, "exec", f->exec_serial);
	value_set_hex(o, "handle", f->exec_handle);
	value_set_uint(o, "stack", f->stack);
	value_set_uint(o, "refs_total", f->refs_total);
	value_dump(t, o);
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
	put_uint(t, ",\"type\":\"event\",\"pid\":", (uint64_t)getpid());
	put_uint(t, ",\"time_ns\":", lines_now_ns());
	put_uint(t, ",\"tid\":", (uint64_t)syscall(SYS_gettid));
	put_word(t, ",\"event\":", event_kind_name(e->kind));
	put_word(t, ",\"what\":", e->what ? e->what : "");
	put_hex(t, ",\"address\":", e->address);
	put_uint(t, ",\"size\":", e->size_bytes);
	put_uint(t, ",\"serial\":", e->serial);
	put_uint(t, ",\"stack\":", e->stack);
	text_string(t, "}\n");
}

void line_launch(struct text *t, const struct report_launch *l)
{
	put_uint(t, "{\"schema\":", SCHEMA);
	put_uint(t, ",\"type\":\"launch\",\"pid\":", (uint64_t)getpid());
	put_uint(t, ",\"time_ns\":", lines_now_ns());
	put_uint(t, ",\"tid\":", (uint64_t)syscall(SYS_gettid));
	put_word(t, ",\"call\":", l->call);
	put_kernel(t, ",\"kernel\":", l->kernel);
	put_hex(t, ",\"stream\":", l->stream);
	put_uint(t, ",\"correlation\":", l->correlation);
	put_uint(t, ",\"result\":", l->result);
	text_string(t, "}\n");
}
