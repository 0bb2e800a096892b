/* SPDX-License-Identifier: Apache-2.0 */
/* What `arenactl check` decides, and how it is printed (out_check.c). One thread. */
#ifndef CTL_CHECK_H
#define CTL_CHECK_H

#include <stdio.h>

#include "allow.h"
#include "args.h"
#include "model.h"

/* What becomes of a finding. */
enum fate { FATE_FAILS, FATE_ALLOWED, FATE_KNOWN, FATE_BELOW, FATE_COUNT };
extern const char *const fate_names[FATE_COUNT];

struct judged {
	const struct report *report;
	const struct report_finding *finding;
	enum fate fate;
	const struct allow_row *allow; /* of FATE_ALLOWED */
};

struct check {
	const struct report_set *set, *baseline; /* baseline: empty if there is none */
	enum severity fail_on;
	struct judged *v; /* one for each id and severity of each process */
	size_t count, sums[FATE_COUNT];
	struct allow_list allow;
	int status; /* an enum status: what the program returns */
};

/*
 * @brief What a process is when accepted findings are not counted. They excuse themselves only:
 * not what failed for another reason, nor what may have been lost.
 * @param why of what is no pass.
 */
enum verdict check_process(const struct check *c, const struct report *r, const char **why);
/* @brief In the format of that name. @return false: there is none. */
bool check_print(const struct check *c, const char *format, FILE *to);
bool check_has_format(const char *format);

#endif
