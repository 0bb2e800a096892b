/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of the derivations (kernels/kernels.def): what a row reads and writes is copied to the
 * host, its twin runs there, the results are copied back. A row needs nothing here. Under sim_lock.
 */
#include "kernels/derive.h"
#include "kernels/image.h"
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* Copies, in place of what the parameters in @args point at. False: an illegal access. */
static bool bring(struct derive_range *range, uint32_t n, void **host, char *args)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t here;

		if (range[i].bytes == 0)
			continue;
		host[i] = malloc(range[i].bytes);
		if (!host[i] || !twin_load(range[i].address, host[i], range[i].bytes))
			return false;
		here = (uint64_t)(uintptr_t)host[i];
		memcpy(args + range[i].offset, &here, sizeof(here));
	}
	return true;
}

static void run(const char *name, const void *args)
{
	const struct derive *d = derive_find(name);
	struct derive_range range[DERIVE_PARAMS_MAX];
	char copy[DERIVE_ARGS_MAX];
	void *host[DERIVE_PARAMS_MAX] = { NULL };
	uint32_t n = d->ranges(args, range);

	memcpy(copy, args, d->args_bytes);
	if (bring(range, n, host, copy)) {
		derive_twin(name)(copy);
		for (uint32_t i = 0; i < n; i++)
			if (range[i].result && range[i].bytes &&
			    !twin_store(range[i].address, host[i], range[i].bytes))
				break;
	}
	for (uint32_t i = 0; i < n; i++)
		free(host[i]);
}

#define KERNEL(name, doc, params)
#define DERIVE(name, doc, params, ranges)  \
	static void name(const void *args) \
	{                                  \
		run(#name, args);          \
	}
#include "kernels/kernels.def"

/* The quicker kernels of a derivation are the same to this driver. */
static struct {
	struct twin twin;
	const char *of;
} rows[] = {
#define DERIVE(name_, doc, params, ranges) { { .name = #name_, .run = name_ }, #name_ },
#include "kernels/kernels.def"
	{ { .name = "arena_marlin_awq", .run = arena_marlin_repack }, "arena_marlin_repack" },
	{ { .name = "arena_marlin_order", .run = arena_marlin_repack }, "arena_marlin_repack" },
};
#undef KERNEL

static const struct twin *row(size_t i)
{
	const struct derive *d = derive_find(rows[i].of);
	struct twin *t = &rows[i].twin;

	if (!t->bytes) {
		t->bytes = d->args_bytes;
		t->n_params = d->params_count;
		for (unsigned k = 0; k < t->n_params; k++)
			t->param[k] = (struct twin_param){ d->params[k].offset, d->params[k].size };
	}
	return t;
}

const struct twin *twin_at(size_t i)
{
	if (i < n_twins)
		return &twins[i];
	i -= n_twins;
	return i < ARRAY_SIZE(rows) ? row(i) : twin_decode(i - ARRAY_SIZE(rows));
}
