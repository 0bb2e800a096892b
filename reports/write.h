/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report: JSON lines, one object each, appended by one write() (format: arena-report(5),
 * schema.json). Opened at the first line; nothing here can fail for the caller.
 *
 * Threads: any function from any thread, except report_init() (once, before the others) and
 * report_forget() (in the child of a fork). No function calls the driver.
 */
#ifndef REPORTS_WRITE_H
#define REPORTS_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/cross.h"
#include "arena/event.h"
#include "arena/finding.h"
#include "arena/reload.h"
#include "arena/stack.h"

/* Most finding lines of one process; what comes later is counted in the exit line. */
#define REPORT_FINDINGS_MAX 10000

/* Most lines of launches. */
#define REPORT_LAUNCHES_MAX 10000

/* How callbacks below hand over what they have. Strings are used at once. */
typedef void (*report_pair_fn)(void *to, const char *key, const char *value);
typedef void (*report_gap_fn)(void *to, const char *key, const char *text, uint64_t count,
			      bool decisive);
typedef void (*report_count_fn)(void *to, const char *group, const char *key, uint64_t count);

/*
 * What the report takes from the layer above; constant while the process lives.
 * Callbacks are made with the lock of the report held: they must not report. Each but warn may be
 * NULL, and then its part of the line is empty.
 */
struct report_source {
	const char *path;	/* file name with %h host, %r rank, %p pid, %% percent; "": none */
	const char *version;	/* of the shim */
	const char *library;	/* where this copy of the shim lies */
	const char *unwinder;	/* who takes the stacks */
	int driver_version;	/* as cuDriverGetVersion, 0: unknown */
	bool unproven_fails;	/* what "unproven" counts as */
	bool quiet;		/* no line on stderr about the verdict */
	void (*options)(report_pair_fn add, void *to);	/* option -> value in effect */
	size_t (*stack_frames)(uint32_t id, struct stack_frame *out, size_t max);
	size_t (*stack_python)(uint32_t id, struct python_frame *out, size_t max);
	const struct stack_module *(*stack_module)(uint32_t number);
	void (*coverage)(report_gap_fn add, void *to);	/* every reason, also those at 0 */
	void (*entries)(report_pair_fn add, void *to);	/* "entries" -> called entry point */
	void (*notes)(report_pair_fn add, void *to);	/* coverage key -> what was not seen */
	/* What came of CUPTI; group NULL: of CUPTI as a whole. */
	void (*cupti)(report_pair_fn add, report_count_fn count, void *to);
	void (*warn)(const char *text);			/* one line for a human */
};

enum verdict { VERDICT_PASS, VERDICT_FAIL, VERDICT_UNPROVEN };
const char *verdict_name(enum verdict v);

/* @param s stays the caller's and must live for ever. */
void report_init(const struct report_source *s);
/* @brief Write the start line now: a process that is killed leaves a proof that it was watched. */
void report_started(void);
/* @brief Write a finding now, unless the exit line is written; one with a key that was seen is only
 * counted. */
void report_finding(const struct finding *f);
/* @brief Write what only one of two sources saw of a template. */
void report_cross(const struct cross_result *r);
/* A launch or copy outside graphs, as CUPTI told of it. */
struct report_launch {
	const char *call; /* the driver's function */
	uint32_t kernel;  /* interned, 0: none */
	uint64_t stream;
	uint32_t correlation, result; /* CUPTI's number of the call; CUresult */
};
/* @brief Write one (ARENA_CUPTI_LAUNCHES), up to REPORT_LAUNCHES_MAX. */
void report_launch(const struct report_launch *l);
/* @brief Write an event (ARENA_TRACE). */
void report_event(const struct event *e);
/*
 * @brief Write how a reload ended, and count its findings. The verdict follows reload.h.
 * @return the line without its newline, for free(); NULL: no memory.
 */
char *report_reload(const struct reload_outcome *r);
/* @brief The same for a comparison that was asked for; the verdict does not follow it. */
char *report_verify(const struct slot_findings *f);
/* @brief Findings with different keys, so far. */
uint64_t report_count(enum severity s);
/* @brief The verdict cannot be "pass" any more. @param why a constant string. */
void report_unproven(const char *why);
/* @brief What report_unproven() was told, or what matters and was not seen; NULL: nothing. */
const char *report_gap(void);
/* @brief Why reloads leave the process unproven; NULL: they do not. */
const char *report_reload_gap(void);
/* @brief fail: a launch was stale, the last reload failed, or the process is unsafe; unproven:
 * something that matters was not seen. */
enum verdict report_verdict(void);
/* @brief Write the exit line and tell a human if there was something. Later calls do nothing. */
void report_exit(void);
/* @brief A forked child: forget the parent's file, findings and stacks that were written. */
void report_forget(void);

#endif
