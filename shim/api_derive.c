/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derivations of the public API: names of kernels, parameters and slots become what derived.h
 * wants. Nothing is launched here.
 *
 * Any thread.
 */
#include <inttypes.h>
#include <string.h>

#include "arena/derived.h"
#include "arena/intern.h"
#include "kernels/derive.h"
#include "shim/api.h"

_Static_assert(DERIVED_VALUES_MAX >= DERIVE_PARAMS_MAX, "any parameter may be an address");
_Static_assert(DERIVED_ARGS_BYTES >= DERIVE_ARGS_MAX, "parameters of any derivation");

static const char call[] = "arena_derive";

/* What is being declared. */
struct declaration {
	struct arena *arena;
	const struct arena_derivation *in;
	const struct derive *row;
	struct derivation d;
	const char *slots[DERIVE_PARAMS_MAX]; /* of parameters that were not looked at yet */
};

/* ---- parameters ---- */

static const struct derive_param *find_param(const struct derive *row, const char *name,
					     uint32_t *index)
{
	for (*index = 0; *index < row->params_count; ++*index)
		if (strcmp(row->params[*index].name, name) == 0)
			return &row->params[*index];
	return NULL;
}

static int read_number(struct declaration *q, const struct derive_param *p, uint64_t value)
{
	if (p->size < sizeof(value) && value >> (8 * p->size) != 0 &&
	    (int64_t)value >> (8 * p->size - 1) != -1)
		return arena_fail(ARENA_E_INVALID, "%s: %s: %s is %" PRIu64 ", it has %u bytes",
				  call, q->row->name, p->name, value, p->size);
	memcpy(q->d.args + p->offset, &value, p->size); /* little endian, as all hosts of CUDA */
	return ARENA_OK;
}

static int read_arg(struct declaration *q, const struct arena_derive_arg *arg)
{
	const struct derive_param *p;
	uint32_t i;
	int err = api_name(call, "the name of a parameter", arg->name);

	if (err)
		return err;
	p = find_param(q->row, arg->name, &i);
	if (p == NULL)
		return arena_fail(ARENA_E_INVALID, "%s: %s has no parameter %s: see arena(3)", call,
				  q->row->name, arg->name);
	if (arg->slot == NULL)
		return read_number(q, p, arg->value);
	q->slots[i] = arg->slot;
	/* Any address, so that the range counts as used. */
	return read_number(q, p, 1);
}

/* What kernel and twin cannot run with; a derivation that is forgotten needs no numbers. */
static int check_numbers(const struct declaration *q)
{
	struct derive_limit limit;

	if (q->d.mode == ARENA_DERIVE_OFF || q->row->takes(q->d.args, &limit))
		return ARENA_OK;
	return arena_fail(ARENA_E_INVALID, "%s: %s: %s is %" PRIu64 ": it has to be %s", call,
			  q->row->name, limit.param, limit.value, limit.takes);
}

static int read_args(struct declaration *q)
{
	int err = q->in->args_count != 0 ? api_pointer(call, "args", q->in->args) : ARENA_OK;

	for (uint32_t i = 0; i < q->in->args_count && !err; i++)
		err = read_arg(q, &q->in->args[i]);
	return err ? err : check_numbers(q);
}

/* ---- slots; registry lock held ---- */

static int check_slot(const struct declaration *q, const struct derive_range *range,
		      const struct slot *s)
{
	bool computed = range->result && q->d.mode == ARENA_DERIVE_COMPUTE;
	bool fits = range->result ? range->bytes == s->spec.bytes : range->bytes <= s->spec.bytes;

	if (s->kind != ARENA_VALUE && (computed || s->kind != ARENA_BOUND))
		return arena_fail(ARENA_E_SPEC, "%s: slot %s of %s is no value slot%s", call,
				  interned(s->name), interned(s->arena->path),
				  computed ? "" : ", nor bound");
	if (fits || q->d.mode == ARENA_DERIVE_OFF)
		return ARENA_OK;
	return arena_fail(ARENA_E_SPEC,
			  "%s: slot %s of %s has %" PRIu64 " bytes, %s of %s has %" PRIu64
			  ": check the parameters",
			  call, interned(s->name), interned(s->arena->path), s->spec.bytes,
			  range->name, q->row->name, range->bytes);
}

static int add_slot(struct declaration *q, const struct derive_range *range, const char *name)
{
	struct derived_value *v = &q->d.values[q->d.count];
	int err;

	*v = (struct derived_value){ .slot = slot_find(q->arena, name),
				     .bytes = range->bytes,
				     .offset = range->offset,
				     .result = range->result };
	if (v->slot == NULL)
		return arena_fail(ARENA_E_UNKNOWN,
				  "%s: %s has no slot %s: put it, or bind it first", call,
				  interned(q->arena->path), name);
	err = check_slot(q, range, v->slot);
	if (!err && q->d.count++ == 0)
		q->d.device = v->slot->spec.device;
	return err;
}

static int add_range(struct declaration *q, const struct derive_range *range)
{
	uint32_t i = 0;

	while (q->row->params[i].offset != range->offset)
		i++;
	if (q->slots[i] != NULL) {
		const char *name = q->slots[i];

		q->slots[i] = NULL;
		return add_slot(q, range, name);
	}
	if (range->bytes == 0 || q->d.mode == ARENA_DERIVE_OFF)
		return ARENA_OK;
	if (!range->result)
		return arena_fail(ARENA_E_INVALID, "%s: %s: source %s is given no slot", call,
				  q->row->name, range->name);
	q->d.values[q->d.count++] = (struct derived_value){ .bytes = range->bytes,
							    .offset = range->offset,
							    .result = true };
	return ARENA_OK;
}

static int add_ranges(struct declaration *q)
{
	struct derive_range ranges[DERIVE_PARAMS_MAX];
	uint32_t count = q->row->ranges(q->d.args, ranges);
	bool any = false;
	int err = ARENA_OK;

	for (uint32_t i = 0; i < count && !err; i++)
		err = add_range(q, &ranges[i]);
	for (uint32_t i = 0; i < q->d.count && !err; i++)
		any |= q->d.values[i].result && q->d.values[i].slot != NULL;
	if (!err && !any)
		err = arena_fail(ARENA_E_INVALID, "%s: %s: no result is given a slot", call,
				 q->row->name);
	for (uint32_t i = 0; i < q->row->params_count && !err; i++)
		if (q->slots[i] != NULL)
			err = arena_fail(ARENA_E_INVALID,
					 "%s: %s: %s is no source and no result: give it a number",
					 call, q->row->name, q->row->params[i].name);
	return err;
}

/* ---- */

static int check(struct declaration *q)
{
	int err = api_on();

	err = err ? err : api_pointer(call, "the arena", q->arena);
	err = err ? err : api_pointer(call, "the derivation", q->in);
	if (!err && q->in->struct_bytes < sizeof(*q->in))
		err = arena_fail(ARENA_E_INVALID,
				 "%s: struct_bytes is %" PRIu32
				 ": set it with ARENA_DERIVATION_INIT",
				 call, q->in->struct_bytes);
	err = err ? err : api_name(call, "the name", q->in->name);
	if (!err && q->in->mode > ARENA_DERIVE_OFF)
		err = arena_fail(ARENA_E_INVALID,
				 "%s: mode is %" PRIu32 ": pass one of "
				 "ARENA_DERIVE_*",
				 call, q->in->mode);
	if (err)
		return err;
	q->row = derive_find(q->in->name);
	if (q->row == NULL)
		return arena_fail(ARENA_E_UNKNOWN, "%s: there is no derivation %s: see arena(3)",
				  call, q->in->name);
	q->d.name = q->row->name;
	q->d.mode = (enum arena_derive_mode)q->in->mode;
	return ARENA_OK;
}

int arena_derive(struct arena *a, const struct arena_derivation *d)
{
	struct declaration q = { .arena = a, .in = d };
	int err = check(&q);

	err = err ? err : read_args(&q);
	if (err)
		return err;
	registry_lock();
	err = add_ranges(&q);
	err = err ? err : derived_declare(a, &q.d);
	registry_unlock();
	return err;
}
