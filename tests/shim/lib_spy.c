/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded before the shim, notes every cuGetProcAddress_v2 that somebody makes who got the
 * function by dlsym, as every copy of the CUDA runtime does: what was asked, what the shim said.
 */
#include "lib_spy.h"

#include <dlfcn.h>
#include <string.h>

#define EXPORT	__attribute__((visibility("default")))

typedef void *(*dlsym_fn)(void *handle, const char *name);

EXPORT struct spy_call spy_calls[SPY_CALLS_MAX];
EXPORT unsigned spy_count;

static int (*shim_gpa)(const char *, void **, int, unsigned long, int *);

static int noting_gpa(const char *symbol, void **pfn, int version, unsigned long flags, int *status)
{
	int rc = shim_gpa(symbol, pfn, version, flags, status);

	if (spy_count < SPY_CALLS_MAX) {
		struct spy_call *c = &spy_calls[spy_count++];

		strncpy(c->symbol, symbol, sizeof(c->symbol) - 1);
		c->version = version;
		c->flags = flags;
		c->rc = rc;
		c->has_status = status != NULL;
		c->answer = rc == 0 ? *pfn : NULL;
	}
	/* The runtime asks for the function itself, and goes on with that. */
	if (rc == 0 && *pfn == (void *)shim_gpa)
		*pfn = (void *)noting_gpa;
	return rc;
}

EXPORT void *dlsym(void *handle, const char *name)
{
	static dlsym_fn next;

	if (!next)
		next = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	if (handle == RTLD_NEXT || strcmp(name, "cuGetProcAddress_v2") != 0)
		return next(handle, name);
	shim_gpa = (int (*)(const char *, void **, int, unsigned long, int *))next(handle, name);
	return shim_gpa ? (void *)noting_gpa : NULL;
}
