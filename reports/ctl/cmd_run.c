/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arenactl run: a program under the library, and one line about it at the end.
 *
 * Nothing of this runs in the program: it gets LD_PRELOAD and ARENA_*, and is waited for. One
 * thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "launch.h"
#include "preload.h"
#include "program.h"
#include "running.h"
#include "term.h"
#include "watch.h"

/* As the library has it (shim/options.def). */
#define REPORT_DEFAULT "arena-%h-%r-%p.jsonl"
/* How often metrics are written. Prometheus asks every 15 s or so. */
#define METRICS_MS 2000

/* Options that become ARENA_<NAME>: those of the library, all of them. */
static const struct {
	enum arg arg;
	const char *variable;
} passed_on[] = {
#define OPTION_ENUM(name, def, words, doc)	    { ARG_##name, "ARENA_" #name },
#define OPTION_UINT(name, def, unit, min, max, doc) { ARG_##name, "ARENA_" #name },
#define OPTION_TEXT(name, def, doc)		    { ARG_##name, "ARENA_" #name },
#include "shim/options.def"
#undef OPTION_ENUM
#undef OPTION_UINT
#undef OPTION_TEXT
};
#define PASSED_ON (sizeof(passed_on) / sizeof(passed_on[0]))

struct run {
	const struct args *args;
	struct watch watch;
	char metrics_path[PATH_MAX]; /* without links; "": not wanted */
	uint64_t metrics_ns;	     /* when they were written last */
	bool metrics_failed;	     /* said once */
	char report[PATH_MAX];	     /* absolute; "": none */
	char name[64];		     /* of the run */
	struct launch_variable environment[PASSED_ON + 2];
	size_t variables;
};

/* ---- metrics ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Nothing, or a file: a device, a pipe or a folder would be gone. */
static bool is_replaceable(const char *path)
{
	struct stat st;

	if (lstat(path, &st) != 0)
		return errno == ENOENT || errno == ENOTDIR;
	if (!S_ISREG(st.st_mode))
		errno = EINVAL;
	return S_ISREG(st.st_mode);
}

/* A link stays, and what it points to is replaced. */
static int set_metrics(struct run *r)
{
	const char *given = args_text(r->args, ARG_PROMETHEUS, NULL);
	struct stat st;

	if (!given)
		return 0;
	if (!*given)
		return args_refuse(r->args, "--prometheus=: name a file");
	snprintf(r->metrics_path, sizeof(r->metrics_path), "%s", given);
	if (lstat(given, &st) == 0 && !realpath(given, r->metrics_path))
		return args_refuse(r->args, "--prometheus=%s: a link to nothing: name a file",
				   given);
	if (!is_replaceable(r->metrics_path) && errno == EINVAL)
		return args_refuse(r->args,
				   "--prometheus=%s: not a file, and it would be replaced by one: "
				   "name a file",
				   given);
	return 0;
}

/* Beside the file, then renamed: who reads it sees the old one or the new one, whole. */
static bool replace_metrics(const struct run *r, bool is_final)
{
	char *path;
	FILE *to;
	bool ok;

	/* Somebody may have put something else there since. */
	if (!is_replaceable(r->metrics_path) ||
	    asprintf(&path, "%s.%d.tmp", r->metrics_path, (int)getpid()) < 0)
		return false;
	unlink(path);
	to = fopen(path, "wxe");
	ok = to != NULL;
	if (to) {
		prometheus_print(&r->watch.metrics, is_final, to);
		ok = !ferror(to);
		ok = fclose(to) == 0 && ok && rename(path, r->metrics_path) == 0;
		if (!ok)
			unlink(path);
	}
	free(path);
	return ok;
}

static void write_metrics(struct run *r, bool is_final)
{
	if (!*r->metrics_path || replace_metrics(r, is_final) || r->metrics_failed)
		return;
	r->metrics_failed = true;
	fprintf(stderr,
		"arenactl run: --prometheus=%s: %m: name a file in a place that can be "
		"written\n",
		r->metrics_path);
}

static void tick(void *to, pid_t child)
{
	struct run *r = to;
	uint64_t now = now_ns();

	if (now - r->metrics_ns < METRICS_MS * 1000000ULL)
		return;
	r->metrics_ns = now;
	watch_read(&r->watch, false);
	write_metrics(r, false);
}

/* ---- before ---- */

static void set_variable(struct run *r, const char *name, const char *value)
{
	r->environment[r->variables++] = (struct launch_variable){ name, value };
}

/* A folder's own percent signs stand for themselves. */
static void add_folder(FILE *to)
{
	char folder[PATH_MAX];

	if (!getcwd(folder, sizeof(folder)))
		return;
	for (const char *c = folder; *c; c++)
		fputs(*c == '%' ? "%%" : (char[]){ *c, '\0' }, to);
	fputc('/', to);
}

/* Absolute, as the program may change its directory before it uses CUDA. */
static int set_report(struct run *r)
{
	const char *given = getenv("ARENA_REPORT") ? getenv("ARENA_REPORT") : REPORT_DEFAULT;
	const char *pattern = args_text(r->args, ARG_REPORT, given);
	FILE *to = fmemopen(r->report, sizeof(r->report) - 1, "w");
	bool fits;

	if (!to)
		return args_refuse(r->args, "no memory");
	if (*pattern && *pattern != '/')
		add_folder(to);
	fputs(pattern, to);
	fits = fflush(to) == 0 && !ferror(to);
	fits = fclose(to) == 0 && fits;
	if (!fits)
		return args_refuse(r->args, "--report=%s: its path is too long", pattern);
	return 0;
}

static int set_environment(struct run *r, const struct preload *p)
{
	uint64_t ignored;
	int status = set_report(r);

	if (status || (status = set_metrics(r)) ||
	    (status = args_number(r->args, ARG_GRAPH_MIB, 1, 65536, &ignored)))
		return status;
	snprintf(r->name, sizeof(r->name), "%" PRIx64 "-%d", now_ns(), (int)getpid());
	set_variable(r, "LD_PRELOAD", p->list);
	for (size_t i = 0; i < PASSED_ON; i++) {
		const char *value = args_text(r->args, passed_on[i].arg, NULL);

		if (passed_on[i].arg == ARG_REPORT)
			value = r->report;
		else if (passed_on[i].arg == ARG_RUN && !value)
			value = r->name;
		if (value)
			set_variable(r, passed_on[i].variable, value);
	}
	set_variable(r, NULL, NULL);
	return 0;
}

/* What is known before the start: is said, and does not stop it. */
static void say_notes(const struct run *r, const struct preload *p)
{
	struct program program;

	if (args_given(r->args, ARG_QUIET))
		return;
	if (*p->note)
		fprintf(stderr, "arenactl run: %s\n", p->note);
	if (p->abi == 0)
		fprintf(stderr, "arenactl run: %s is the no-op build: nothing is watched\n",
			p->library);
	if (program_look(r->args->operands, &program) != PROGRAM_FITS &&
	    program.kind != PROGRAM_ABSENT)
		fprintf(stderr, "arenactl run: warn: %s\n", program.why);
}

/* ---- after ---- */

/* "2 stale-launch, 1 moved" of all processes. */
static void print_kinds(const struct metrics *m, FILE *to)
{
	struct counts kinds = metrics_kinds(m);

	for (size_t i = 0; i < kinds.count; i++) {
		fprintf(to, "%s%" PRIu64 " ", i ? ", " : ": ", kinds.v[i].count);
		term_text(to, kinds.v[i].word);
	}
	counts_free(&kinds);
}

/* The file of the process that the verdict comes from. */
static const struct process *decisive(const struct metrics *m, enum verdict v)
{
	for (size_t i = 0; i < m->count; i++)
		if (metrics_process_verdict(&m->v[i]) == v)
			return &m->v[i];
	return &m->v[0];
}

/* Why a report may not be where it was wanted; the place is looked at as it is now. */
static bool say_bad_place(const char *report)
{
	char folder[PATH_MAX];
	size_t chars = (size_t)(strrchr(report, '/') - report);
	struct stat st;

	snprintf(folder, sizeof(folder), "%.*s/.", (int)chars, report);
	if (!strchr(folder, '%') && access(folder, W_OK | X_OK) != 0) {
		fprintf(stderr,
			"arenactl run: no verdict: no report could be written at %s: %m: name "
			"another place by --report\n",
			report);
		return true;
	}
	if (stat(report, &st) != 0 || S_ISREG(st.st_mode))
		return false;
	fprintf(stderr,
		"arenactl run: no verdict: no report could be read at %s: not a file: name one by "
		"--report\n",
		report);
	return true;
}

static void say_no_verdict(const struct run *r)
{
	const char *gate = args_text(r->args, ARG_GATE, getenv("ARENA_GATE"));

	if (!*r->report)
		fputs("arenactl run: no verdict: no report was wanted\n", stderr);
	else if (gate && strcasecmp(gate, "off") == 0)
		fputs("arenactl run: no verdict: ARENA_GATE is off: nothing was recorded\n",
		      stderr);
	else if (!say_bad_place(r->report))
		fputs("arenactl run: no verdict: no process used CUDA under the library, or its "
		      "report is gone; 'arenactl doctor -- PROGRAM' says why\n",
		      stderr);
}

/* @return how many there are: what they will do, nobody has seen. */
static size_t say_running(const struct run *r)
{
	pid_t first = 0;
	size_t count = running_left(args_text(r->args, ARG_RUN, r->name), &first);

	if (count)
		fprintf(stderr,
			"arenactl run: warn: %zu process%s that the program started still run%s "
			"(pid %d): what is found there is not in the verdict\n",
			count, count == 1 ? "" : "es", count == 1 ? "s" : "", (int)first);
	return count;
}

static void say_verdict(const struct run *r)
{
	const struct metrics *m = &r->watch.metrics;
	enum verdict v = metrics_verdict(m);
	uint64_t ended = 0;

	if (args_given(r->args, ARG_QUIET))
		return;
	if (say_running(r) && v == VERDICT_PASS)
		v = VERDICT_UNPROVEN;
	if (m->count == 0) {
		say_no_verdict(r);
		return;
	}
	for (size_t i = 0; i < m->count; i++)
		ended += m->v[i].has_ended;
	fprintf(stderr, "arenactl run: verdict %s", verdict_names[v]);
	print_kinds(m, stderr);
	fprintf(stderr, "; %zu process%s", m->count, m->count == 1 ? "" : "es");
	if (ended < m->count)
		fprintf(stderr, ", %" PRIu64 " without an end (killed, or still running)",
			m->count - ended);
	if (m->unread)
		fprintf(stderr, ", %" PRIu64 " lines unreadable", m->unread);
	fprintf(stderr, "; see ");
	term_text(stderr, decisive(m, v)->file);
	fputc('\n', stderr);
}

static int run_it(struct run *r)
{
	struct launch l = { .argv = r->args->operands, .environment = r->environment, .to = r };
	int error, status;

	if (*r->metrics_path) {
		l.tick = tick;
		l.tick_ms = METRICS_MS;
		write_metrics(r, false);
	}
	status = launch(&l, &error);
	if (error) {
		fprintf(stderr, "arenactl run: %s: %s\n", r->args->operands[0],
			strerrordesc_np(error));
		return status;
	}
	watch_read(&r->watch, true);
	write_metrics(r, true);
	say_verdict(r);
	return status;
}

static int run(struct args *a)
{
	struct run r = { .args = a };
	struct preload p;
	int status;

	if (preload_find(args_text(a, ARG_LIBRARY, NULL), &p) != 0)
		return args_refuse(a, "%s", p.why);
	status = set_environment(&r, &p);
	if (status == 0) {
		say_notes(&r, &p);
		watch_begin(&r.watch, r.report, args_text(a, ARG_RUN, r.name));
		status = run_it(&r);
		watch_end(&r.watch);
	}
	free(p.list);
	return status;
}

const struct command cmd_run = {
	.name = "run",
	.synopsis = "[--] PROGRAM [ARGUMENT...]",
	.summary = "run a program under the library and say the verdict",
	.bit = CMD_RUN,
	.operands_min = 1,
	.rest = true,
	.run = run,
};
