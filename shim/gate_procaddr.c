/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuGetProcAddress, both generations: the driver answers, and a pointer that is one of ours by
 * address becomes the wrapper. Version choice, flags and status stay the driver's. Any thread.
 */
#include "shim/gate.h"
#include "shim/hooks.h"

static CUresult translate(CUresult rc, const char *symbol, void **pfn)
{
	if (rc == CUDA_SUCCESS && symbol && pfn && *pfn)
		*pfn = gate_from_driver(symbol, *pfn);
	return rc;
}

CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	HOOK_ENTER(cuGetProcAddress);
	return translate(REAL(cuGetProcAddress)(symbol, pfn, version, flags), symbol, pfn);
}

/* @status may be NULL, and is for cudart. */
CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
				     CUdriverProcAddressQueryResult *status)
{
	HOOK_ENTER(cuGetProcAddress_v2);
	return translate(REAL(cuGetProcAddress_v2)(symbol, pfn, version, flags, status), symbol,
			 pfn);
}
