/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A third library. It interposes gethostid() and finds the real one by RTLD_NEXT, as many do. If
 * the shim's dlsym called on instead of jumping, RTLD_NEXT would mean "after the shim", which is
 * this library again when it is preloaded behind the shim.
 * It interposes getenv() as well, which the shim does, too: each asks the next one.
 * And it opens a library by its bare name, which the C library finds by the caller's own run path.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT	__attribute__((visibility("default")))

EXPORT unsigned lib_next_calls;
EXPORT void *lib_next_found, *lib_next_found_versioned;

EXPORT long gethostid(void)
{
	long (*next)(void) = (long (*)(void))dlsym(RTLD_NEXT, "gethostid");

	lib_next_found = (void *)next;
	lib_next_found_versioned = dlvsym(RTLD_NEXT, "gethostid", "GLIBC_2.2.5");
	if (++lib_next_calls > 1 || !next)
		return -1;
	return next();
}

EXPORT unsigned lib_next_asked;

EXPORT char *getenv(const char *name)
{
	char *(*next)(const char *) = (char *(*)(const char *))dlsym(RTLD_NEXT, "getenv");

	lib_next_asked++;
	if (strcmp(name, "NEIGHBOUR_IN_FRONT") == 0)
		return (char *)"lib_next";
	return next(name);
}

EXPORT void *lib_next_open(const char *name);

void *lib_next_open(const char *name)
{
	void *volatile handle = dlopen(name, RTLD_NOW);	/* volatile: a call, not a jump */

	return handle;
}
