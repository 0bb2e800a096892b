/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libarena_shim_nop.so: every row only forwards, so that the cost of being hooked can be measured
 * apart from the cost of what the shim does. The look-up gates are the real ones. Any thread.
 */
#include "arena/arena.h"
#include "shim/hooks.h"

#define FORWARD(symbol, params, args)                                                         \
	CUresult CUDAAPI symbol params                                                        \
	{                                                                                     \
		return REAL(symbol) args;                                                     \
	}

#define WRAP_LOOKUP(symbol, params, args)
#define WRAP_MEM	FORWARD
#define WRAP_HOST	FORWARD
#define WRAP_IPC	FORWARD
#define WRAP_POOL	FORWARD
#define WRAP_VMM	FORWARD
#define WRAP_MODULE	FORWARD
#define WRAP_CTX	FORWARD
#define WRAP_CAPTURE	FORWARD
#define WRAP_GRAPH	FORWARD
#define WRAP_LAUNCH	FORWARD
#define WRAP_TENSOR	FORWARD
#define WRAP_SYNC	FORWARD
#define WRAP_COPY	FORWARD

#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	WRAP_##family(base##suffix##stream, params, args)
#include "shim/hooks.def"
#undef HOOK

FORWARD(cuInit, (unsigned int flags), (flags))

int arena_abi(void)
{
	return 0;
}
