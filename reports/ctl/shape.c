/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table with open addressing, at most half full, of the refs that stay. They move to the front of
 * the list, in their order.
 *
 * Threads: one.
 */
#include "shape.h"

#include <stdlib.h>
#include <string.h>

static uint64_t add_number(uint64_t hash, uint64_t n)
{
	hash = (hash ^ n) * 0x9e3779b97f4a7c15;
	return hash ^ hash >> 32;
}

static uint64_t add_text(uint64_t hash, const char *s)
{
	for (; s && *s; s++)
		hash = (hash ^ (unsigned char)*s) * 0x100000001b3;
	return hash;
}

static uint64_t hash_ref(const struct report_ref *r)
{
	uint64_t hash = add_text(0xcbf29ce484222325, r->kernel ? r->kernel : r->node_kind);

	hash = add_number(add_number(hash, r->param), r->offset);
	hash = add_text(add_text(hash, r->confidence), r->reason);
	hash = add_text(add_text(hash, r->arena), r->slot);
	if (r->old)
		hash = add_number(add_number(hash, r->old->size), r->old->stack_open);
	return hash;
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static bool same_memory(const struct report_range *a, const struct report_range *b)
{
	return a == b || (a && b && a->size == b->size && a->stack_open == b->stack_open &&
			  !strcmp(a->kind, b->kind));
}

static bool same_shape(const struct report_ref *a, const struct report_ref *b)
{
	return a->param == b->param && a->offset == b->offset && same_text(a->kernel, b->kernel) &&
	       same_text(a->node_kind, b->node_kind) && same_text(a->slot, b->slot) &&
	       same_text(a->arena, b->arena) && same_text(a->confidence, b->confidence) &&
	       same_text(a->reason, b->reason) && same_memory(a->old, b->old);
}

size_t shape_unique(struct report_ref *refs, size_t count)
{
	size_t size = 16, kept = 0, *table;

	while (size < count * 2)
		size *= 2;
	table = calloc(size, sizeof(*table)); /* 0: free, else one more than an index */
	if (!table)
		return count;
	for (size_t i = 0; i < count; i++) {
		size_t at = hash_ref(&refs[i]) & (size - 1);

		while (table[at] && !same_shape(&refs[table[at] - 1], &refs[i]))
			at = (at + 1) & (size - 1);
		if (table[at])
			continue;
		refs[kept++] = refs[i];
		table[at] = kept;
	}
	free(table);
	return kept;
}
