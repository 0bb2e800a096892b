/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Next to other preloads (lib_next.c, lib_dlsym.c, a second copy of the shim), in any order:
 * look-ups still give the wrappers of the first copy, the neighbours still work and are called.
 *
 *	neighbours [next] [dlsym]	which neighbours are expected
 */
#include "check.h"

#include <unistd.h>

static const char *in_front;

/* Before anything was looked up. */
__attribute__((constructor)) static void ask_early(void)
{
	in_front = getenv("NEIGHBOUR_IN_FRONT");
}

static void check_next(void)
{
	unsigned *calls = dlsym(RTLD_DEFAULT, "lib_next_calls");
	void **found = dlsym(RTLD_DEFAULT, "lib_next_found");
	void **versioned = dlsym(RTLD_DEFAULT, "lib_next_found_versioned");
	unsigned *asked = dlsym(RTLD_DEFAULT, "lib_next_asked"), before = asked ? *asked : 0;
	const char *value;

	gethostid();
	CHECK(calls && *calls == 1, "gethostid() came by %u times", calls ? *calls : 0);
	CHECK(found && strncmp(object_of(*found), "libc.so", 7) == 0, "RTLD_NEXT found %s",
	      found ? object_of(*found) : "nothing");
	CHECK(versioned && strncmp(object_of(*versioned), "libc.so", 7) == 0,
	      "dlvsym(RTLD_NEXT) found %s", versioned ? object_of(*versioned) : "nothing");
	CHECK(setenv("NEIGHBOUR", "asked", 1) == 0, "no memory");
	value = getenv("NEIGHBOUR"); /* once: a compiler may make one call of two */
	CHECK(value && strcmp(value, "asked") == 0, "getenv() found %s", value ? value : "nothing");
	CHECK(in_front && strcmp(in_front, "lib_next") == 0, "getenv() found %s at first",
	      in_front ? in_front : "nothing");
	CHECK(asked && *asked == before + 1, "getenv() came by %u times",
	      asked ? *asked - before : 0);
}

int main(int argc, char **argv)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *p = NULL;
	gpa_v2_fn gpa = driver ? (gpa_v2_fn)dlsym(driver, "cuGetProcAddress_v2") : NULL;

	if (!gpa) {
		fprintf(stderr, "no driver\n");
		return EXIT_FAILURE;
	}
	CHECK((void *)gpa == wrapper_of("cuGetProcAddress_v2"), "%s", object_of((void *)gpa));
	CHECK(dlsym(driver, "cuMemAlloc_v2") == wrapper_of("cuMemAlloc_v2"), "%s",
	      object_of(dlsym(driver, "cuMemAlloc_v2")));
	gpa("cuGraphLaunch", &p, 13000, FLAGS_PER_THREAD, NULL);
	CHECK(p == wrapper_of("cuGraphLaunch_ptsz"), "%s", object_of(p));
	CHECK(dlsym(driver, "cuNoSuchThing") == NULL && dlerror(), "an unknown name is found");

	for (int i = 1; i < argc; i++) {
		unsigned *calls = dlsym(RTLD_DEFAULT, "lib_dlsym_calls");

		if (strcmp(argv[i], "next") == 0)
			check_next();
		else
			CHECK(calls && *calls > 0, "the other dlsym was not called");
	}
	return check_result();
}
