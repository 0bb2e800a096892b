/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A21, tkestack/vcuda-controller#31, Project-HAMi/HAMi-core#233 and others: each way to ask for
 * an entry point must give the wrapper, and what does not exist must look as it does without the
 * library. (tests/shim walks every row; this is the scenario of the report.)
 */
#include "victim.h"

#include <dlfcn.h>
#include <string.h>

typedef CUresult (*ask_fn)(const char *, void **, int, cuuint64_t,
			   CUdriverProcAddressQueryResult *);

static const char *const names[] = {
	"cuMemAlloc",
	"cuMemFree",
	"cuMemAllocAsync",
	"cuMemMap",
	"cuMemUnmap",
	"cuGraphLaunch",
	"cuGraphInstantiateWithFlags",
	"cuGraphExecUpdate",
	"cuLaunchKernelEx",
};
static const cuuint64_t flags[] = {
	0,
	CU_GET_PROC_ADDRESS_LEGACY_STREAM,
	CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
};

static bool preloaded(void)
{
	const char *p = getenv("LD_PRELOAD");

	return p && strstr(p, "arena_shim");
}

/* With the library: in the library. Without it: anywhere but there. */
static bool lies_right(void *f)
{
	Dl_info info;

	return f && dladdr(f, &info) &&
	       (strstr(info.dli_fname, "arena_shim") != NULL) == preloaded();
}

static void ask_all(ask_fn ask)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		for (size_t k = 0; k < sizeof(flags) / sizeof(flags[0]); k++) {
			void *f = NULL;

			CK(ask(names[i], &f, 12040, flags[k], NULL));
			MUST(lies_right(f));
		}
	}
}

static void routes(void)
{
	CUdriverProcAddressQueryResult st = CU_GET_PROC_ADDRESS_SUCCESS;
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *f = NULL, *none = NULL;
	ask_fn ask;

	MUST(lib != NULL);
	f = dlsym(lib, "cuGetProcAddress_v2");
	MUST(lies_right(f));
	ask = (ask_fn)f;
	ask_all(ask);
	/* The look-up asked for itself. */
	CK(ask("cuGetProcAddress", &f, 12000, 0, NULL));
	MUST(lies_right(f));
	ask_all((ask_fn)f);
	MUST(lies_right(dlsym(lib, "cuMemAlloc_v2")));
	MUST(lies_right(dlsym(RTLD_DEFAULT, "cuGraphLaunch_ptsz")));
	tell("unknown", ask("cuNoSuchThing", &none, 12040, 0, &st));
	tell("unknown-status", st);
	MUST(none == NULL);
	MUST(dlsym(lib, "cuNoSuchThing") == NULL);
}

VICTIM({ "routes", routes });
