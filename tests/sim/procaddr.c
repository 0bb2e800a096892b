/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuGetProcAddress: the newest ABI of a name that is not newer than the version asked for. Built
 * once per variant of the library. Any thread; reads constants only.
 */
#include "tests/sim/sim.h"

#include <string.h>

/* The newest row of @base up to @version; a per-thread one is preferred if wanted. *known: is the
 * name one of this driver's at all? */
static const struct row *find(const char *base, unsigned version, bool per_thread, bool *known)
{
	const struct row *best = NULL;

	*known = false;
	for (int i = 0; i < SIM_ROWS; i++) {
		const struct row *r = &sim_rows[i];

		if (!r->entry || strcmp(r->base, base))
			continue;
		*known = true;
		if (r->since > version || (r->per_thread && !per_thread))
			continue;
		if (!best || r->since > best->since ||
		    (r->since == best->since && r->per_thread > best->per_thread))
			best = r;
	}
	return best;
}

#ifdef SIM_UNNAMED_ABI
/* An ABI that this toolkit does not know: no symbol names it, only the look-up at 14000 hands it
 * out. */
static CUresult unnamed_mem_alloc(CUdeviceptr *out, size_t size, unsigned long long flags)
{
	CUresult rc;

	if (!sim_enter(SIM_cuMemAlloc_v2, &rc))
		return rc;
	return sim_leave(SIM_cuMemAlloc_v2, do_cuMemAlloc_v2(out, size));
}

static void *unnamed(const char *base, int version)
{
	return version >= 14000 && !strcmp(base, "cuMemAlloc") ? (void *)unnamed_mem_alloc : NULL;
}
#else
static void *unnamed(const char *base, int version)
{
	return NULL;
}
#endif

/*
 * cuda.h says that an unknown name is a success with a NULL pointer; drivers answer
 * CUDA_ERROR_NOT_FOUND. "If the specified CUDA version is greater than the driver version, the API
 * will return CUDA_ERROR_INVALID_VALUE." The status may be NULL, and the runtime passes NULL.
 */
CUresult do_cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
				CUdriverProcAddressQueryResult *status)
{
	CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	const struct row *row;
	bool known;

	if (!symbol || !pfn || version > (int)sim_version || flags > 2)
		return CUDA_ERROR_INVALID_VALUE;
	*pfn = unnamed(symbol, version);
	row = find(symbol, (unsigned)version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
		   &known);
	if (row && !*pfn)
		*pfn = row->entry;
	if (*pfn)
		result = CU_GET_PROC_ADDRESS_SUCCESS;
	else if (known)
		result = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
	if (status)
		*status = result;
	return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult do_cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	return do_cuGetProcAddress_v2(symbol, pfn, version, flags, NULL);
}
