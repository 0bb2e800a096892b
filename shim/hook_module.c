/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: __device__ and __managed__ variables. They open when somebody asks for their address - no
 * graph can hold it otherwise, but through the code that owns it - and close with their module
 * or library. Asking again, also through the other of the two, changes nothing.
 *
 * Threads: any. Two first questions for one variable are serialised, so that it opens once.
 */
#include <pthread.h>

#include "shim/params.h"
#include "shim/record.h"

static pthread_mutex_t ask_lock = PTHREAD_MUTEX_INITIALIZER;

static void global_opened(uint64_t base, uint64_t size_bytes, void *owner)
{
	pthread_mutex_lock(&ask_lock);
	record_open_once(RANGE_GLOBAL, base, size_bytes, (uint64_t)(uintptr_t)owner);
	pthread_mutex_unlock(&ask_lock);
}

/*
 * Either out-pointer may be NULL. The size is needed: where the caller does not want it, it is
 * asked for all the same, into a variable of our own.
 */
CUresult CUDAAPI cuModuleGetGlobal(CUdeviceptr_v1 *dptr, unsigned int *bytes, CUmodule hmod,
				   const char *name)
{
	bool on = record_on(cuModuleGetGlobal) && dptr != NULL;
	unsigned int own_bytes = 0, *size = on && bytes == NULL ? &own_bytes : bytes;
	CUresult rc = REAL(cuModuleGetGlobal)(dptr, size, hmod, name);

	if (on && rc == CUDA_SUCCESS)
		global_opened(*dptr, *size, hmod);
	return rc;
}

CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod,
				      const char *name)
{
	bool on = record_on(cuModuleGetGlobal_v2) && dptr != NULL;
	size_t own_bytes = 0, *size = on && bytes == NULL ? &own_bytes : bytes;
	CUresult rc = REAL(cuModuleGetGlobal_v2)(dptr, size, hmod, name);

	if (on && rc == CUDA_SUCCESS)
		global_opened(*dptr, *size, hmod);
	return rc;
}

CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
				    const char *name)
{
	bool on = record_on(cuLibraryGetGlobal) && dptr != NULL;
	size_t own_bytes = 0, *size = on && bytes == NULL ? &own_bytes : bytes;
	CUresult rc = REAL(cuLibraryGetGlobal)(dptr, size, library, name);

	if (on && rc == CUDA_SUCCESS)
		global_opened(*dptr, *size, library);
	return rc;
}

CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
				     const char *name)
{
	bool on = record_on(cuLibraryGetManaged) && dptr != NULL;
	size_t own_bytes = 0, *size = on && bytes == NULL ? &own_bytes : bytes;
	CUresult rc = REAL(cuLibraryGetManaged)(dptr, size, library, name);

	if (on && rc == CUDA_SUCCESS)
		global_opened(*dptr, *size, library);
	return rc;
}

CUresult CUDAAPI cuModuleUnload(CUmodule hmod)
{
	bool on = record_on(cuModuleUnload);
	struct unmap_batch b = { 0 };
	CUresult rc;

	if (on) {
		b = record_close_scope(RANGE_GLOBAL, (uint64_t)(uintptr_t)hmod);
		params_forget_all();
	}
	rc = REAL(cuModuleUnload)(hmod);
	if (on) {
		params_forget_all(); /* as another thread may have asked in between */
		record_closed_scope(&b, rc);
	}
	return rc;
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary library)
{
	bool on = record_on(cuLibraryUnload);
	struct unmap_batch b = { 0 };
	CUresult rc;

	if (on) {
		b = record_close_scope(RANGE_GLOBAL, (uint64_t)(uintptr_t)library);
		params_forget_all();
	}
	rc = REAL(cuLibraryUnload)(library);
	if (on) {
		params_forget_all(); /* as another thread may have asked in between */
		record_closed_scope(&b, rc);
	}
	return rc;
}
