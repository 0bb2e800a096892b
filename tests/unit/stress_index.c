/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one danger of arena/index.c: a range is taken out of a chain and reused elsewhere while a
 * reader stands on it. Writers move few objects between the granule of a fixed range and other
 * places, as fast as they can; readers must find the fixed range each time. A plain program, so
 * that it runs under TSan as it is. Argument: moves per writer.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena/index.h"
#include "arena/ledger.h"

#define READERS 2
#define WRITERS 3
#define HERE	((uint64_t)0x7f0000000000)
#define FAR	((uint64_t)0x100000000000)
#define FIXED	(HERE + 64)

static struct index *ix;
static struct range fixed, low;
static struct range movers[WRITERS];
static unsigned moves = 300000;
static _Atomic unsigned writers_left = WRITERS;

static void die(const char *why)
{
	fprintf(stderr, "stress_index: %s\n", why);
	exit(1);
}

/* As range_new() does it: base first, with release. */
static void enter(struct range *r, uint64_t base)
{
	store_release(&r->base, base);
	if (index_insert(ix, r) != 0)
		die("no memory");
}

static void leave(struct range *r)
{
	if (index_remove(ix, r) != 0)
		die("lost");
}

/* Above the fixed range in its granule; then next to @low, whose chain ends elsewhere; then in
 * the fixed range's neighbourhood, where it makes chains move down. */
static void *move(void *arg)
{
	unsigned w = (unsigned)(uintptr_t)arg;
	static const uint64_t places[] = { HERE + 128, FAR + 128, HERE + 128, HERE + 1024 };

	for (unsigned i = 0; i < moves; i++) {
		struct range *r = &movers[w];

		enter(r, places[i % 4] + 16 * w);
		leave(r);
	}
	add_acq_rel(&writers_left, (unsigned)-1);
	return NULL;
}

static void *read_fixed(void *unused)
{
	uintptr_t wrong = 0;

	while (load_acquire(&writers_left) != 0)
		wrong += index_floor(ix, FIXED + 8) != &fixed;
	return (void *)wrong;
}

int main(int argc, char **argv)
{
	pthread_t t[READERS + WRITERS];
	void *wrong;

	if (argc > 1)
		moves = (unsigned)atoi(argv[1]);
	ix = index_new();
	if (ix == NULL)
		die("no memory");
	enter(&fixed, FIXED);
	enter(&low, FAR);
	for (uintptr_t i = 0; i < READERS + WRITERS; i++)
		if (pthread_create(&t[i], NULL, i < READERS ? read_fixed : move,
				   (void *)(i < READERS ? 0 : i - READERS)) != 0)
			die("no thread");
	for (int i = 0; i < READERS + WRITERS; i++) {
		pthread_join(t[i], &wrong);
		if (i < READERS && wrong != NULL)
			die("a range that lives was not found");
	}
	return 0;
}
