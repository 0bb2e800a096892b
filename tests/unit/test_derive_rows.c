/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of derivations, for whatever parameters a program passes. */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/derive.h"

static void any_parameters(int byte)
{
	for (size_t i = 0; derive_at(i) != NULL; i++) {
		const struct derive *d = derive_at(i);
		_Alignas(8) char args[DERIVE_ARGS_MAX];
		struct derive_range ranges[DERIVE_PARAMS_MAX];
		uint32_t count;

		memset(args, byte, sizeof(args));
		count = d->ranges(args, ranges);
		cr_assert(count > 0 && count <= d->params_count, "%s", d->name);
		for (uint32_t k = 0; k < count; k++)
			cr_assert_lt(ranges[k].offset, d->args_bytes, "%s", d->name);
	}
}

/* Parameters that were not given are 0, and nothing may be divided by them. */
Test(derive_rows, no_parameters)
{
	any_parameters(0);
}

Test(derive_rows, large_parameters)
{
	any_parameters(0xff);
}
