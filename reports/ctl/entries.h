/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's entry points and what the library makes of them: the rows of shim/hooks.def and
 * shim/unhooked.def. Constant; any thread. */
#ifndef CTL_ENTRIES_H
#define CTL_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>

struct entry {
	const char *symbol;
	const char *family; /* "MEM"; NULL: not hooked */
	const char *what;   /* what the hook does; why there is none */
	unsigned since;	    /* as cuGetProcAddress() has it: 11030 is CUDA 11.3; 0: not hooked */
	bool is_followed;   /* false: counted and forwarded only */
};

/* Hooked ones first, each part sorted by name. */
extern const struct entry entries[];
extern const size_t entry_count;

#endif
