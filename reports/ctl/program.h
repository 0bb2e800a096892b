/* SPDX-License-Identifier: Apache-2.0 */
/* A program, before it is started: can a preloaded library get into it at all? One thread. */
#ifndef CTL_PROGRAM_H
#define CTL_PROGRAM_H

#include <limits.h>

enum program_kind {
	PROGRAM_FITS,	    /* dynamically linked, glibc, 64-bit, no special rights */
	PROGRAM_ABSENT,	    /* not found, or not executable */
	PROGRAM_STATIC,	    /* has no dynamic linker */
	PROGRAM_MUSL,	    /* has another one */
	PROGRAM_OTHER_CPU,  /* 32-bit, or of another machine */
	PROGRAM_PRIVILEGED, /* setuid, setgid, capabilities: LD_PRELOAD is ignored */
	PROGRAM_SCRUBS,	    /* known to start others with an environment of its own */
	PROGRAM_UNKNOWN,    /* no ELF file, no script */
};

struct program {
	enum program_kind kind;
	char path[PATH_MAX];	  /* as found by PATH; of a script its interpreter */
	char why[PATH_MAX + 160]; /* one line, unless it fits */
};

/* @brief Look at what @argv would start. @return its kind. */
enum program_kind program_look(char *const *argv, struct program *p);

#endif
