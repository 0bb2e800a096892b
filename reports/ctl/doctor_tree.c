/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's program under the library, and a look at every process that descends from it: is the
 * library in it, is the driver, and if only the driver is, why.
 *
 * Processes are looked at from outside, by /proc, every TICK_MS: one that lives shorter is known
 * from its report only. One thread.
 */
#include "doctor.h"

#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch.h"
#include "proc.h"
#include "program.h"
#include "watch.h"

#define TICK_MS	 50
#define SEEN_MAX 4096
#define RUN_NAME "arenactl-doctor"

/* A process, as it was seen last. */
struct seen {
	pid_t pid, parent;
	char exe[256];
	bool has_library, has_driver; /* mapped */
	bool has_variable;	      /* LD_PRELOAD with the library in its environment */
	bool is_secure;		      /* AT_SECURE: the linker ignores LD_PRELOAD */
};

struct tree {
	struct seen *v;
	size_t count;
	const char *library;
	struct watch watch;
};

/* ---- one process ---- */

static pid_t parent_of(pid_t pid)
{
	char text[1024];
	const char *after;
	int parent = 0;

	proc_read(pid, "stat", text, sizeof(text));
	/* The name of the program may have anything in it, also brackets. */
	after = strrchr(text, ')');
	return after && sscanf(after + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

static bool has_variable(pid_t pid, const char *library)
{
	static char text[1 << 18];
	size_t bytes = proc_read(pid, "environ", text, sizeof(text));

	for (const char *at = text; at < text + bytes; at += strlen(at) + 1)
		if (strncmp(at, "LD_PRELOAD=", 11) == 0)
			return strstr(at, library) != NULL;
	return false;
}

static bool is_secure(pid_t pid)
{
	Elf64_auxv_t aux[64];
	size_t bytes = proc_read(pid, "auxv", (char *)aux, sizeof(aux));

	for (size_t i = 0; i < bytes / sizeof(aux[0]); i++)
		if (aux[i].a_type == AT_SECURE)
			return aux[i].a_un.a_val != 0;
	return false;
}

static void look_at_maps(struct seen *s)
{
	static char text[1 << 20];

	if (!proc_read(s->pid, "maps", text, sizeof(text)))
		return;
	s->has_library = strstr(text, "libarena_shim") != NULL;
	s->has_driver |= strstr(text, "/libcuda.so") != NULL;
}

static void look_at(struct tree *t, struct seen *s)
{
	char path[64], exe[256];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)s->pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	/* Ended, or another user's: what was seen before stays. */
	if (n <= 0)
		return;
	exe[n] = '\0';
	if (strcmp(exe, s->exe) != 0) {
		/* Another program than before: what was mapped is gone. */
		strcpy(s->exe, exe);
		s->has_driver = false;
		s->is_secure = is_secure(s->pid);
	}
	s->has_variable = has_variable(s->pid, t->library);
	look_at_maps(s);
}

/* ---- all of them ---- */

static struct seen *seen_of(struct tree *t, pid_t pid)
{
	for (size_t i = 0; i < t->count; i++)
		if (t->v[i].pid == pid)
			return &t->v[i];
	return NULL;
}

static void add(struct tree *t, pid_t pid, pid_t parent)
{
	if (t->count < SEEN_MAX)
		t->v[t->count++] = (struct seen){ .pid = pid, .parent = parent };
}

/* Children come after their parents in no particular order: as long as one is found, look again. */
static bool add_children(struct tree *t)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	bool found = false;

	while (proc && (e = readdir(proc)) != NULL) {
		pid_t pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0, parent;

		if (!pid || seen_of(t, pid))
			continue;
		parent = parent_of(pid);
		if (!parent || !seen_of(t, parent))
			continue;
		add(t, pid, parent);
		found = t->count < SEEN_MAX;
	}
	if (proc)
		closedir(proc);
	return found;
}

static void tick(void *to, pid_t child)
{
	struct tree *t = to;

	if (t->count == 0)
		add(t, child, getpid());
	while (add_children(t))
		;
	for (size_t i = 0; i < t->count; i++)
		look_at(t, &t->v[i]);
}

/* ---- what is said ---- */

static const struct process *report_of(const struct tree *t, pid_t pid)
{
	for (size_t i = 0; i < t->watch.metrics.count; i++)
		if (t->watch.metrics.v[i].pid == (uint64_t)pid)
			return &t->watch.metrics.v[i];
	return NULL;
}

/* Why a process has the driver, and not the library. */
static const char *reason(const struct seen *s)
{
	static struct program program;
	char *argv[] = { (char *)s->exe, NULL };

	if (s->is_secure)
		return "it runs with other rights (setuid, setgid or capabilities), where the "
		       "dynamic linker ignores LD_PRELOAD";
	if (!s->has_variable)
		return "LD_PRELOAD did not reach it: something on the way (sudo, env -i, a "
		       "launcher) dropped it";
	if (program_look(argv, &program) != PROGRAM_FITS)
		return program.why;
	return "LD_PRELOAD reached it, and had no effect";
}

static void say_process(struct doctor *d, const struct tree *t, const struct seen *s)
{
	const struct process *p = report_of(t, s->pid);
	char subject[32];

	snprintf(subject, sizeof(subject), "process %d", (int)s->pid);
	if (p)
		doctor_say(d, CHECK_OK, subject, "watched: %s", p->exe);
	else if (s->has_driver && !s->has_library)
		doctor_say(d, CHECK_BAD, subject, "not watched: %s: %s", s->exe, reason(s));
	else if (s->has_driver)
		doctor_say(d, CHECK_NOTE, subject,
			   "has the library and wrote no report: %s: it made no CUDA call, or "
			   "ARENA_GATE is off",
			   s->exe);
	else if (!s->has_variable && *s->exe)
		doctor_say(d, CHECK_NOTE, subject, "does not use CUDA, and lost LD_PRELOAD: %s",
			   s->exe);
}

/* Processes that were too short to be seen. */
static size_t say_reports(struct doctor *d, struct tree *t)
{
	for (size_t i = 0; i < t->watch.metrics.count; i++) {
		const struct process *p = &t->watch.metrics.v[i];

		if (!seen_of(t, (pid_t)p->pid))
			add(t, (pid_t)p->pid, 0);
	}
	for (size_t i = 0; i < t->count; i++)
		say_process(d, t, &t->v[i]);
	return t->watch.metrics.count;
}

static void say_tree(struct doctor *d, struct tree *t, int status)
{
	size_t watched = say_reports(d, t), blind = 0;

	for (size_t i = 0; i < t->count; i++)
		blind += t->v[i].has_driver && !t->v[i].has_library;
	if (watched && !blind)
		doctor_say(d, CHECK_OK, "program",
			   "exit status %d; %zu of %zu processes use CUDA, all watched", status,
			   watched, t->count);
	else if (blind)
		doctor_say(d, CHECK_BAD, "program",
			   "exit status %d; %zu of %zu processes use CUDA unwatched", status, blind,
			   t->count);
	else
		doctor_say(
			d, CHECK_UNKNOWN, "program",
			"exit status %d; none of %zu processes used CUDA (looked at every %d ms)",
			status, t->count, TICK_MS);
}

static void look_before(struct doctor *d)
{
	struct program program;

	if (program_look(d->args->operands, &program) != PROGRAM_FITS)
		doctor_say(d, program.kind == PROGRAM_UNKNOWN ? CHECK_UNKNOWN : CHECK_BAD,
			   "program", "%s", program.why);
}

void doctor_tree(struct doctor *d)
{
	char report[128];
	struct launch_variable environment[] = { { "LD_PRELOAD", d->preload.list },
						 { "ARENA_REPORT", report },
						 { "ARENA_RUN", RUN_NAME },
						 { "ARENA_LOG", "error" },
						 { NULL, NULL } };
	struct tree t = { .library = d->preload.library };
	struct launch l = { d->args->operands, environment, tick, &t, TICK_MS };
	int error, status;

	look_before(d);
	t.v = calloc(SEEN_MAX, sizeof(*t.v));
	if (!t.v)
		return;
	snprintf(report, sizeof(report), "%s/%%p.jsonl", d->folder);
	watch_begin(&t.watch, report, RUN_NAME);
	fflush(stdout);
	status = launch(&l, &error);
	watch_read(&t.watch, true);
	if (!error)
		say_tree(d, &t, status);
	watch_end(&t.watch);
	free(t.v);
}
