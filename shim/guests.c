/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other users of CUPTI in this process: torch.profiler, JAX's profiler, a tool that was linked in.
 * There can be one subscriber, and the application's comes first: our window closes before its
 * call goes on to its own CUPTI, and stays closed while it is there.
 *
 * Two routes, as for the driver. Linked: the exported symbol is found first, and goes on to what
 * the caller would have found without it: in the global scope after us, else in the caller's own.
 * Looked up by dlsym: the gate hands out another function of ours, which goes on to the address
 * that was found. They are apart because one may lead to the other (a stub that looks its own name
 * up).
 *
 * Any thread, also inside a callback of the guest. Our own calls of CUPTI do not come by here.
 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "shim/cupti.h"
#include "shim/elf.h"
#include "shim/gate.h"
#include "shim/shim.h"

#define EXPORT		      __attribute__((visibility("default")))
#define ERROR_NOT_INITIALIZED 15 /* CUPTI_ERROR_NOT_INITIALIZED */

static bool is_on(void)
{
	return load_acquire(&shim_state) == SHIM_ON && !shim_inside;
}

static void comes(unsigned guest)
{
	if (is_on())
		cupti_guest(guest);
}

static void goes_if(bool gone)
{
	if (gone && is_on())
		cupti_guest_left(GUEST_SUBSCRIBER);
}

static void finalises(void)
{
	if (is_on())
		cupti_guest_finalised();
}

/* What the code at @caller would have bound @name to. */
static void *find_for(const void *caller, const char *name)
{
	const struct dl_functions *libc = elf_libc();
	void *p = load_relaxed(&libc->dlsym)(RTLD_NEXT, name), *handle;
	Dl_info where;

	if (!p && dladdr(caller, &where) &&
	    (handle = load_relaxed(&libc->dlopen)(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD))) {
		p = load_relaxed(&libc->dlsym)(handle, name);
		dlclose(handle);
	}
	if (!p)
		dlerror(); /* the failure is ours */
	return p;
}

#define GUEST(name, before, after, params, args)                                  \
	static int(*_Atomic looked_up_##name) params;                             \
	static int forward_##name params                                          \
	{                                                                         \
		int rc;                                                           \
                                                                                  \
		before;                                                           \
		rc = load_acquire(&looked_up_##name) args;                        \
		after;                                                            \
		return rc;                                                        \
	}                                                                         \
	EXPORT int name params;                                                   \
	int name params                                                           \
	{                                                                         \
		int rc = ERROR_NOT_INITIALIZED;                                   \
		int(*next) params = find_for(__builtin_return_address(0), #name); \
                                                                                  \
		if (!next)                                                        \
			return rc;                                                \
		before;                                                           \
		rc = next args;                                                   \
		after;                                                            \
		return rc;                                                        \
	}
#include "shim/guests.def"
#undef GUEST

void *gate_guest(const char *name, void *address)
{
#define GUEST(row, before, after, params, args)                          \
	if (strcmp(name, #row) == 0 && address != (void *)row) {         \
		/* Pairs with the acquire in forward_<name>(). */        \
		store_release(&looked_up_##row, (int(*) params)address); \
		return (void *)forward_##row;                            \
	}
#include "shim/guests.def"
#undef GUEST
	return address;
}
