/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes count, line by line of their reports: for metrics and one-line verdicts, where the
 * whole report is not needed. Memory is bounded by the number of processes and words. One thread.
 */
#ifndef CTL_METRICS_H
#define CTL_METRICS_H

#include <stdio.h>

#include "model.h"

/* A word and how often. */
struct counted {
	char *word;
	uint64_t count;
};
struct counts {
	struct counted *v;
	size_t count;
};

struct process {
	uint64_t pid, rank;
	char *host, *file, *exe;
	bool has_ended; /* its exit line is there */
	bool is_unsafe;
	enum verdict verdict;	  /* of the exit line */
	enum verdict last_reload; /* NONE: there was none */
	uint64_t findings[SEVERITY_COUNT];
	uint64_t reloads[VERDICT_UNPROVEN + 1];
	uint64_t generation, lines_lost;
	struct counts kinds, coverage; /* coverage: of the exit line */
	uint64_t *seen;		       /* table of the findings that were counted; 0: free */
	size_t seen_count, seen_size;
};

struct metrics {
	struct process *v;
	size_t count;
	uint64_t time_ns; /* of the last line */
	uint64_t unread;  /* lines that could not be read */
};

/*
 * @brief Count a line.
 * @param process number (from 1) of the process whose lines these are, 0: none has begun; a start
 * line begins a new one.
 */
void metrics_line(struct metrics *m, size_t *process, const struct line *line);
/* @brief Count what is in memory. */
void metrics_set(struct metrics *m, const struct report_set *set);
/* @brief Findings of all processes by kind; free with counts_free(). */
struct counts metrics_kinds(const struct metrics *m);
void counts_free(struct counts *c);
/* @brief As far as is known: a process without an exit line is unproven, unless it failed. */
enum verdict metrics_process_verdict(const struct process *p);
enum verdict metrics_verdict(const struct metrics *m);
void metrics_free(struct metrics *m);

/* @brief Prometheus text format. @param is_final false: the processes may still run. */
void prometheus_print(const struct metrics *m, bool is_final, FILE *to);

#endif
