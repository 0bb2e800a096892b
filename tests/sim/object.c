/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles. Each object is allocated once and never given back to malloc: a dropped one waits in the
 * free list of its type, so that its handle is soon reused, and a stale handle is recognised
 * without touching freed memory. Under sim_lock.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static struct obj *live[OBJ_TYPES], *dropped[OBJ_TYPES];
static uint64_t last_serial;

/* Every address that was ever handed out: open addressing, at most half full. */
static const void **known;
static size_t known_n, known_size;

static size_t known_slot(const void *p)
{
	size_t i = ((uintptr_t)p >> 4) * 0x9e3779b97f4a7c15ull >> 20 & (known_size - 1);

	while (known[i] && known[i] != p)
		i = (i + 1) & (known_size - 1);
	return i;
}

static void known_add(const void *p)
{
	const void **old = known;
	size_t n = known_size;

	if (known_n * 2 >= known_size) {
		known_size = known_size ? known_size * 2 : 1024;
		known = calloc(known_size, sizeof(*known));
		for (size_t i = 0; i < n; i++)
			if (old[i])
				known[known_slot(old[i])] = old[i];
		free(old);
	}
	known[known_slot(p)] = p;
	known_n++;
}

void *obj_new(enum obj_type type, size_t size)
{
	struct obj *o = dropped[type];

	if (o) {
		dropped[type] = o->next;
	} else {
		o = malloc(size);
		known_add(o);
	}
	memset(o, 0, size);
	o->type = type;
	o->live = true;
	o->serial = ++last_serial;
	o->next = live[type];
	if (o->next)
		o->next->prev = o;
	live[type] = o;
	return o;
}

void obj_drop(void *object)
{
	struct obj *o = object;

	if (o->prev)
		o->prev->next = o->next;
	else
		live[o->type] = o->next;
	if (o->next)
		o->next->prev = o->prev;
	o->live = false;
	o->next = dropped[o->type];
	dropped[o->type] = o;
}

void *obj_get(const volatile void *handle, enum obj_type type)
{
	struct obj *o = (struct obj *)handle;

	if (!o || !known_size || known[known_slot(o)] != o || !o->live || o->type != type)
		return NULL;
	return o;
}

struct obj *obj_first(enum obj_type type)
{
	return live[type];
}
