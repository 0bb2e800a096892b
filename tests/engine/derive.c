/* SPDX-License-Identifier: Apache-2.0 */
/* Job: post-load processing: run a layer's derivations, from the fresh values of a pass to fresh
 * ones. One thread. */
#include <string.h>

#include "kernels/derive.h"
#include "tests/engine/derive.h"

/* Where the kernel finds its parameter @name. */
static const struct derive_param *param(const struct derive *d, const char *name)
{
	for (uint32_t i = 0; i < d->params_count; i++)
		if (!strcmp(d->params[i].name, name))
			return &d->params[i];
	engine_die(1, "%s has no parameter %s", d->name, name);
}

static void run(struct layer *l, const struct derivation *from)
{
	const struct derive *d = derive_find(from->kernel);
	char args[DERIVE_ARGS_MAX] = { 0 };

	if (!d)
		engine_die(1, "there is no derivation %s", from->kernel);
	for (uint32_t i = 0; i < from->args_count; i++) {
		const struct derive_arg *a = &from->args[i];
		const struct derive_param *p = param(d, a->param);
		uint64_t value = *a->tensor ? layer_find(l, a->tensor)->fresh : a->value;

		memcpy(args + p->offset, &value, p->size); /* little-endian */
	}
	run_derive(l->engine, from->kernel, args);
}

void derive_layer(struct layer *l)
{
	for (uint32_t i = 0; i < l->derives_count; i++)
		run(l, &l->derives[i]);
}
