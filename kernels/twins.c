/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: find a twin by its kernel's name. Threads: any; constant.
 */
#include <string.h>

#include "kernels/twins.h"

static const struct {
	const char *name;
	derive_twin_fn twin;
} rows[] = {
#define KERNEL(name, doc, params)
#define DERIVE(name, doc, params, ranges) { #name, name##_twin },
#include "kernels/kernels.def"
#undef KERNEL
};

derive_twin_fn derive_twin(const char *name)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(rows[i].name, name))
			return rows[i].twin;
	return NULL;
}
