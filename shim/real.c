/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real driver: one self-replacing pointer per function.
 *
 * Each starts as lazy_<symbol>, which looks the export up in libcuda.so.1, stores it (or
 * absent_<symbol>, when this driver lacks it) and calls on; while there is no driver, it stays.
 * Threads that race store equal values. The handle of the driver is kept for ever. Look-ups are
 * made with the C library's own dlsym, so that neither the shim nor another preload answers. Any
 * thread.
 */
#include <errno.h>

#include "shim/elf.h"
#include "shim/hooks.h"

static void *_Atomic libcuda;

/* The driver that this process has loaded; loads it only if @load. */
static void *libcuda_handle(bool load)
{
	/* Pairs with the release below. */
	void *handle = load_acquire(&libcuda);

	if (handle)
		return handle;
	handle = load_relaxed(&elf_libc()->dlopen)("libcuda.so.1",
						   RTLD_LAZY | (load ? 0 : RTLD_NOLOAD));
	if (handle)
		store_release(&libcuda, handle);
	else
		dlerror();	/* the failure is ours, not to be found by the application */
	return handle;
}

static void *find(const char *symbol, bool load)
{
	int error = errno;
	void *handle = libcuda_handle(load), *p = NULL;

	if (handle) {
		p = load_relaxed(&elf_libc()->dlsym)(handle, symbol);
		if (!p)
			dlerror();
	}
	errno = error;
	return p;
}

void *real_loaded_symbol(const char *symbol)
{
	return find(symbol, false);
}

bool real_has(const char *symbol)
{
	return find(symbol, true) != NULL;
}

#define RESOLVER(symbol, params, args)                                                        \
	__attribute__((cold)) static CUresult absent_##symbol params                          \
	{                                                                                     \
		return CUDA_ERROR_NOT_FOUND;                                                  \
	}                                                                                     \
	__attribute__((cold)) static CUresult lazy_##symbol params                            \
	{                                                                                     \
		CUresult(*found) params = find(#symbol, true);                                \
                                                                                              \
		if (!found && !load_relaxed(&libcuda))                                        \
			return CUDA_ERROR_NOT_FOUND;                                          \
		if (!found)                                                                   \
			found = absent_##symbol;                                              \
		/* Pairs with the acquire in REAL(). */                                       \
		store_release(&real.symbol, found);                                           \
		return found args;                                                            \
	}

#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	RESOLVER(base##suffix##stream, params, args)
#define USE(symbol, params, args) RESOLVER(symbol, params, args)
#include "shim/hooks.def"
#include "shim/uses.def"
#undef HOOK
#undef USE

#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	.base##suffix##stream = lazy_##base##suffix##stream,
#define USE(symbol, params, args) .symbol = lazy_##symbol,
__attribute__((aligned(64))) struct real_driver real = {
#include "shim/hooks.def"
#include "shim/uses.def"
};
#undef HOOK
#undef USE
