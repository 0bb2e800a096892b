/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of the kernels of a decode graph (kernels/decode/decode.def): the twin runs on the
 * simulated memory itself where what a parameter points at lies in one range, else on a copy. A row
 * needs nothing here. Under sim_lock.
 */
#include "kernels/decode/decode.h"
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* Addresses of the host in place of the device's. @copy: to be stored and freed; behind it lies
 * what it was at first. False: an illegal access. */
static bool bring(const struct decode_range *r, char *args, void **copy)
{
	size_t len = r->bytes;
	void *here = access_at(r->address, &len, r->written);
	uint64_t value;

	if (!here || (r->read && !access_at(r->address, &len, false)))
		return false;
	if (len < r->bytes) {
		here = *copy = malloc(2 * r->bytes);
		if (!here || !twin_load(r->address, here, r->bytes))
			return false;
		memcpy((char *)here + r->bytes, here, r->bytes);
	}
	value = (uint64_t)(uintptr_t)here;
	memcpy(args + r->offset, &value, sizeof(value));
	return true;
}

/* Only what has changed: ranges with strides may lie in each other's gaps. */
static bool put_back(const struct decode_range *r, const char *copy)
{
	const char *old = copy + r->bytes;

	for (uint64_t i = 0, end; i < r->bytes; i = end) {
		for (end = i; end < r->bytes && copy[end] != old[end]; end++)
			;
		if (end > i && !twin_store(r->address + i, copy + i, end - i))
			return false;
		end += end == i;
	}
	return true;
}

static void run(const char *name, const void *args)
{
	const struct decode *d = decode_find(name);
	struct decode_range range[DECODE_PARAMS_MAX];
	char on_host[DECODE_ARGS_MAX];
	void *copy[DECODE_PARAMS_MAX] = { NULL };
	uint32_t n = d->ranges(args, range);
	bool ok = true;

	memcpy(on_host, args, d->args_bytes);
	for (uint32_t i = 0; i < n && ok; i++)
		ok = range[i].bytes == 0 || bring(&range[i], on_host, &copy[i]);
	if (ok)
		decode_twin(name)(on_host);
	for (uint32_t i = 0; i < n; i++) {
		if (ok && copy[i] && range[i].written)
			ok = put_back(&range[i], copy[i]);
		free(copy[i]);
	}
}

#define DECODE(name, doc, params, ranges)  \
	static void name(const void *args) \
	{                                  \
		run(#name, args);          \
	}
#include "kernels/decode/decode.def"
#undef DECODE

static struct twin rows[] = {
#define DECODE(name_, doc, params, ranges) { .name = #name_, .run = name_ },
#include "kernels/decode/decode.def"
#undef DECODE
};

const struct twin *twin_decode(size_t i)
{
	const struct decode *d = decode_at(i);
	struct twin *t = &rows[i];

	if (!d)
		return NULL;
	if (!t->bytes) {
		t->bytes = d->args_bytes;
		t->n_params = d->params_count;
		for (unsigned k = 0; k < t->n_params; k++)
			t->param[k] = (struct twin_param){ d->params[k].offset, d->params[k].size };
	}
	return t;
}
