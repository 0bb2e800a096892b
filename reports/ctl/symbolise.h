/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a native frame of a report is called: function, file, line, inlined callers.
 *
 * The report has module, build-id and offset; names are found here, on any machine that has the
 * files, and never in the process that was watched. A file of another build is not used: its names
 * would be lies. Files are read by a child process, so that one that is made to crash or to stall
 * a reader of debug information costs its own frames only.
 *
 * Threads: one only, that of the tool.
 */
#ifndef CTL_SYMBOLISE_H
#define CTL_SYMBOLISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most callers that one address stands for (inlined into one another). */
#define SYMBOL_FRAMES_MAX 16

/* As a report has it: "module" and "stack" of arena-report(5). */
struct symbol_ref {
	const char *path;     /* NULL or "": the frame lies in no module */
	const char *build_id; /* hexadecimal; NULL or "": not known */
	uint64_t offset;      /* from the load bias; where the call returns to */
};

enum symbol_state {
	SYMBOL_FOUND,	    /* at[] says what it is */
	SYMBOL_OFF,	    /* not looked for */
	SYMBOL_NO_FILE,	    /* the module is not on this machine */
	SYMBOL_OTHER_BUILD, /* it is, but as another build */
	SYMBOL_UNREADABLE,  /* it is no ELF file that can be read */
	SYMBOL_NO_NAME,	    /* it was read, and does not name the address */
};

struct symbol_frame {
	const char *function; /* demangled */
	const char *file;     /* NULL: not known */
	unsigned line;	      /* 0: not known */
	bool is_inlined;      /* into the next one */
};

struct symbol_frames {
	enum symbol_state state;
	bool is_unverified; /* the report has no build-id: the file may be another build */
	const char *place;  /* "libtorch.so+0x1234", always */
	const char *why;    /* one line for a human; NULL: nothing to say */
	size_t count;	    /* innermost first; 0 unless found */
	struct symbol_frame at[SYMBOL_FRAMES_MAX];
};

/*
 * @brief Begin. Without it, or with @enabled false, frames stay module and offset.
 * @param folders where to look first, separated by colons, each for .build-id/xx/yyyy.debug and for
 * files of the module's name; NULL: none.
 */
void symbolise_init(bool enabled, const char *folders);
/* @param out strings in it are good until symbolise_end(). */
void symbolise(const struct symbol_ref *ref, struct symbol_frames *out);
/* @brief The name as it was written, of a C++ or CUDA function. @return @name itself if it is not
 * mangled, or cannot be read; else good until symbolise_end(). */
const char *symbolise_name(const char *name);
/*
 * @brief Say on stderr, once a module, whose names were not used, or may be another build's.
 * @param command for the beginning of the line. Modules that are not here are not named.
 */
void symbolise_notes(const char *command);
void symbolise_end(void);

#endif
