/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expansions of hooks.def: ids, rows, typed pointers to the real driver. No logic.
 *
 * __CUDA_API_VERSION_INTERNAL turns off the renames of cuda.h, so that every ABI has its own name
 * here; the pragma exports exactly the wrappers, everything else in the shim is hidden.
 */
#ifndef SHIM_HOOKS_H
#define SHIM_HOOKS_H

#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "arena/atomics.h"

enum hook_family {
	FAMILY_LOOKUP, FAMILY_MEM, FAMILY_HOST, FAMILY_IPC, FAMILY_POOL, FAMILY_VMM, FAMILY_MODULE,
	FAMILY_CTX, FAMILY_CAPTURE, FAMILY_GRAPH, FAMILY_LAUNCH, FAMILY_TENSOR, FAMILY_SYNC,
	FAMILY_COPY, FAMILY_COUNT
};
enum hook_kind { KIND_PASS, KIND_BODY };

enum hook_id {
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	HOOK_##base##suffix##stream,
#include "shim/hooks.def"
#undef HOOK
	HOOK_COUNT
};

struct hook_row {
	const char *symbol, *base, *doc;
	unsigned since;
	bool per_thread;		/* a _ptsz or _ptds variant */
	enum hook_family family;
	enum hook_kind kind;
	void *wrapper;
	_Atomic bool *seen;
};
extern const struct hook_row hook_rows[HOOK_COUNT];

/* Functions of uses.def that the oldest toolkit to build with does not declare. */
#if CUDA_VERSION < 13020
CUresult CUDAAPI cuFuncGetParamCount(CUfunction f, size_t *count);
CUresult CUDAAPI cuKernelGetParamCount(CUkernel k, size_t *count);
#endif

/*
 * The real driver: REAL(cuMemAlloc_v2)(&p, n). Each pointer starts as a resolver that finds the
 * function, stores it here and calls it; a function that this driver lacks returns
 * CUDA_ERROR_NOT_FOUND. Rows of hooks.def, and of uses.def: what the shim itself asks.
 * seen_: was the wrapper called? Set once and then only read, in the line of the pointer, which a
 * wrapper needs in any case.
 */
struct real_driver {
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	CUresult(*_Atomic base##suffix##stream) params;                                       \
	_Atomic bool seen_##base##suffix##stream;
#include "shim/hooks.def"
#undef HOOK
#define USE(symbol, params, args) CUresult(*_Atomic symbol) params;
#include "shim/uses.def"
#undef USE
};
extern struct real_driver real;
/* Pairs with the release store of the resolver: what it points at is mapped and relocated. */
#define REAL(symbol) load_acquire(&real.symbol)

/* First thing in a wrapper, or after the call where that may not be (cuInit). */
#define HOOK_ENTER(symbol)                                                                    \
	do {                                                                                  \
		if (__builtin_expect(!load_relaxed(&real.seen_##symbol), 0))                  \
			store_relaxed(&real.seen_##symbol, true);                             \
	} while (0)

/* @brief Does this driver have the function? Loads the driver if need be. */
bool real_has(const char *symbol);
/* @brief Address of an export of the driver. @return NULL: absent, or the driver is not loaded
 * (it is not loaded by asking). */
void *real_loaded_symbol(const char *symbol);

/* The stream that a per-thread variant means by 0, and that a legacy one means. */
#define STREAM_LEGACY(s)	((uint64_t)(uintptr_t)((s) ? (s) : CU_STREAM_LEGACY))
#define STREAM_PER_THREAD(s)	((uint64_t)(uintptr_t)((s) ? (s) : CU_STREAM_PER_THREAD))

#endif
