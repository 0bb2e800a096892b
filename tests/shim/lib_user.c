/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that NEEDs libcuda and calls it directly. Its constructor initialises CUDA, which may
 * be before anything of a preloaded library ran.
 */
#include <cuda.h>
#include <dlfcn.h>

#define EXPORT	__attribute__((visibility("default")))

EXPORT CUresult lib_user_init = CUDA_ERROR_UNKNOWN;

__attribute__((constructor)) static void early(void)
{
	lib_user_init = cuInit(0);
}

EXPORT void *lib_user_mem_alloc(void);
EXPORT void *lib_user_dlsym(void);

/* The address that this object's own calls of cuMemAlloc go to, and its own dlsym. */
void *lib_user_mem_alloc(void)
{
	return (void *)cuMemAlloc;
}

void *lib_user_dlsym(void)
{
	return (void *)dlsym;
}
