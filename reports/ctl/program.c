/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kind of program a command line starts, from its file alone. One thread.
 *
 * The rules are those of ld.so(8): LD_PRELOAD is read by glibc's dynamic linker only, and is
 * ignored (paths with slashes) where the kernel sets AT_SECURE.
 */
#include "program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#if defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#define OWN_MACHINE EM_X86_64
#endif

/* As execvp() finds it. */
static bool find_in_path(const char *name, char *out)
{
	const char *path = getenv("PATH") ? getenv("PATH") : "/bin:/usr/bin";

	if (strchr(name, '/')) {
		snprintf(out, PATH_MAX, "%s", name);
		return access(out, X_OK) == 0;
	}
	while (*path) {
		size_t chars = strcspn(path, ":");
		struct stat st;

		snprintf(out, PATH_MAX, "%.*s/%s", chars ? (int)chars : 1, chars ? path : ".",
			 name);
		if (access(out, X_OK) == 0 && stat(out, &st) == 0 && S_ISREG(st.st_mode))
			return true;
		path += chars + (path[chars] == ':');
	}
	errno = ENOENT;
	return false;
}

static enum program_kind say(struct program *p, enum program_kind kind, const char *text)
{
	p->kind = kind;
	snprintf(p->why, sizeof(p->why), "%s %s", p->path, text);
	return kind;
}

static bool is_privileged(const char *path)
{
	struct stat st;

	/* Root stays root: no rights are gained by setuid to root then. */
	if (stat(path, &st) == 0 && (((st.st_mode & S_ISUID) && st.st_uid != getuid()) ||
				     ((st.st_mode & S_ISGID) && st.st_gid != getgid())))
		return true;
	return geteuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

/* The dynamic linker that the file asks for; "" none. */
static void read_interpreter(int fd, const Elf64_Ehdr *e, char *out, size_t bytes)
{
	Elf64_Phdr h;

	*out = '\0';
	for (unsigned i = 0; i < e->e_phnum; i++) {
		ssize_t n;

		if (pread(fd, &h, sizeof(h), (off_t)(e->e_phoff + i * sizeof(h))) != sizeof(h))
			return;
		if (h.p_type != PT_INTERP)
			continue;
		n = pread(fd, out, h.p_filesz < bytes - 1 ? h.p_filesz : bytes - 1,
			  (off_t)h.p_offset);
		out[n > 0 ? n : 0] = '\0';
		return;
	}
}

static enum program_kind look_elf(int fd, struct program *p)
{
	char interpreter[256];
	Elf64_Ehdr e;

	if (pread(fd, &e, sizeof(e), 0) != sizeof(e))
		return say(p, PROGRAM_UNKNOWN, "is a damaged program");
	if (e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_machine != OWN_MACHINE)
		return say(
			p, PROGRAM_OTHER_CPU,
			"is for another processor (or 32 bits): the library is not loaded there");
	read_interpreter(fd, &e, interpreter, sizeof(interpreter));
	if (!*interpreter)
		return say(p, PROGRAM_STATIC, "is linked statically: nothing can be preloaded");
	if (strstr(interpreter, "ld-musl"))
		return say(p, PROGRAM_MUSL,
			   "uses musl: the library is for glibc and cannot be loaded there");
	if (is_privileged(p->path))
		return say(p, PROGRAM_PRIVILEGED,
			   "runs with other rights (setuid, setgid or capabilities): the dynamic "
			   "linker ignores LD_PRELOAD");
	p->kind = PROGRAM_FITS;
	return PROGRAM_FITS;
}

/* "#!/usr/bin/env python3": the interpreter is what gets the library. */
static enum program_kind look_script(char *line, struct program *p)
{
	char *word = strtok(line + 2, " \t\n");
	char *argument = strtok(NULL, " \t\n"), *argv[] = { word, NULL };
	const char *base = word ? strrchr(word, '/') : NULL;

	if (!word)
		return say(p, PROGRAM_UNKNOWN, "names no interpreter behind #!");
	if (base && strcmp(base, "/env") == 0 && argument && *argument != '-')
		argv[0] = argument;
	return program_look(argv, p);
}

/* Programs that are known for not passing LD_PRELOAD on. */
static bool scrubs(char *const *argv, struct program *p)
{
	static const char *const names[] = {
		"sudo",	  "su",	    "doas",   "pkexec", "runuser",
		"chroot", "docker", "podman", "ssh",	"systemd-run"
	};
	const char *base = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(base, names[i]) != 0)
			continue;
		say(p, PROGRAM_SCRUBS, "does not pass LD_PRELOAD on: put 'arenactl run' behind it");
		return true;
	}
	for (size_t i = 1; strcmp(base, "env") == 0 && argv[i] && argv[i][0] == '-'; i++) {
		if (strcmp(argv[i], "-i") != 0 && strcmp(argv[i], "-") != 0 &&
		    strcmp(argv[i], "--ignore-environment") != 0 &&
		    strcmp(argv[i], "-uLD_PRELOAD") != 0)
			continue;
		say(p, PROGRAM_SCRUBS, "drops LD_PRELOAD here: put 'arenactl run' behind it");
		return true;
	}
	return false;
}

enum program_kind program_look(char *const *argv, struct program *p)
{
	static unsigned depth; /* an interpreter may be a script itself, once */
	char head[256] = "";
	enum program_kind kind;
	ssize_t bytes;
	int fd;

	p->why[0] = '\0';
	if (!find_in_path(argv[0], p->path)) {
		snprintf(p->why, sizeof(p->why), "%s cannot be started: %s", argv[0],
			 strerrordesc_np(errno));
		p->kind = PROGRAM_ABSENT;
		return p->kind;
	}
	if (scrubs(argv, p))
		return p->kind;
	fd = open(p->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || (bytes = pread(fd, head, sizeof(head) - 1, 0)) < 0)
		kind = say(p, PROGRAM_UNKNOWN,
			   "cannot be read: whether it can be watched is not known");
	else if (bytes == 0)
		kind = say(p, PROGRAM_UNKNOWN, "is an empty file: there is nothing to watch");
	else if (memcmp(head, ELFMAG, SELFMAG) == 0)
		kind = look_elf(fd, p);
	else if (strncmp(head, "#!", 2) == 0 && depth < 2)
		kind = (depth++, look_script(head, p));
	else
		kind = say(p, PROGRAM_UNKNOWN, "is neither an ELF program nor a script");
	depth = 0;
	if (fd >= 0)
		close(fd);
	return kind;
}
