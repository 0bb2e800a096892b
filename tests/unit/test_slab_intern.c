/* SPDX-License-Identifier: Apache-2.0 */
/* Unit tests of arena/slab.c and arena/intern.c. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "arena/intern.h"
#include "arena/slab.h"
#include "tests/unit/seed.h"

struct thing {
	uint64_t id, more[8];
	void *slab_link;
};

Test(slab, objects_are_fresh_apart_and_come_back)
{
	enum { COUNT = 50000 };
	static struct slab s = SLAB_INIT(struct thing);
	static struct thing *all[COUNT];

	for (uint64_t i = 0; i < COUNT; i++) {
		all[i] = slab_get(&s);
		cr_assert_eq(all[i]->id | all[i]->more[7], 0);
		cr_assert_eq((uintptr_t)all[i] % 16, 0);
		all[i]->id = i + 1;
	}
	for (uint64_t i = 0; i < COUNT; i++)
		cr_assert_eq(all[i]->id, i + 1);
	cr_assert_eq(s.objects_live, COUNT);
	slab_put(&s, all[7]);
	slab_put(&s, all[9]);
	cr_assert_eq(s.objects_live, COUNT - 2);
	/* Only the last 8 bytes of a free object are the slab's. */
	cr_assert_eq(all[9]->id, 10);
	cr_assert_eq(slab_get(&s), all[9]);
	cr_assert_eq(slab_get(&s), all[7]);
}

Test(slab, pages_are_zeroed_and_counted)
{
	uint64_t before = slab_bytes();
	char *p = pages_get(100000);

	cr_assert_eq(slab_bytes() - before, 102400);
	for (int i = 0; i < 100000; i++)
		cr_assert_eq(p[i], 0);
	pages_put(p, 100000);
	cr_assert_eq(slab_bytes(), before);
	pages_put(NULL, 0);
}

Test(slab, small_arrays_are_zeroed_again)
{
	for (size_t size_bytes = 1; size_bytes <= 4096; size_bytes += 61) {
		char *p = pages_get(size_bytes);

		for (size_t i = 0; i < size_bytes; i++)
			cr_assert_eq(p[i], 0, "%zu of %zu", i, size_bytes);
		memset(p, 0xa5, size_bytes);
		pages_put(p, size_bytes);
	}
}

static void grow_to_the_end(size_t elem_bytes)
{
	char *array = NULL;
	uint32_t cap = 0;

	for (uint32_t need = 1; need < 3000; need++) {
		cr_assert_eq(pages_grow(&array, &cap, need, elem_bytes), 0);
		cr_assert_geq(cap, need);
		memset(array + (need - 1) * elem_bytes, (int)(need & 0xff), elem_bytes);
	}
	for (uint32_t i = 0; i < 2999; i++)
		cr_assert_eq((uint8_t)array[i * elem_bytes + elem_bytes - 1], (i + 1) & 0xff);
	pages_put(array, cap * elem_bytes);
}

Test(slab, arrays_grow_and_keep_their_elements)
{
	static const size_t sizes[] = { 1, 3, 8, 24, 40, 56, 100, 1000, 2047, 2049, 5000 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t before;

		grow_to_the_end(sizes[i]); /* the size classes keep what they mapped */
		before = slab_bytes();
		grow_to_the_end(sizes[i]);
		cr_assert_eq(slab_bytes(), before, "leak with elements of %zu", sizes[i]);
	}
}

Test(slab, no_memory_changes_nothing)
{
	struct rlimit none = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };
	static struct slab s = SLAB_INIT(struct thing);
	char *array = NULL;
	uint32_t cap = 0, had;

	cr_assert_eq(pages_grow(&array, &cap, 1000, 8), 0);
	had = cap;
	array[0] = 'x';
	setrlimit(RLIMIT_AS, &none);
	cr_assert_null(slab_get(&s));
	cr_assert_null(pages_get((size_t)1 << 30));
	cr_assert_neq(pages_grow(&array, &cap, 1 << 28, 8), 0);
	cr_assert_eq(cap, had);
	cr_assert_eq(array[0], 'x');
	cr_assert_neq(pages_grow(&array, &cap, UINT32_MAX, SIZE_MAX / UINT32_MAX), 0);
}

/* ---- strings ---- */

Test(intern, one_number_for_one_string)
{
	char text[] = "_Z6kernelPfi";
	uint32_t id = intern(text);

	cr_assert_neq(id, 0);
	text[2] = '7';
	cr_assert_str_eq(interned(id), "_Z6kernelPfi", "the string is a copy");
	cr_assert_neq(intern(text), id);
	cr_assert_eq(intern("_Z6kernelPfi"), id);
}

Test(intern, nothing_is_zero)
{
	cr_assert_eq(intern(NULL), 0);
	cr_assert_eq(intern(""), 0);
	cr_assert_str_eq(interned(0), "");
	cr_assert_str_eq(interned(12345), "");
	cr_assert_str_eq(interned(UINT32_MAX), "");
}

Test(intern, strings_of_any_length)
{
	for (size_t length = 1; length < 300000; length = length * 3 + 1) {
		char *s = malloc(length + 1);
		uint32_t id;

		memset(s, 'k', length);
		s[length] = '\0';
		id = intern(s);
		cr_assert_neq(id, 0, "%zu", length);
		cr_assert_str_eq(interned(id), s);
		cr_assert_eq(intern(s), id);
		free(s);
	}
}

#define THREADS 8
#define STRINGS 20000

static uint32_t ids[THREADS][STRINGS];

static void *intern_all(void *arg)
{
	uintptr_t thread = (uintptr_t)arg;
	uint64_t seed = thread + 1;
	char name[32];

	for (int i = 0; i < 4 * STRINGS; i++) {
		uint64_t n = i < STRINGS ? (uint64_t)i : seed_below(&seed, STRINGS);
		uint32_t id;

		snprintf(name, sizeof(name), "kernel_%lu", (unsigned long)n);
		id = intern(name);
		if (id == 0 || strcmp(interned(id), name) != 0)
			return "wrong string";
		if (ids[thread][n] != 0 && ids[thread][n] != id)
			return "two numbers";
		ids[thread][n] = id;
	}
	return NULL;
}

Test(intern, threads_agree)
{
	pthread_t t[THREADS];
	void *failed;

	for (uintptr_t i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&t[i], NULL, intern_all, (void *)i), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], &failed);
		cr_assert_null(failed, "%s", (const char *)failed);
	}
	for (int i = 1; i < THREADS; i++)
		cr_assert_eq(memcmp(ids[i], ids[0], sizeof(ids[0])), 0);
}
