/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of this process: which lines there are, and when.
 *
 * Everything below report_source is guarded by one mutex; no function calls the driver or the
 * application, except the callbacks of the source. The first line is "start", the last "exit"; a
 * stack and the modules it needs are written before the first line that refers to them; a finding
 * is in the file when report_finding() returns. A thread that comes in again from below (the host's
 * malloc may do anything) loses its line instead of waiting for itself.
 *
 * Any thread. After fork() the child starts anew (report_forget).
 */
#include "reports/write.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "arena/atomics.h"
#include "arena/slab.h"
#include "reports/lines.h"
#include "reports/name.h"
#include "reports/sink.h"

/* Open addressing, at most a third full. */
#define KEY_SLOTS (1u << 15)

static const struct report_source *source;
/* Constant after report_init(). */
static struct identity identity;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool inside;

/* ---- guarded by the lock ---- */
static struct sink sink;
static struct text line;
static bool started, exited, told_late;
static struct report_totals totals;
static uint64_t keys[KEY_SLOTS];
static uint8_t stacks_written[STACK_COUNT_MAX / 8];
static uint8_t modules_written[STACK_MODULE_MAX / 8];

/* Why the verdict cannot be "pass"; set once, read by anybody. */
static const char *_Atomic unproven;
/* Errors found; what the verdict rests on is readable without the lock. */
static counter_t errors;

const char *verdict_name(enum verdict v)
{
	static const char *const names[] = { "pass", "fail", "unproven" };

	return names[v];
}

/* @return false when there is no report in this process, or this very thread writes already. */
static bool enter(void)
{
	if (!source || inside)
		return false;
	inside = true;
	pthread_mutex_lock(&lock);
	return true;
}

static void leave(void)
{
	pthread_mutex_unlock(&lock);
	inside = false;
}

/* ---- lines ---- */

static void flush_line(void)
{
	if (line.failed)
		sink.lost++;
	else
		sink_write(&sink, line.bytes, line.used);
	text_clear(&line);
}

static void write_start(void)
{
	if (started)
		return;
	started = true;
	line_start(&line, source, &identity);
	flush_line();
}

/* @return true the first time for a valid number. */
static bool first_time(uint8_t *bits, uint32_t number, uint32_t max)
{
	uint8_t bit = (uint8_t)(1u << (number % 8));

	if (number == 0 || number >= max || (bits[number / 8] & bit))
		return false;
	bits[number / 8] |= bit;
	return true;
}

static void write_module(uint32_t number)
{
	const struct stack_module *m;

	if (!source->stack_module || !first_time(modules_written, number, STACK_MODULE_MAX))
		return;
	m = source->stack_module(number);
	if (!m)
		return;
	line_module(&line, number, m);
	flush_line();
}

static void write_stack(uint32_t id)
{
	struct stack_lists s = { .count = 0 };

	if (!source->stack_frames || !first_time(stacks_written, id, STACK_COUNT_MAX))
		return;
	s.count = source->stack_frames(id, s.frames, STACK_DEPTH_MAX);
	if (source->stack_python)
		s.python_count = source->stack_python(id, s.python, STACK_PYTHON_MAX);
	for (size_t i = 0; i < s.count; i++)
		write_module(s.frames[i].module);
	line_stack(&line, id, &s);
	flush_line();
}

/* ---- findings ---- */

/* @return false when @key was seen. A full table takes every key for new. */
static bool new_key(uint64_t key)
{
	uint32_t i = (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 49);

	key |= !key;	/* 0 marks an empty slot */
	while (keys[i]) {
		if (keys[i] == key)
			return false;
		i = (i + 1) % KEY_SLOTS;
	}
	if (totals.findings_written < REPORT_FINDINGS_MAX)
		keys[i] = key;
	return true;
}

/* Lock held. @return false: seen before. */
static bool count_finding(uint64_t key, enum finding_kind kind, enum severity severity)
{
	if (!new_key(key)) {
		totals.findings_repeated++;
		return false;
	}
	totals.by_kind[kind]++;
	totals.serious_by_kind[kind] += severity > SEVERITY_INFO;
	totals.by_severity[severity]++;
	return true;
}

static void write_finding(const struct finding *f)
{
	write_start();
	write_stack(f->stack);
	for (uint32_t i = 0; i < f->refs_count; i++) {
		const struct finding_ref *r = &f->refs[i];

		write_stack(r->old.stack_open);
		write_stack(r->old.stack_close);
		write_stack(r->now.stack_open);
		write_stack(r->now.stack_close);
	}
	line_finding(&line, f);
	flush_line();
}

/* The exit line is the last line, and the verdict is in it: what comes later, from destructors
 * and threads that still run, is told to a human if it would have changed the verdict, once. */
static void tell_late(const struct finding *f)
{
	char text[128];

	if (told_late || source->quiet || finding_severity(f->kind) != SEVERITY_ERROR)
		return;
	told_late = true;
	snprintf(text, sizeof(text),
		 "%s after the exit line: neither in the report nor in its verdict",
		 finding_kind_name(f->kind));
	source->warn(text);
}

void report_finding(const struct finding *f)
{
	int saved = errno;

	if (source && finding_severity(f->kind) == SEVERITY_ERROR)
		counter_bump(&errors);
	if (!enter())
		return;
	if (exited) {
		tell_late(f);
	} else if (count_finding(f->key, f->kind, finding_severity(f->kind))) {
		if (totals.findings_written < REPORT_FINDINGS_MAX) {
			totals.findings_written++;
			write_finding(f);
		} else {
			totals.findings_left_out++;
		}
	}
	leave();
	errno = saved;
}

void report_event(const struct event *e)
{
	int saved = errno;

	if (!enter())
		return;
	if (!exited) {
		write_start();
		write_stack(e->stack);
		line_event(&line, e);
		flush_line();
	}
	leave();
	errno = saved;
}

void report_cross(const struct cross_result *r)
{
	int saved = errno;

	if (!enter())
		return;
	if (!exited) {
		write_start();
		line_cross(&line, r);
		flush_line();
	}
	leave();
	errno = saved;
}

void report_launch(const struct report_launch *l)
{
	static uint64_t written; /* guarded by enter() */
	int saved = errno;

	if (!enter())
		return;
	if (!exited && written < REPORT_LAUNCHES_MAX) {
		written++;
		write_start();
		line_launch(&line, l);
		flush_line();
	}
	leave();
	errno = saved;
}

/* ---- slots and reloads ---- */

/* The same finding of the same bindings is the same occurrence, however often it is told. */
static uint64_t slot_key(const struct slot_finding *f)
{
	const uint64_t parts[] = { f->kind,	f->path,     f->name,		f->detail,
				   f->old_base, f->new_base, f->old_generation, f->new_generation };
	uint64_t key = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		key = (key ^ parts[i]) * UINT64_C(0x100000001b3);
	return key;
}

/* Lock held. The stacks are written before the line that refers to them. */
static void count_slot_findings(const struct slot_findings *f)
{
	for (uint32_t i = 0; i < f->count; i++) {
		if (!exited) {
			write_stack(f->list[i].old_stack);
			write_stack(f->list[i].old_closed);
			write_stack(f->list[i].new_stack);
		}
		if (count_finding(slot_key(&f->list[i]), f->list[i].kind, f->list[i].severity))
			totals.findings_written += totals.findings_written < REPORT_FINDINGS_MAX;
	}
}

/* Write @t and its findings, and release it. @return its bytes for the caller of the API. */
static char *write_own(struct text *t, const struct slot_findings *f)
{
	char *copy = t->failed ? NULL : strndup(t->bytes, t->used - 1);
	int saved = errno;

	if (enter()) {
		write_start();
		count_slot_findings(f);
		if (t->failed)
			sink.lost++;
		else if (!exited) /* the exit line is the last one */
			sink_write(&sink, t->bytes, t->used);
		leave();
	}
	pages_put(t->bytes, t->cap);
	errno = saved;
	return copy;
}

char *report_reload(const struct reload_outcome *r)
{
	struct text t = { .bytes = NULL };

	line_reload(&t, source, r);
	return write_own(&t, &r->findings);
}

char *report_verify(const struct slot_findings *f)
{
	struct text t = { .bytes = NULL };
	enum verdict verdict = VERDICT_PASS;

	for (uint32_t i = 0; i < f->count; i++)
		if (f->list[i].severity == SEVERITY_ERROR)
			verdict = VERDICT_FAIL;
	line_verify(&t, f, verdict);
	return write_own(&t, f);
}

void report_started(void)
{
	int saved = errno;

	if (!enter())
		return;
	write_start();
	leave();
	errno = saved;
}

uint64_t report_count(enum severity s)
{
	uint64_t count;

	if (!enter())
		return 0;
	count = totals.by_severity[s];
	leave();
	return count;
}

/* ---- verdict ---- */

void report_unproven(const char *why)
{
	const char *expected = NULL;

	/* Pairs with the acquire loads of the readers: the first reason stays. */
	cas_acq_rel(&unproven, &expected, why);
}

/* Why the verdict is unproven; text NULL: it is not. count 0: not a count. */
struct gap {
	const char *text;
	uint64_t count;
};

static void add_gap(void *to, const char *key, const char *text, uint64_t count, bool decisive)
{
	struct gap *first = to;

	if (decisive && count && !first->text)
		*first = (struct gap){ text, count };
}

static struct gap first_gap(void)
{
	/* Pairs with report_unproven(). */
	struct gap gap = { load_acquire(&unproven), 0 };

	if (!gap.text && source && source->coverage)
		source->coverage(add_gap, &gap);
	return gap;
}

const char *report_gap(void)
{
	return first_gap().text;
}

const char *report_reload_gap(void)
{
	enum reload_verdict last;

	if (reload_open())
		return "a reload is open";
	return reload_last(&last) && last == RELOAD_UNPROVEN ? "the last reload is unproven" : NULL;
}

static bool reload_failed(void)
{
	enum reload_verdict last;

	return reload_unsafe() || (reload_last(&last) && last == RELOAD_FAIL);
}

enum verdict report_verdict(void)
{
	if (load_relaxed(&errors) || reload_failed())
		return VERDICT_FAIL;
	return first_gap().text || report_reload_gap() ? VERDICT_UNPROVEN : VERDICT_PASS;
}

/* @return where the text goes on; it never runs out of its @end. */
static char *say(char *at, const char *end, const char *before, uint64_t count, const char *what)
{
	size_t room = (size_t)(end - at);
	int n = count ? snprintf(at, room, "%s%llu %s", before, (unsigned long long)count, what) :
			snprintf(at, room, "%s%s", before, what);

	return n < 0 || (size_t)n >= room ? at : at + n;
}

/* One line for a human, if there is something to say. */
static void tell(enum verdict verdict)
{
	char text[1024], *end = text + sizeof(text);
	char *start = say(text, end, "verdict ", 0, verdict_name(verdict)), *at = start;

	for (int k = 0; k < FINDING_KIND_COUNT; k++)
		if (totals.serious_by_kind[k])
			at = say(at, end, at == start ? ": " : ", ", totals.serious_by_kind[k],
				 finding_kind_name((enum finding_kind)k));
	if (verdict == VERDICT_UNPROVEN) {
		struct gap gap = first_gap();

		if (!gap.text)
			gap.text = report_reload_gap();
		at = say(at, end, at == start ? ": " : ", ", gap.count, gap.text);
	}
	if (at == start)
		return;
	if (sink.lines)
		say(at, end, "; see ", 0, sink.shown);
	source->warn(text);
}

void report_exit(void)
{
	enum verdict verdict = report_verdict();
	int saved = errno;

	if (!enter())
		return;
	if (!exited) {
		exited = true;
		write_start();
		totals.lines_lost = sink.lost;
		line_exit(&line, source, &totals, verdict, load_acquire(&unproven));
		flush_line();
		if (!source->quiet)
			tell(verdict);
	}
	leave();
	errno = saved;
}

/* ---- life ---- */

void report_init(const struct report_source *s)
{
	char name[sizeof(sink.path)], text[128];
	char unknown = 0;

	identity_read(&identity);
	if (!name_expand(s->path ? s->path : "", &identity, name, sizeof(name), &unknown)) {
		s->warn("ARENA_REPORT: the name is too long: no report, choose a shorter one");
		name[0] = '\0';
	}
	if (unknown == '%') {
		s->warn("ARENA_REPORT: the % at the end stands for nothing: kept as it is, use "
			"%h %r %p or %%");
	} else if (unknown) {
		snprintf(text, sizeof(text),
			 "ARENA_REPORT: %%%c is not known: kept as it is, use %%h %%r %%p or %%%%",
			 unknown);
		s->warn(text);
	}
	sink_init(&sink, name, s->warn);
	lines_init();
	source = s;
}

void report_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	inside = false;
	source = NULL;
	sink_close(&sink);
	text_clear(&line);
	started = exited = told_late = false;
	if (totals.findings_written)	/* do not touch all its pages in every child */
		memset(keys, 0, sizeof(keys));
	totals = (struct report_totals){ .findings_written = 0 };
	memset(stacks_written, 0, sizeof(stacks_written));
	memset(modules_written, 0, sizeof(modules_written));
	store_relaxed(&unproven, NULL);
	store_relaxed(&errors, 0);
}
