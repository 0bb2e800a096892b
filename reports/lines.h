/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One function a line type of arena-report(5): it appends the whole line, with its newline, to @t.
 * No state but what lines_init() sets; the caller serialises.
 */
#ifndef REPORTS_LINES_H
#define REPORTS_LINES_H

#include <jansson.h>

#include "arena/reload.h"
#include "reports/name.h"
#include "reports/text.h"
#include "reports/write.h"

struct report_totals {
	uint64_t by_kind[FINDING_KIND_COUNT];	/* findings with different keys */
	uint64_t serious_by_kind[FINDING_KIND_COUNT];	/* those that are not mere information */
	uint64_t by_severity[SEVERITY_COUNT];
	uint64_t findings_written, findings_repeated, findings_left_out, lines_lost;
};

void lines_init(void);
uint64_t lines_now_ns(void);
/* @brief Append @o and the newline to @t; releases @o. */
void lines_end(struct text *t, json_t *o);

void line_start(struct text *t, const struct report_source *s, const struct identity *id);
void line_module(struct text *t, uint32_t number, const struct stack_module *m);
/* The frames of one stack, native and Python. */
struct stack_lists {
	size_t count, python_count;
	struct stack_frame frames[STACK_DEPTH_MAX];
	struct python_frame python[STACK_PYTHON_MAX];
};
void line_stack(struct text *t, uint32_t id, const struct stack_lists *s);
void line_finding(struct text *t, const struct finding *f);
void line_launch(struct text *t, const struct report_launch *l);
void line_event(struct text *t, const struct event *e);
void line_verify(struct text *t, const struct slot_findings *f, enum verdict verdict);
void line_reload(struct text *t, const struct report_source *s, const struct reload_outcome *r);
void line_cross(struct text *t, const struct cross_result *r);
/* @brief All comparisons, for the exit line. */
json_t *line_cross_sums(void);
/* @param why what report_unproven() was told, or NULL. */
void line_exit(struct text *t, const struct report_source *s, const struct report_totals *totals,
	       enum verdict verdict, const char *why);

#endif
