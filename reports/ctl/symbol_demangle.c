/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of C++ and CUDA functions, by the demangler of whichever C++ runtime is installed: the
 * tool itself is not linked with one. One thread, that of the child (symbol_reader.h).
 */
#include <dlfcn.h>
#include <string.h>

#include "symbol_reader.h"

typedef char *(*demangle_fn)(const char *mangled, char *buffer, size_t *bytes, int *status);

static demangle_fn find_demangler(void)
{
	static const char *const runtimes[] = { "libstdc++.so.6", "libc++abi.so.1", "libc++.so.1" };

	for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++) {
		void *handle = dlopen(runtimes[i], RTLD_LAZY | RTLD_LOCAL);
		void *found = handle ? dlsym(handle, "__cxa_demangle") : NULL;

		if (found)
			return (demangle_fn)found;
	}
	return NULL;
}

char *symbol_demangle(const char *name)
{
	static demangle_fn demangle;
	static bool was_sought;
	int status = 0;

	/* Else "i" would be the type int. */
	if (strncmp(name, "_Z", 2) != 0)
		return NULL;
	if (!was_sought)
		demangle = find_demangler();
	was_sought = true;
	return demangle ? demangle(name, NULL, NULL, &status) : NULL;
}
