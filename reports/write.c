/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of this process: which lines there are, and when.
 *
 * Everything below report_source is guarded by one mutex; no function calls the driver or the
 * application, except the callbacks of the source. The first line is "start"; a stack and the
 * modules it needs are written before the first line that refers to them; a finding is in the file
 * when report_finding() returns. A thread that comes in again from below (the host's malloc may
 * do anything) loses its line instead of waiting for itself.
 *
 * Any thread. After fork() the child starts anew (report_forget).
 */
#include "reports/write.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "arena/atomics.h"
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
static bool started, exited;
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
	struct stack_frame frames[STACK_DEPTH_MAX];
	size_t count;

	if (!source->stack_frames || !first_time(stacks_written, id, STACK_COUNT_MAX))
		return;
	count = source->stack_frames(id, frames, STACK_DEPTH_MAX);
	for (size_t i = 0; i < count; i++)
		write_module(frames[i].module);
	line_stack(&line, id, frames, count);
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

void report_finding(const struct finding *f)
{
	int saved = errno;

	if (source && finding_severity(f->kind) == SEVERITY_ERROR)
		counter_bump(&errors);
	if (!enter())
		return;
	if (!new_key(f->key)) {
		totals.findings_repeated++;
	} else {
		totals.by_kind[f->kind]++;
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
	write_start();
	write_stack(e->stack);
	line_event(&line, e);
	flush_line();
	leave();
	errno = saved;
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

enum verdict report_verdict(void)
{
	if (load_relaxed(&errors))
		return VERDICT_FAIL;
	return first_gap().text ? VERDICT_UNPROVEN : VERDICT_PASS;
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
		if (totals.by_kind[k] && finding_severity((enum finding_kind)k) >= SEVERITY_WARN)
			at = say(at, end, at == start ? ": " : ", ", totals.by_kind[k],
				 finding_kind_name((enum finding_kind)k));
	if (verdict == VERDICT_UNPROVEN) {
		struct gap gap = first_gap();

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
	if (unknown) {
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
	started = exited = false;
	if (totals.findings_written)	/* do not touch all its pages in every child */
		memset(keys, 0, sizeof(keys));
	totals = (struct report_totals){ .findings_written = 0 };
	memset(stacks_written, 0, sizeof(stacks_written));
	memset(modules_written, 0, sizeof(modules_written));
	store_relaxed(&unproven, NULL);
	store_relaxed(&errors, 0);
}
