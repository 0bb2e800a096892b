/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of `arenactl report`: each in out_<name>.c, listed in cmd_report.c. One thread. */
#ifndef CTL_OUT_H
#define CTL_OUT_H

#include <stdio.h>

#include "args.h"
#include "model.h"
#include "select.h"

struct output {
	const char *name;	  /* of --format */
	struct set_limits limits; /* what the set must keep for it */
	bool pager;		  /* for reading on a terminal */
	/*
	 * @brief Print @set to @to. @chosen are the findings that the filters left, in the order
	 * asked for.
	 * @return 0, or an enum status.
	 */
	int (*print)(const struct report_set *set, const struct selection *chosen,
		     const struct args *a, FILE *to);
};

#endif
