/* SPDX-License-Identifier: Apache-2.0 */
/* The driver of script_driver.h. One thread. */
#include <errno.h>

#include "tests/shim/script_driver.h"

#define EXPORT __attribute__((visibility("default")))

struct script script = { .context = 0x1000, .size_bytes = 4096, .primary_active = 1 };
unsigned script_calls[HOOK_COUNT], script_layouts;

static CUresult answer(enum hook_id row)
{
	script_calls[row]++;
	if (script.set_errno != 0)
		errno = script.set_errno;
	return script.rc;
}

/* Every row, unless something stronger below hands out a result. */
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args) \
	EXPORT __attribute__((weak)) CUresult base##suffix##stream params  \
	{                                                                  \
		return answer(HOOK_##base##suffix##stream);                \
	}
#include "shim/hooks.def"
#undef HOOK

/* What the shim asks and does not hook: "yes", and nothing is written. */
#define USE(symbol, params, args)                           \
	EXPORT __attribute__((weak)) CUresult symbol params \
	{                                                   \
		return CUDA_SUCCESS;                        \
	}
#include "shim/uses.def"
#undef USE
