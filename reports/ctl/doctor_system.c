/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions of what the library works with. Foreign libraries are loaded in children only: they may
 * start threads, crash, or wait for a device. One thread.
 */
#include "doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Noreturn void probe_main(void (*probe)(FILE *to), int fd)
{
	FILE *to = fdopen(fd, "w");

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (to)
		probe(to);
	_exit(to && fclose(to) == 0 ? 0 : 1);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Until the end, or the time is over: a process that the child started may hold the pipe open. */
static void read_until(int64_t end_ms, int fd, char *text, size_t text_bytes)
{
	size_t used = 0;
	ssize_t n = 1;

	while (n != 0 && used + 1 < text_bytes) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int64_t left = end_ms - now_ms();
		int ready = left > 0 ? poll(&p, 1, (int)left) : 0;

		if (ready == 0)
			break;
		n = ready > 0 ? read(fd, text + used, text_bytes - 1 - used) : -1;
		if (n < 0 && errno != EINTR)
			break;
		used += n > 0 ? (size_t)n : 0;
	}
	text[used] = '\0';
}

/* What still runs of it then is ended: all of its group, before its number is another's. */
static int end_probe(int64_t end_ms, pid_t child)
{
	siginfo_t info = { 0 };
	int status = -1;

	while (waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT | WNOHANG) == 0 &&
	       info.si_pid == 0 && now_ms() < end_ms)
		poll(NULL, 0, 1);
	kill(-child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

bool doctor_probe(void (*probe)(FILE *to), unsigned seconds, char *text, size_t text_bytes)
{
	int64_t end_ms = now_ms() + seconds * 1000LL;
	int ends[2], status = -1;
	pid_t child;

	*text = '\0';
	if (pipe(ends) != 0)
		return false;
	fflush(stdout);
	child = fork();
	if (child == 0) {
		close(ends[0]);
		probe_main(probe, ends[1]);
	}
	close(ends[1]);
	if (child > 0) {
		/* Here too, as the child may not have come to it. */
		setpgid(child, child);
		read_until(end_ms, ends[0], text, text_bytes);
		status = end_probe(end_ms, child);
	}
	close(ends[0]);
	return status == 0;
}

/* ---- the environment that programs get from here ---- */

static const struct {
	const char *name, *words; /* words NULL: any text */
} variables[] = {
#define OPTION_ENUM(name, def, words, doc) { "ARENA_" #name, words },
#define OPTION_UINT(name, def, unit, min, max, doc)
#define OPTION_TEXT(name, def, doc)
#include "shim/options.def"
#undef OPTION_ENUM
#undef OPTION_UINT
#undef OPTION_TEXT
};

/* As the library reads it: case does not matter. */
static bool is_one_of(const char *value, const char *words)
{
	size_t chars = strlen(value);

	for (; *words; words += *words == '|') {
		size_t word_chars = strcspn(words, "|");

		if (chars == word_chars && strncasecmp(value, words, chars) == 0)
			return true;
		words += word_chars;
	}
	return false;
}

/* The canary has values of its own: these are what the user's programs get. */
static void check_settings(struct doctor *d)
{
	const char *gate = getenv("ARENA_GATE"), *report = getenv("ARENA_REPORT");

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		const char *value = getenv(variables[i].name);

		if (value && *value && !is_one_of(value, variables[i].words))
			doctor_say(d, CHECK_NOTE, "settings",
				   "%s=%s is not one of %s: the library takes its default",
				   variables[i].name, value, variables[i].words);
	}
	if (gate && strcasecmp(gate, "off") == 0)
		doctor_say(
			d, CHECK_BAD, "settings",
			"ARENA_GATE is off: nothing is recorded in what is started here; unset it");
	if (report && !*report)
		doctor_say(d, CHECK_BAD, "settings",
			   "ARENA_REPORT is empty: no report is written, and there is no verdict");
}

/* ---- other preloads ---- */

static void check_preloads(struct doctor *d)
{
	const char *given = getenv("LD_PRELOAD");
	char line[512] = "";
	FILE *file = fopen("/etc/ld.so.preload", "re");

	if (*d->preload.note)
		doctor_say(d, CHECK_NOTE, "preloads", "%s", d->preload.note);
	else if (given && *given)
		doctor_say(d, CHECK_NOTE, "preloads", "LD_PRELOAD has %s, too: it is kept", given);
	else
		doctor_say(d, CHECK_OK, "preloads", "no others");
	if (file && fgets(line, sizeof(line), file) && line[strspn(line, " \t\n")]) {
		line[strcspn(line, "\n")] = '\0';
		doctor_say(
			d, CHECK_NOTE, "preloads",
			"/etc/ld.so.preload has %s: it comes before the library in every process",
			line);
	}
	if (file)
		fclose(file);
}

/* ---- CUDA ---- */

typedef int (*get_version_fn)(void *version);

static void print_version(FILE *to, const char *const *names, const char *function)
{
	union {
		int number;
		uint32_t word;
	} version = { 0 };

	for (; *names; names++) {
		void *handle = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
		get_version_fn get = handle ? (get_version_fn)dlsym(handle, function) : NULL;

		if (!get || get(&version) != 0)
			continue;
		fprintf(to, "%s %d", *names, version.number);
		return;
	}
}

static void probe_driver(FILE *to)
{
	static const char *const names[] = { "libcuda.so.1", NULL };

	print_version(to, names, "cuDriverGetVersion");
}

static void probe_runtime(FILE *to)
{
	static const char *const names[] = { "libcudart.so.13", "libcudart.so.12", "libcudart.so",
					     NULL };

	print_version(to, names, "cudaRuntimeGetVersion");
}

static void probe_cupti(FILE *to)
{
	static const char *const names[] = { "libcupti.so.13", "libcupti.so.12", "libcupti.so",
					     NULL };

	print_version(to, names, "cuptiGetVersion");
}

/* @return false: there is none. */
static bool read_version(void (*probe)(FILE *to), char name[64], int *number)
{
	char text[128];

	return doctor_probe(probe, PROBE_SECONDS, text, sizeof(text)) &&
	       sscanf(text, "%63s %d", name, number) == 2;
}

static void check_cuda(struct doctor *d)
{
	char name[64];
	int number = 0;

	if (read_version(probe_driver, name, &number))
		doctor_say(d, CHECK_OK, "driver", "%s, CUDA %d.%d", name, number / 1000,
			   number % 1000 / 10);
	else
		doctor_say(
			d, CHECK_UNKNOWN, "driver",
			"no libcuda.so.1 on this machine: nothing here uses CUDA, and whether the "
			"library works cannot be shown");
	/* Most programs bring a runtime of their own; that there is none here means nothing. */
	if (read_version(probe_runtime, name, &number))
		doctor_say(d, CHECK_OK, "runtime", "%s, CUDA %d.%d", name, number / 1000,
			   number % 1000 / 10);
	if (read_version(probe_cupti, name, &number))
		doctor_say(d, CHECK_OK, "cupti", "%s, version %d", name, number);
	else
		doctor_say(d, CHECK_NOTE, "cupti",
			   "not found by the linker: graphs are known from interposition alone");
}

static void check_recorder(struct doctor *d)
{
	char path[PATH_MAX + 32];
	const char *slash = strrchr(d->preload.library, '/');

	snprintf(path, sizeof(path), "%.*s/libarena_cupti.so", (int)(slash - d->preload.library),
		 d->preload.library);
	if (access(path, R_OK) != 0)
		doctor_say(d, CHECK_NOTE, "cupti",
			   "libarena_cupti.so is not next to the library: CUPTI is not used");
}

/* ---- the rest ---- */

static void probe_unwinder(FILE *to)
{
	void *handle = dlopen("libunwind.so.8", RTLD_LAZY | RTLD_LOCAL);

	if (handle && dlsym(handle, "unw_backtrace"))
		fputs("yes", to);
}

static void check_unwinder(struct doctor *d)
{
	char text[16];

	if (doctor_probe(probe_unwinder, PROBE_SECONDS, text, sizeof(text)) && *text)
		doctor_say(d, CHECK_OK, "stacks", "libunwind.so.8");
	else
		doctor_say(
			d, CHECK_NOTE, "stacks",
			"no libunwind.so.8: frame pointers are followed, and native stacks may be "
			"short");
}

/* Asks for the version without importing anything. */
static void probe_torch(FILE *to)
{
	static const char script[] = "import importlib.metadata as m, sys\n"
				     "print(m.version('torch'), sys.version.split()[0])";

	dup2(fileno(to), STDOUT_FILENO);
	if (!freopen("/dev/null", "w", stderr))
		return;
	execlp("python3", "python3", "-c", script, (char *)NULL);
}

static void check_torch(struct doctor *d)
{
	char text[256], torch[64], python[64];

	if (doctor_probe(probe_torch, PYTHON_SECONDS, text, sizeof(text)) &&
	    sscanf(text, "%63s %63s", torch, python) == 2)
		doctor_say(d, CHECK_OK, "pytorch", "%s, of the python3 (%s) in PATH", torch,
			   python);
	else
		doctor_say(d, CHECK_NOTE, "pytorch", "none that the python3 in PATH would import");
}

void doctor_system(struct doctor *d)
{
	check_settings(d);
	check_preloads(d);
	check_cuda(d);
	check_recorder(d);
	check_unwinder(d);
	check_torch(d);
}
