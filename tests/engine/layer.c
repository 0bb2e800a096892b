/* SPDX-License-Identifier: Apache-2.0 */
/* Job: the tables that a family fills for each layer. One thread; nothing here fails but by a
 * family that does not fit the tables, which ends the program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/engine.h"

struct tensor *layer_find(struct layer *l, const char *name)
{
	for (uint32_t i = 0; i < l->tensors_count; i++)
		if (!strcmp(l->tensors[i].name, name))
			return &l->tensors[i];
	engine_die(1, "layer %s has no tensor '%s'", l->path, name);
}

CUdeviceptr at(struct layer *l, const char *name)
{
	return layer_find(l, name)->live;
}

static struct tensor *add(struct layer *l, const char *name, enum origin origin, uint64_t bytes)
{
	struct tensor *t;

	if (l->tensors_count == TENSORS_MAX)
		engine_die(1, "layer %s has more than %d tensors", l->path, TENSORS_MAX);
	t = &l->tensors[l->tensors_count++];
	snprintf(t->name, sizeof(t->name), "%s", name);
	t->origin = origin;
	t->bytes = bytes;
	return t;
}

struct tensor *loaded(struct layer *l, const char *name, enum naive naive)
{
	struct tensor *t = add(l, name, LOADED, 0);

	t->naive = naive;
	return t;
}

void part(struct layer *l, struct tensor *t, enum fill fill, const char *key,
	  const uint64_t shape[2])
{
	struct part *p;

	t->parts = realloc(t->parts, (t->parts_count + 1) * sizeof(*t->parts));
	if (!t->parts)
		engine_die(1, "no host memory for the parts of %s", t->name);
	p = &t->parts[t->parts_count++];
	if (l->index < dims.layers)
		snprintf(p->key, sizeof(p->key), "%.40s.%.54s", l->path, key);
	else
		snprintf(p->key, sizeof(p->key), "%s", key);
	p->fill = fill;
	p->rows = shape[0];
	p->cols = shape[1];
	p->at = t->bytes;
	p->bytes = shape[0] * shape[1] * fill_bytes(fill);
	t->bytes += p->bytes;
}

void weight(struct layer *l, enum fill fill, const char *name, const uint64_t shape[2])
{
	part(l, loaded(l, name, COPY_BACK), fill, name, shape);
}

struct tensor *derived(struct layer *l, const char *name, uint64_t bytes, enum naive naive)
{
	struct tensor *t = add(l, name, DERIVED, bytes);

	t->naive = naive;
	return t;
}

void scratch(struct layer *l, const char *name, uint64_t bytes, enum naive naive)
{
	add(l, name, SCRATCH, bytes)->naive = naive;
}

void zeroed(struct layer *l, const char *name, uint64_t bytes)
{
	scratch(l, name, bytes, REBIND);
	layer_find(l, name)->zero = true;
}

void object_part(struct layer *l, const char *name, uint64_t bytes)
{
	add(l, name, PART, bytes)->naive = REBIND;
}

void derive(struct layer *l, const char *kernel)
{
	if (l->derives_count == DERIVES_MAX)
		engine_die(1, "layer %s has more than %d derivations", l->path, DERIVES_MAX);
	l->derives[l->derives_count++].kernel = kernel;
}

static struct derive_arg *arg(struct layer *l, const char *param)
{
	struct derivation *d = &l->derives[l->derives_count - 1];

	d->args[d->args_count].param = param;
	return &d->args[d->args_count++];
}

void derive_tensor(struct layer *l, const char *param, const char *tensor)
{
	snprintf(arg(l, param)->tensor, NAME_BYTES, "%s", tensor);
}

void derive_number(struct layer *l, const char *param, uint64_t value)
{
	arg(l, param)->value = value;
}
