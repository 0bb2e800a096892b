/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported dlsym, dlvsym, dlopen and dlmopen.
 *
 * They forward by a tail jump, so that the C library sees the true caller: RTLD_NEXT,
 * RTLD_DEFAULT, $ORIGIN and namespaces depend on it. This file is compiled with -O2 and without
 * instrumentation in every build; tests/shim checks the jump from a third library.
 *
 * They carry the symbol versions of the C library's own: an interposer that was preloaded before
 * the shim and asks dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5") for the next in line, as many do,
 * would not be given an unversioned symbol and so pass the shim by (gate_dlsym.map.in has the
 * version nodes).
 *
 * Only an answer for an explicit handle and a name of hooks.def or guests.def is looked at:
 * RTLD_DEFAULT and RTLD_NEXT find the wrappers by search order. Any thread, also before
 * constructors ran.
 */
#include "shim/coverage.h"
#include "shim/elf.h"
#include "shim/gate.h"

#define EXPORT	__attribute__((visibility("default")))

/* Export @function as @name under the first version of the C library, and under its newest. */
#define EXPORT_VERSIONS(function, name)                                                       \
	EXPORT __typeof__(name) function##_first __attribute__((alias(#function)));           \
	__asm__(".symver " #function "_first," #name "@" GLIBC_FIRST ",remove");              \
	__asm__(".symver " #function "," #name "@@GLIBC_2.34,remove")

/* The row whose answer is to be looked at, or -1. */
static int row_of(void *handle, const char *name)
{
	return handle == RTLD_DEFAULT || handle == RTLD_NEXT ? -1 : gate_row(name);
}

static bool is_cupti(void *handle, const char *name)
{
	return handle != RTLD_DEFAULT && handle != RTLD_NEXT && gate_guest != NULL &&
	       name[0] == 'c' && name[1] == 'u' && name[2] == 'p' && name[3] == 't' &&
	       name[4] == 'i';
}

EXPORT __typeof__(dlsym) gate_dlsym;
EXPORT void *gate_dlsym(void *handle, const char *name)
{
	const struct dl_functions *next = elf_next();
	int row = row_of(handle, name);
	void *p;

	if (row < 0 && !is_cupti(handle, name))
		return load_relaxed(&next->dlsym)(handle, name);
	p = load_relaxed(&next->dlsym)(handle, name);
	if (row < 0)
		return p ? gate_guest(name, p) : NULL;
	return p ? gate_from_symbol(row, p) : NULL;
}
EXPORT_VERSIONS(gate_dlsym, dlsym);

EXPORT __typeof__(dlvsym) gate_dlvsym;
EXPORT void *gate_dlvsym(void *handle, const char *name, const char *version)
{
	const struct dl_functions *next = elf_next();
	int row = row_of(handle, name);
	void *p;

	if (row < 0)
		return load_relaxed(&next->dlvsym)(handle, name, version);
	p = load_relaxed(&next->dlvsym)(handle, name, version);
	return p ? gate_from_symbol(row, p) : NULL;
}
EXPORT_VERSIONS(gate_dlvsym, dlvsym);

EXPORT __typeof__(dlopen) gate_dlopen;
EXPORT void *gate_dlopen(const char *file, int mode)
{
	if (mode & RTLD_DEEPBIND)
		coverage_count(DEEPBIND_OPENED);
	return load_relaxed(&elf_next()->dlopen)(file, mode);
}
EXPORT_VERSIONS(gate_dlopen, dlopen);

EXPORT void *dlmopen(Lmid_t lmid, const char *file, int mode)
{
	if (lmid != LM_ID_BASE)
		coverage_count(NAMESPACE_OPENED);
	return load_relaxed(&elf_next()->dlmopen)(lmid, file, mode);
}
