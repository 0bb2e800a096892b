/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver in which every call succeeds and does nothing: what is left of the time of a call is
 * the cost of getting there. Each function is weak; driver_story.c replaces the few that must
 * answer something. Any thread.
 */
#include "shim/hooks.h"

#define EMPTY(symbol, params)                                                       \
	__attribute__((weak, visibility("default"))) CUresult CUDAAPI symbol params \
	{                                                                           \
		return CUDA_SUCCESS;                                                \
	}

#define HOOK(base, suffix, since, stream, family, kind, doc, params, args) \
	EMPTY(base##suffix##stream, params)
#define USE(symbol, params, args) EMPTY(symbol, params)
#include "shim/hooks.def"
#include "shim/uses.def"
