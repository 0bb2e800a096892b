/* SPDX-License-Identifier: Apache-2.0 */
/* Findings of a set, filtered and sorted as the options say. One thread. */
#ifndef CTL_SELECT_H
#define CTL_SELECT_H

#include <stdio.h>

#include "args.h"
#include "model.h"

struct selected {
	const struct report *report;
	const struct report_finding *finding;
	size_t place; /* in the order of the files */
};

struct selection {
	struct selected *v;
	size_t count;
	size_t left_out; /* findings that the filters left out */
};

/* A column of a finding: its name, its head, its value as text. */
struct field {
	const char *name, *head, *doc;
	bool number; /* aligned to the right, sorted by value */
	const char *(*text)(const struct selected *s, char *buf, size_t size);
	uint64_t (*value)(const struct selected *s); /* of numbers; as it is in CSV and JSON */
};
extern const struct field fields[];
extern const size_t field_count;

/* @brief The fields of a list "a,b"; NULL after a line on stderr. @return for free(). */
const struct field **fields_parse(const struct args *a, enum arg which, const char *otherwise,
				  size_t *count);
/* @brief Are --kind, --sort, --fields well said? @return 0 or STATUS_USAGE after a line. */
int select_check(const struct args *a);
/* @brief --kind, --layer, --severity, --sort, --all. @return 0 or STATUS_USAGE after a line. */
int select_findings(const struct report_set *set, const struct args *a, struct selection *out);
void select_free(struct selection *s);

#endif
