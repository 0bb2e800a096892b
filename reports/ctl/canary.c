/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canary: this program itself, preloaded like any other, uses CUDA by every route, for arenactl
 * doctor to see what the library made of it. It knows nothing of the library but arena_abi().
 *
 * A line for each fact: "abi N" (-1: the library is not there, 0: the no-op build); "driver
 * VERSION"; "failed CALL RESULT"; "route NAME ADDRESS" of memory that was allocated and freed. One
 * thread.
 */
#include "canary.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BYTES (1U << 20)

typedef int (*call_fn)(void);
typedef int (*init_fn)(unsigned flags);
typedef int (*version_fn)(int *version);
typedef int (*device_fn)(int *device, int ordinal);
typedef int (*retain_fn)(void **context, int device);
typedef int (*current_fn)(void *context);
typedef int (*release_fn)(int device);
typedef int (*alloc_fn)(uint64_t *address, size_t bytes);
typedef int (*free_fn)(uint64_t address);
typedef int (*look_up_fn)(const char *name, void **function, int version, uint64_t flags,
			  int *status);

/* @return 0; else it was said. */
static int failed(const char *call, int result)
{
	if (result)
		printf("failed %s %d\n", call, result);
	return result;
}

static void *must_find(void *driver, const char *name)
{
	void *found = dlsym(driver, name);

	if (!found)
		printf("failed %s 500\n", name);
	return found;
}

static int begin(void *driver, int *device)
{
	init_fn init = (init_fn)must_find(driver, "cuInit");
	version_fn version = (version_fn)must_find(driver, "cuDriverGetVersion");
	device_fn get = (device_fn)must_find(driver, "cuDeviceGet");
	retain_fn retain = (retain_fn)must_find(driver, "cuDevicePrimaryCtxRetain");
	current_fn set_current = (current_fn)must_find(driver, "cuCtxSetCurrent");
	void *context = NULL;
	int number = 0;

	if (!init || !version || !get || !retain || !set_current)
		return -1;
	if (version(&number) == 0)
		printf("driver %d\n", number);
	if (failed("cuInit", init(0)) || failed("cuDeviceGet", get(device, 0)) ||
	    failed("cuDevicePrimaryCtxRetain", retain(&context, *device)))
		return -1;
	return failed("cuCtxSetCurrent", set_current(context));
}

static void use(const char *route, void *alloc, void *release)
{
	uint64_t address = 0;

	if (!alloc || !release) {
		printf("failed %s 500\n", route);
		return;
	}
	if (failed(route, ((alloc_fn)alloc)(&address, BYTES)))
		return;
	printf("route %s 0x%llx\n", route, (unsigned long long)address);
	failed(route, ((free_fn)release)(address));
}

static void use_look_up(void *driver)
{
	look_up_fn look_up = (look_up_fn)dlsym(driver, "cuGetProcAddress_v2");
	void *alloc = NULL, *release = NULL;
	int status;

	/* A driver older than CUDA 12 has no such route. */
	if (!look_up)
		return;
	if (failed("cuGetProcAddress", look_up("cuMemAlloc", &alloc, 3020, 0, &status)) == 0 &&
	    failed("cuGetProcAddress", look_up("cuMemFree", &release, 3020, 0, &status)) == 0)
		use("cuGetProcAddress", alloc, release);
}

int canary_main(bool uses_cuda)
{
	call_fn abi = (call_fn)dlsym(RTLD_DEFAULT, "arena_abi");
	release_fn release;
	void *driver, *alloc;
	int device = 0;

	/* Every build has the second one. */
	printf("abi %d\n", abi ? abi() : dlsym(RTLD_DEFAULT, "cuGraphLaunch") ? 0 : -1);
	if (!uses_cuda)
		return 0;
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!driver) {
		printf("failed dlopen 0\n");
		return 0;
	}
	if (begin(driver, &device) != 0)
		return 0;
	alloc = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
	use("symbol", alloc, dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
	use("dlsym", dlsym(driver, "cuMemAlloc_v2"), dlsym(driver, "cuMemFree_v2"));
	use_look_up(driver);
	release = (release_fn)dlsym(driver, "cuDevicePrimaryCtxRelease_v2");
	if (release)
		release(device);
	return 0;
}
