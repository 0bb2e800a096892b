/* SPDX-License-Identifier: Apache-2.0 */
/* Unit tests of arena/index.c: floor search against a sorted oracle, chains, bounds, memory. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/index.h"
#include "arena/ledger.h"
#include "arena/slab.h"
#include "tests/unit/seed.h"

#define GRANULE 512
#define TOP	((uint64_t)1 << 51)

static struct range *range_at(uint64_t base)
{
	struct range *r = calloc(1, sizeof(*r));

	r->base = base;
	return r;
}

static struct range *enter(struct index *ix, uint64_t base)
{
	struct range *r = range_at(base);

	cr_assert_eq(index_insert(ix, r), 0);
	return r;
}

Test(index, empty_finds_nothing)
{
	struct index *ix = index_new();

	cr_assert_null(index_floor(ix, 0));
	cr_assert_null(index_floor(ix, UINT64_MAX));
	cr_assert_eq(index_count(ix), 0);
	cr_assert_eq(index_remove(ix, range_at(4096)), -ENOENT);
}

Test(index, floor_of_one)
{
	struct index *ix = index_new();
	struct range *r = enter(ix, 0x7f0000000000);

	cr_assert_null(index_floor(ix, 0x7f0000000000 - 1));
	cr_assert_eq(index_floor(ix, 0x7f0000000000), r);
	cr_assert_eq(index_floor(ix, 0x7f0000000000 + GRANULE), r);
	cr_assert_eq(index_floor(ix, TOP - 1), r);
	cr_assert_eq(index_floor(ix, UINT64_MAX), r);
}

Test(index, bounds_of_the_address_space)
{
	struct index *ix = index_new();
	struct range *low = enter(ix, 0), *high = enter(ix, TOP - 1);

	cr_assert_eq(index_insert(ix, range_at(TOP)), -ERANGE);
	cr_assert_eq(index_insert(ix, range_at(UINT64_MAX)), -ERANGE);
	cr_assert_eq(index_remove(ix, range_at(UINT64_MAX)), -ENOENT);
	cr_assert_eq(index_floor(ix, TOP - 2), low);
	cr_assert_eq(index_floor(ix, TOP), high);
	cr_assert_eq(index_count(ix), 2);
}

Test(index, several_in_one_granule)
{
	struct index *ix = index_new();
	/* Neither ascending nor descending order of entry. */
	struct range *b = enter(ix, 0x10010), *d = enter(ix, 0x10100), *a = enter(ix, 0x10000),
		     *c = enter(ix, 0x10014);

	cr_assert_null(index_floor(ix, 0xffff));
	cr_assert_eq(index_floor(ix, 0x1000f), a);
	cr_assert_eq(index_floor(ix, 0x10010), b);
	cr_assert_eq(index_floor(ix, 0x10013), b);
	cr_assert_eq(index_floor(ix, 0x10014), c);
	cr_assert_eq(index_floor(ix, 0x10fff), d);

	cr_assert_eq(index_remove(ix, b), 0);
	cr_assert_eq(index_remove(ix, b), -ENOENT);
	cr_assert_eq(index_floor(ix, 0x10013), a);
	cr_assert_eq(index_remove(ix, d), 0);
	cr_assert_eq(index_floor(ix, 0x10fff), c);
	cr_assert_eq(index_remove(ix, a), 0);
	cr_assert_null(index_floor(ix, 0x10013));
	cr_assert_eq(index_remove(ix, c), 0);
	cr_assert_null(index_floor(ix, UINT64_MAX));
}

/* A lone range sits in an upper slot; its neighbours push it down level by level. */
Test(index, expansion_keeps_what_was_there)
{
	struct index *ix = index_new();
	struct range *first = enter(ix, 0x300000000), *near;

	for (unsigned shift = 32; shift >= 9; shift--) {
		near = enter(ix, 0x300000000 + ((uint64_t)1 << shift));
		cr_assert_eq(index_floor(ix, near->base - 1), first, "shift %u", shift);
		cr_assert_eq(index_floor(ix, near->base), near, "shift %u", shift);
		cr_assert_eq(index_floor(ix, first->base - 1), NULL);
	}
}

/* Emptied nodes stay where they are: the search must find its way around them. */
Test(index, backtracks_over_emptied_nodes)
{
	struct index *ix = index_new();
	struct range *low = enter(ix, 0x1000), *crowd[64];

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 64; i++)
			crowd[i] = enter(ix, 0x500000000000 + (uint64_t)i * GRANULE);
		cr_assert_eq(index_floor(ix, 0x600000000000), crowd[63]);
		for (int i = 0; i < 64; i++)
			cr_assert_eq(index_remove(ix, crowd[i]), 0);
		cr_assert_eq(index_floor(ix, 0x600000000000), low);
		cr_assert_eq(index_floor(ix, 0x500000000000 + 63 * GRANULE), low);
	}
	cr_assert_eq(index_count(ix), 1);
}

/* ---- against an oracle ---- */

#define MODEL 2000

struct model {
	struct range *r[MODEL];
	size_t count;
};

static size_t model_above(const struct model *m, uint64_t addr)
{
	size_t i = 0;

	while (i < m->count && m->r[i]->base <= addr)
		i++;
	return i;
}

static struct range *model_floor(const struct model *m, uint64_t addr)
{
	size_t i = model_above(m, addr);

	return i == 0 ? NULL : m->r[i - 1];
}

static void model_insert(struct model *m, struct range *r)
{
	size_t i = model_above(m, r->base);

	memmove(&m->r[i + 1], &m->r[i], (m->count++ - i) * sizeof(m->r[0]));
	m->r[i] = r;
}

static struct range *model_take(struct model *m, size_t i)
{
	struct range *r = m->r[i];

	memmove(&m->r[i], &m->r[i + 1], (--m->count - i) * sizeof(m->r[0]));
	return r;
}

/* Addresses that crowd at several scales, so that all levels are exercised. */
static uint64_t any_address(uint64_t *seed)
{
	static const uint64_t scales[] = {
		4, 64, 512, 4096, 1 << 15, 1 << 21, 1 << 27, (uint64_t)1 << 33, (uint64_t)1 << 39
	};
	uint64_t scale = scales[seed_below(seed, 9)];

	return (0x200000000000 + seed_below(seed, 40) * scale + seed_below(seed, 3)) % TOP;
}

Test(index, agrees_with_a_sorted_list)
{
	uint64_t seed = seed_start("index");
	struct index *ix = index_new();
	static struct model m;

	for (int step = 0; step < 60000; step++) {
		uint64_t addr = any_address(&seed);
		struct range *below = model_floor(&m, addr);

		cr_assert_eq(index_floor(ix, addr), below, "step %d address %#lx", step, addr);
		if (m.count < MODEL - 1 && seed_below(&seed, 100) < 60 &&
		    (below == NULL || below->base != addr))
			model_insert(&m, enter(ix, addr));
		else if (m.count != 0)
			cr_assert_eq(index_remove(ix, model_take(&m, seed_below(&seed, m.count))),
				     0);
		cr_assert_eq(index_count(ix), m.count);
	}
}

/* design.md has no figure; a range is 128 bytes, what leads to it should be no more. */
Test(index, sparse_ranges_are_cheap)
{
	enum { COUNT = 100000 };
	uint64_t seed = seed_start("sparse"), before;
	struct index *ix = index_new();
	struct range *all = calloc(COUNT, sizeof(*all));

	before = slab_bytes();
	for (size_t i = 0; i < COUNT; i++) {
		/* One in each 8 MiB on average: 800 GB of address space. */
		all[i].base = seed_below(&seed, (uint64_t)COUNT << 14) * GRANULE;
		cr_assert_eq(index_insert(ix, &all[i]), 0);
	}
	cr_assert_leq((slab_bytes() - before) / COUNT, 128, "%lu bytes a range",
		      (unsigned long)(slab_bytes() - before) / COUNT);
}
