/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LD_PRELOAD with the shim in it. A library that cannot be loaded is only a warning of the dynamic
 * linker, after which nothing is watched: so it is tried here first. One thread.
 */
#include "preload.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "canary.h"
#include "paths.h"

#define LIBRARY	   "libarena_shim.so"
#define SEPARATORS " :"
/* Longest that loading it may take. */
#define LOAD_SECONDS 60

#if defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#define OWN_MACHINE EM_X86_64
#endif

/* ---- where it is ---- */

static bool set_if_there(struct preload *p, const char *folder, const char *below)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s%s/" LIBRARY, folder, below);
	return access(path, F_OK) == 0 && realpath(path, p->library) != NULL;
}

/* Beside this program; in the build tree; as it is installed, also when the tree was moved. */
static int find_own(struct preload *p)
{
	char own[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
	char *slash;

	own[n > 0 ? n : 0] = '\0';
	slash = strrchr(own, '/');
	if (slash)
		*slash = '\0';
	if (set_if_there(p, own, "") || set_if_there(p, own, "/../../shim") ||
	    set_if_there(p, own, CTL_LIBDIR_FROM_BINDIR) || set_if_there(p, CTL_LIBDIR, ""))
		return 0;
	snprintf(p->why, sizeof(p->why),
		 LIBRARY " was not found beside %s or in " CTL_LIBDIR ": name it by --library",
		 own);
	return -1;
}

static int find(const char *named, struct preload *p)
{
	if (!named)
		return find_own(p);
	if (realpath(named, p->library))
		return 0;
	snprintf(p->why, sizeof(p->why), "--library=%s: %s: name " LIBRARY, named,
		 strerrordesc_np(errno));
	return -1;
}

/* ---- will it load ---- */

static int refuse(struct preload *p, const char *what)
{
	snprintf(p->why, sizeof(p->why), "%.*s: %s", PATH_MAX, p->library, what);
	return -1;
}

static int check_file(struct preload *p)
{
	Elf64_Ehdr e = { 0 };
	struct stat st;
	int fd;
	ssize_t n;

	if (strpbrk(p->library, SEPARATORS))
		return refuse(p, "LD_PRELOAD cannot hold a path with spaces or colons: make a link "
				 "to its folder that has none");
	if (stat(p->library, &st) != 0 || !S_ISREG(st.st_mode))
		return refuse(p, "not a file: name " LIBRARY " by --library");
	fd = open(p->library, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return refuse(p, strerrordesc_np(errno));
	n = read(fd, &e, sizeof(e));
	close(fd);
	if (n != sizeof(e) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 || e.e_type != ET_DYN)
		return refuse(p, "not a shared library: name " LIBRARY " by --library");
	if (e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_machine != OWN_MACHINE)
		return refuse(p,
			      "for another processor: name the one for this machine by --library");
	return 0;
}

/* This program under the library: what the dynamic linker has to say about it goes to stderr. */
static _Noreturn void start_canary(const struct preload *p, int to)
{
	dup2(to, STDOUT_FILENO);
	dup2(to, STDERR_FILENO);
	/* Outlives exec: a library that does not come back is one that will not load. */
	alarm(LOAD_SECONDS);
	setenv("LD_PRELOAD", p->library, 1);
	/* Not when the first function is called: now. */
	setenv("LD_BIND_NOW", "1", 1);
	execl("/proc/self/exe", "arenactl", CANARY_WORD, CANARY_ABI, (char *)NULL);
	_exit(1);
}

/* What the child says, as text. @return its status as of waitpid(), -1: it could not be asked. */
static int ask_canary(const struct preload *p, char *text, size_t bytes)
{
	int ends[2], status = -1;
	size_t used = 0;
	pid_t child;
	ssize_t n;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	child = fork();
	if (child == 0)
		start_canary(p, ends[1]);
	close(ends[1]);
	while (used + 1 < bytes && (n = read(ends[0], text + used, bytes - 1 - used)) > 0)
		used += (size_t)n;
	text[used] = '\0';
	close(ends[0]);
	if (child < 0 || waitpid(child, &status, 0) != child)
		return -1;
	return status;
}

static int try_load(struct preload *p)
{
	char text[PATH_MAX];
	int status = ask_canary(p, text, sizeof(text));

	/* The only line, unless the linker complained. */
	if (status == 0 && sscanf(text, "abi %d", &p->abi) == 1) {
		if (p->abi >= 0)
			return 0;
		return refuse(p, "not the library of arena-shim: name " LIBRARY " by --library");
	}
	text[strcspn(text, "\n")] = '\0';
	snprintf(p->why, sizeof(p->why), "%.*s will not load: %.2000s", PATH_MAX, p->library,
		 *text ? text : "a program under it dies");
	return -1;
}

/* ---- the list ---- */

static const char *base_of(const char *path, size_t chars)
{
	const char *base = path;

	for (size_t i = 0; i < chars; i++)
		if (path[i] == '/')
			base = path + i + 1;
	return base;
}

/* The runtimes of sanitizers insist on being first. */
static bool comes_first(const char *name, size_t chars)
{
	static const char *const runtimes[] = { "libasan",  "libtsan",	 "liblsan",
						"libubsan", "libhwasan", "libclang_rt." };
	const char *base = base_of(name, chars);

	for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++)
		if (strncmp(base, runtimes[i], strlen(runtimes[i])) == 0)
			return true;
	return false;
}

static bool is_shim(const char *name, size_t chars)
{
	const char *base = base_of(name, chars);
	size_t left = chars - (size_t)(base - name);

	return left == strlen(LIBRARY) && strncmp(base, LIBRARY, left) == 0;
}

/* Names of @list that come first, or the others; a copy of the shim is left out. */
static void add_names(FILE *out, struct preload *p, const char *list, bool first)
{
	for (list += strspn(list, SEPARATORS); *list; list += strspn(list, SEPARATORS)) {
		size_t chars = strcspn(list, SEPARATORS);

		if (is_shim(list, chars)) {
			if (chars != strlen(p->library) || strncmp(list, p->library, chars) != 0)
				snprintf(p->note, sizeof(p->note),
					 "LD_PRELOAD has another copy, %.*s: it is replaced by %s",
					 (int)chars, list, p->library);
		} else if (comes_first(list, chars) == first) {
			fprintf(out, "%s%.*s", ftell(out) ? ":" : "", (int)chars, list);
		}
		list += chars;
	}
}

static int compose(struct preload *p)
{
	const char *others = getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "";
	size_t bytes;
	FILE *out = open_memstream(&p->list, &bytes);

	if (!out)
		return refuse(p, "no memory");
	add_names(out, p, others, true);
	fprintf(out, "%s%s", ftell(out) ? ":" : "", p->library);
	add_names(out, p, others, false);
	return fclose(out) == 0 ? 0 : refuse(p, "no memory");
}

int preload_find(const char *named, struct preload *p)
{
	*p = (struct preload){ .abi = 0 };
	if (find(named, p) != 0 || check_file(p) != 0 || try_load(p) != 0)
		return -1;
	return compose(p);
}
