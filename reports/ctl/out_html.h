/* SPDX-License-Identifier: Apache-2.0 */
/* The page of `arenactl report --format=html`: reports/ctl/html/ with the data of a set in it. */
#ifndef CTL_OUT_HTML_H
#define CTL_OUT_HTML_H

#include "html_json.h"
#include "model.h"
#include "select.h"

/* Captured addresses and events in one page: more would make it slow to open; the rest is counted.
 */
#define HTML_REFS_MAX	250000
#define HTML_EVENTS_MAX 20000

/* Made by html/embed.py: the page before and after its data. */
extern const char html_before[], html_after[];

/* A page while it is written. */
struct html_page {
	struct html_json json;
	const struct selection *chosen;
	uint64_t origin_ns; /* times of the page count from here */
	uint64_t refs_written, refs_left_out;
	struct dictionary texts; /* of all processes */
	struct dictionary names; /* kernels that have a demangled name */
};

/* @brief One process as a member of an array. */
void html_process(struct html_page *p, const struct report *r);
/* @brief Its findings, those whose id was chosen. */
void html_findings(struct html_page *p, const struct report *r);
/* @brief A time as nanoseconds since the page's origin. */
void html_time(struct html_page *p, const char *key, uint64_t time_ns);

#endif
