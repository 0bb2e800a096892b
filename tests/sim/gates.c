/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported functions and the table of rows; built once per variant of the library.
 *
 * SIM_NEWEST is the driver version of the variant: a row that is newer is not exported (the
 * assembler hides its symbol) and no look-up finds it. SIM_NO_PROCADDR hides cuGetProcAddress.
 * Any thread.
 */
#include "tests/sim/sim.h"

#define STR_(x) #x
#define STR(x) STR_(x)

#ifdef SIM_NO_PROCADDR
__asm__(".hidden cuGetProcAddress\n\t.hidden cuGetProcAddress_v2");
#endif

#define GATE(base, suffix, since, stream, params, args)                                       \
	__asm__(".if " #since " > " STR(SIM_NEWEST)                                           \
		"\n\t.hidden " #base #suffix #stream "\n\t.endif");                           \
	CUresult base##suffix##stream params                                                  \
	{                                                                                     \
		CUresult rc;                                                                  \
                                                                                              \
		if (!sim_enter(SIM_##base##suffix##stream, &rc))                              \
			return rc;                                                            \
		rc = do_##base##suffix ? do_##base##suffix args : CUDA_ERROR_NOT_SUPPORTED;   \
		return sim_leave(SIM_##base##suffix##stream, rc);                             \
	}
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	GATE(base, suffix, since, stream, params, args)
#define SIM GATE
#include "shim/hooks.def"
#include "tests/sim/rest.def"
#undef HOOK
#undef SIM

const unsigned sim_version = SIM_NEWEST;

const struct row sim_rows[SIM_ROWS] = {
#define ROW(base_, suffix, since_, stream)                                                    \
	{                                                                                     \
		.symbol = #base_ #suffix #stream, .base = #base_, .since = since_,            \
		.per_thread = sizeof(#stream) > 1,                                            \
		.entry = since_ <= SIM_NEWEST ? (void *)base_##suffix##stream : NULL,         \
		.body = (void *)do_##base_##suffix,                                           \
	},
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	ROW(base, suffix, since, stream)
#define SIM(base, suffix, since, stream, params, args) ROW(base, suffix, since, stream)
#include "shim/hooks.def"
#include "tests/sim/rest.def"
};
