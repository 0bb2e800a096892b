/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the file of a module may lie, and whether it is that of the report.
 *
 * Order: the folders that the user named, the path in the report, the folder of distributions. A
 * file counts only when its build-id is the one of the report; without one in the report, the file
 * is taken by its name, and that is said. One thread.
 */
#include "symbol_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libelf.h>
#include <elfutils/libdwelf.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* As hexadecimal text: of at most 64 bytes, as the shim reads them. */
#define BUILD_ID_CHARS 128

struct search {
	const struct symbol_ref *ref;
	const char *build_id; /* NULL: none that can be compared */
	const char *base;     /* last part of the path */
	struct symbol_answer *a;
	char *path; /* of the candidate */
};

/* What comes out of a report is used in a path: hexadecimal digits only. */
static bool is_build_id(const char *id)
{
	size_t chars = id ? strlen(id) : 0;

	return chars >= 4 && chars <= BUILD_ID_CHARS && strspn(id, "0123456789abcdef") == chars;
}

static void read_build_id(int fd, char *out)
{
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	const void *id = NULL;
	ssize_t bytes = elf ? dwelf_elf_gnu_build_id(elf, &id) : -1;

	*out = '\0';
	for (ssize_t i = 0; i < bytes && i < BUILD_ID_CHARS / 2; i++)
		sprintf(out + 2 * i, "%02x", ((const unsigned char *)id)[i]);
	elf_end(elf);
}

/* The start of a build-id is enough for a human. */
#define SHOWN_CHARS 12

static void say_other(struct search *s, const char *found)
{
	/* The path of the report says most; a later candidate does not replace it. */
	if (s->a->state == SYMBOL_OTHER_BUILD)
		return;
	s->a->state = SYMBOL_OTHER_BUILD;
	snprintf(s->a->why, sizeof(s->a->why),
		 "%.3000s is another build (build-id %.*s, the report has %.*s): name a folder "
		 "with the right one by --symbols",
		 s->path, SHOWN_CHARS, *found ? found : "none", SHOWN_CHARS, s->build_id);
}

/* A name in a report must not make us open a device, or wait for a pipe. */
static int open_regular(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Is s->path the file? @return its descriptor, or -1. */
static int try_path(struct search *s)
{
	char found[BUILD_ID_CHARS + 1];
	int fd = open_regular(s->path);

	if (fd < 0)
		return -1;
	if (!s->build_id) {
		s->a->is_unverified = true;
		return fd;
	}
	read_build_id(fd, found);
	if (strcmp(found, s->build_id) == 0)
		return fd;
	say_other(s, found);
	close(fd);
	return -1;
}

/* A folder as debuggers know it: by the build-id, else by name. */
static int try_folder(struct search *s, const char *folder, int chars)
{
	static const char *const by_name[] = { "%.*s/%s", "%.*s/%s.debug" };
	int fd = -1;

	for (size_t i = 0; i < 2 && s->build_id && fd < 0; i++) {
		snprintf(s->path, SYMBOL_TEXT_MAX, "%.*s/.build-id/%.2s/%s%s", chars, folder,
			 s->build_id, s->build_id + 2, i ? "" : ".debug");
		fd = try_path(s);
	}
	for (size_t i = 0; i < 2 && fd < 0; i++) {
		snprintf(s->path, SYMBOL_TEXT_MAX, by_name[i], chars, folder, s->base);
		fd = try_path(s);
	}
	if (fd < 0 && s->ref->path[0] == '/') {
		snprintf(s->path, SYMBOL_TEXT_MAX, "%.*s%s", chars, folder, s->ref->path);
		fd = try_path(s);
	}
	return fd;
}

static int try_folders(struct search *s, const char *folders)
{
	int fd = -1;

	while (folders && *folders && fd < 0) {
		size_t chars = strcspn(folders, ":");

		if (chars)
			fd = try_folder(s, folders, (int)chars);
		folders += chars + (folders[chars] == ':');
	}
	return fd;
}

/* The path in the report, on this machine. What is below /proc is this process, not that one. */
static int try_own_path(struct search *s)
{
	if (s->ref->path[0] != '/' || strncmp(s->ref->path, "/proc/", 6) == 0)
		return -1;
	snprintf(s->path, SYMBOL_TEXT_MAX, "%s", s->ref->path);
	return try_path(s);
}

int symbol_file_open(const struct symbol_ref *ref, const char *folders, struct symbol_answer *a,
		     char *path)
{
	const char *slash = strrchr(ref->path, '/');
	struct search s = { ref, is_build_id(ref->build_id) ? ref->build_id : NULL,
			    slash ? slash + 1 : ref->path, a, path };
	int fd = try_folders(&s, folders);

	a->state = fd < 0 && a->state != SYMBOL_OTHER_BUILD ? SYMBOL_NO_FILE : a->state;
	if (fd < 0)
		fd = try_own_path(&s);
	if (fd < 0 && s.build_id) {
		snprintf(path, SYMBOL_TEXT_MAX, "/usr/lib/debug/.build-id/%.2s/%s.debug",
			 s.build_id, s.build_id + 2);
		fd = try_path(&s);
	}
	if (fd >= 0) {
		a->state = SYMBOL_FOUND;
		*a->why = '\0';
	}
	if (a->is_unverified)
		snprintf(a->why, sizeof(a->why),
			 "the report has no build-id of %.3000s: names are from %.900s, which may "
			 "be another build",
			 ref->path, path);
	else if (a->state == SYMBOL_NO_FILE)
		snprintf(a->why, sizeof(a->why),
			 "%.3000s is not on this machine: name a folder that has it by --symbols",
			 ref->path);
	return fd;
}
