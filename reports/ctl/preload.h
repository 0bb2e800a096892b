/* SPDX-License-Identifier: Apache-2.0 */
/* The library that is preloaded: where it is, whether it will load, what LD_PRELOAD becomes. One
 * thread. */
#ifndef CTL_PRELOAD_H
#define CTL_PRELOAD_H

#include <limits.h>
#include <stddef.h>

struct preload {
	char library[PATH_MAX];	 /* absolute */
	char *list;		 /* for LD_PRELOAD; for free() */
	int abi;		 /* of the library, 0: the no-op build */
	char why[2 * PATH_MAX];	 /* one line, when it cannot be used */
	char note[2 * PATH_MAX]; /* one line about what else was in LD_PRELOAD, or "" */
};

/*
 * @brief Find the library, try to load it in a child, and compose LD_PRELOAD.
 * @param named by the user, or NULL: the one that belongs to this program.
 * @return 0, or -1: p->why.
 */
int preload_find(const char *named, struct preload *p);

#endif
