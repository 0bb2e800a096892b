/* SPDX-License-Identifier: Apache-2.0 */
/* What arenactl doctor looks at: checks, each with a state and a line. One thread. */
#ifndef CTL_DOCTOR_H
#define CTL_DOCTOR_H

#include <limits.h>
#include <stdio.h>

#include "args.h"
#include "preload.h"

enum check_state {
	CHECK_OK,
	CHECK_NOTE,    /* worth knowing */
	CHECK_UNKNOWN, /* could not be found out */
	CHECK_BAD,     /* not watched, or not fully */
};

struct check {
	char subject[32];
	enum check_state state;
	char text[1024];
};

struct doctor {
	const struct args *args;
	struct preload preload;
	char folder[64]; /* temporary, for reports */
	struct check *checks;
	size_t count;
};

/* @brief Add a line. */
void doctor_say(struct doctor *d, enum check_state state, const char *subject, const char *format,
		...) __attribute__((format(printf, 4, 5)));

/* Starting a driver on a large machine takes seconds, and so does a python3 on a slow disk. */
#define PROBE_SECONDS  60
#define PYTHON_SECONDS 15

/*
 * @brief Run @probe in a child, which may crash or stall, and take what it prints. After @seconds
 * it is ended, with all that it started.
 * @return false: it did not end well.
 */
bool doctor_probe(void (*probe)(FILE *to), unsigned seconds, char *text, size_t text_bytes);

/* @brief Other preloads, driver, CUPTI, libunwind, PyTorch. */
void doctor_system(struct doctor *d);
/* @brief A program of ours allocates by every route: did the library see it? */
void doctor_canary(struct doctor *d);
/* @brief The user's program: who in its process tree has the library, who has not, and why. */
void doctor_tree(struct doctor *d);

#endif
