/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of a run, from /proc. One thread. */
#include "running.h"

#include <ctype.h>
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc.h"

#define ENVIRON_MAX (1U << 21)
#define MOMENT_MS   1000
#define STEP_MS	    20

/* In clock ticks since the machine started; 0: gone. */
static unsigned long long began(pid_t pid)
{
	unsigned long long ticks = 0;
	char text[1024];
	const char *after;

	proc_read(pid, "stat", text, sizeof(text));
	/* The name of the program may have anything in it, also brackets. */
	after = strrchr(text, ')');
	if (!after || sscanf(after + 1,
			     " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			     "%*d %*d %llu",
			     &ticks) != 1)
		return 0;
	return ticks;
}

/* One that has ended, and was not waited for, has no environment. */
static int is_of_run(pid_t pid, const char *run, char *text)
{
	size_t bytes = proc_read(pid, "environ", text, ENVIRON_MAX);

	for (const char *at = text; at < text + bytes; at += strlen(at) + 1)
		if (strncmp(at, "ARENA_RUN=", 10) == 0)
			return strcmp(at + 10, run) == 0;
	return 0;
}

size_t running_count(const char *run, pid_t *first)
{
	char *text = malloc(ENVIRON_MAX);
	DIR *proc = opendir("/proc");
	unsigned long long own = began(getpid());
	struct dirent *e;
	size_t count = 0;

	while (text && proc && (e = readdir(proc)) != NULL) {
		pid_t pid = isdigit((unsigned char)*e->d_name) ? atoi(e->d_name) : 0;

		if (!pid || pid == getpid() || !is_of_run(pid, run, text) || began(pid) < own)
			continue;
		*first = pid;
		count++;
	}
	if (proc)
		closedir(proc);
	free(text);
	return count;
}

size_t running_left(const char *run, pid_t *first)
{
	size_t count = running_count(run, first);

	for (int ms = 0; count && ms < MOMENT_MS; ms += STEP_MS) {
		poll(NULL, 0, STEP_MS);
		count = running_count(run, first);
	}
	return count;
}
