/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrappers of PASS rows, generated whole: note that the row was called, forward. A BODY row
 * expands to nothing here and does not link without its body. Any thread.
 */
#include "shim/hooks.h"

#define WRAP_BODY(symbol, params, args)
#define WRAP_PASS(symbol, params, args)                                                       \
	CUresult CUDAAPI symbol params                                                        \
	{                                                                                     \
		HOOK_ENTER(symbol);                                                           \
		return REAL(symbol) args;                                                     \
	}

#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	WRAP_##kind(base##suffix##stream, params, args)
#include "shim/hooks.def"
#undef HOOK
