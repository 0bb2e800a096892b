/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another interposer of dlsym. Compiled with optimisation it jumps on, like the shim; compiled with
 * -DNAIVE it calls on and so becomes the caller that the C library sees. It finds the next dlsym
 * by dlvsym, as HAMi and others do.
 */
#include <dlfcn.h>

#define EXPORT	__attribute__((visibility("default")))

typedef void *(*dlsym_fn)(void *handle, const char *name);

EXPORT unsigned lib_dlsym_calls;

EXPORT void *dlsym(void *handle, const char *name)
{
	static dlsym_fn next;

	lib_dlsym_calls++;
	if (!next)
		next = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
#ifdef NAIVE
	void *volatile answer = next(handle, name);

	return answer;
#else
	return next(handle, name);
#endif
}
