/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a program and waits for it, as if it had been started without us. One thread. */
#ifndef CTL_LAUNCH_H
#define CTL_LAUNCH_H

#include <sys/types.h>

/* What the program finds in its environment besides ours; up to a NULL name. */
struct launch_variable {
	const char *name, *value;
};

struct launch {
	char *const *argv;
	const struct launch_variable *environment;
	/* Called about every tick_ms while it runs, and each time it may be looked at; or NULL. */
	void (*tick)(void *to, pid_t child);
	void *to;
	unsigned tick_ms;
};

/* As a shell says it. */
#define LAUNCH_NOT_FOUND 127
#define LAUNCH_NOT_EXEC	 126
#define LAUNCH_SIGNAL	 128

/*
 * @brief Run it. Signals that are sent to us are passed on; those of the terminal reach it anyway.
 * @param error out: 0, or errno of a program that could not be started.
 * @return its exit status; 128 + n if signal n ended it; 126, 127 if it could not be started.
 */
int launch(const struct launch *l, int *error);

#endif
