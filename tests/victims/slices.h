/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For programs that take times by turns with others (tests/gpu/overhead.py): "ready NAME..." once,
 * then for each NAME on stdin one slice of some milliseconds and "slice NAME NANOSECONDS".
 * tests/gpu/slices.py is the same for Python. One thread.
 */
#ifndef VICTIM_SLICES_H
#define VICTIM_SLICES_H

#include <string.h>
#include <time.h>

#include "tests/victims/victim.h"

#define SLICE_NS     20e6
#define LONGEST	     4 /* times its length, for a slice on a busy core */
#define BURSTS_LEAST 8
#define BURSTS_MOST  20000
#define SPIN	     2000 /* rounds of a loop */
#define QUIET	     1.1  /* times the least that the loop took */

/* @once is timed, @count calls of it in a burst, below the depth of the launch queue; @before,
 * which may be NULL, is not: it makes what @once needs. */
struct slice {
	const char *name;
	void (*once)(void);
	int count;
	void (*before)(void);
};

static double slice_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int slice_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* How fast is the core now? What shares it with us, in another thread of the core or another
 * machine, makes everything slower by half. */
static double slice_spin_ns(void)
{
	uint64_t x[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	double start = slice_now_ns();

	/* Streams that do not wait for one another: they need the whole core. */
	for (int i = 0; i < SPIN; i++)
		for (int k = 0; k < 8; k++)
			x[k] = x[k] * 6364136223846793005u + 1;
	__asm__ volatile("" : : "r"(x[0] ^ x[1] ^ x[2] ^ x[3] ^ x[4] ^ x[5] ^ x[6] ^ x[7]));
	return slice_now_ns() - start;
}

/* ns of one call. @spin: the slower of the spins around them. */
static double slice_burst(const struct slice *s, double *spin)
{
	double before, start, took, after;

	if (s->before)
		s->before();
	settle();
	before = slice_spin_ns();
	start = slice_now_ns();
	for (int i = 0; i < s->count; i++)
		s->once();
	took = slice_now_ns() - start;
	after = slice_spin_ns();
	*spin = before > after ? before : after;
	return took / s->count;
}

struct bursts {
	double ns[BURSTS_MOST];
	size_t count;
};

static double slice_median(struct bursts *b)
{
	qsort(b->ns, b->count, sizeof(*b->ns), slice_by_value);
	return b->ns[b->count / 2];
}

/* The median of bursts in CPU time. Those on a quiet core count, if there are enough. The first
 * tenth warms up: the caches were another's. */
static double slice_ns(const struct slice *s)
{
	static struct bursts quiet, all;
	static double least = 1e300;
	double start = slice_now_ns(), taken = 0, ns, spin;

	quiet.count = all.count = 0;
	while (!all.count || taken < SLICE_NS * (quiet.count >= BURSTS_LEAST ? 1 : LONGEST)) {
		ns = slice_burst(s, &spin);
		taken = slice_now_ns() - start;
		least = spin < least ? spin : least;
		if (taken < SLICE_NS / 10 || all.count == BURSTS_MOST)
			continue;
		all.ns[all.count++] = ns;
		if (spin <= QUIET * least)
			quiet.ns[quiet.count++] = ns;
	}
	settle();
	return slice_median(quiet.count >= BURSTS_LEAST ? &quiet : &all);
}

static void slices_serve(const struct slice *all, size_t count)
{
	char line[64];

	for (size_t i = 0; i < count; i++)
		slice_ns(&all[i]);
	printf("ready");
	for (size_t i = 0; i < count; i++)
		printf(" %s", all[i].name);
	printf("\n");
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		for (size_t i = 0; i < count; i++)
			if (strcmp(line, all[i].name) == 0)
				printf("slice %s %.2f\n", line, slice_ns(&all[i]));
	}
}

#define SLICES_SERVE(...)                                   \
	slices_serve((const struct slice[]){ __VA_ARGS__ }, \
		     sizeof((const struct slice[]){ __VA_ARGS__ }) / sizeof(struct slice))

#endif
