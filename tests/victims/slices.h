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

#define SLICE_NS    20e6
#define BURSTS_MOST 20000

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

/* ns of one call. */
static double slice_burst(const struct slice *s)
{
	double start;

	if (s->before)
		s->before();
	settle();
	start = slice_now_ns();
	for (int i = 0; i < s->count; i++)
		s->once();
	return (slice_now_ns() - start) / s->count;
}

/* The lower quartile of bursts in CPU time, as a burst is late by chance but never early. The first
 * tenth of the slice warms up: the caches were another's. */
static double slice_ns(const struct slice *s)
{
	static double found[BURSTS_MOST];
	double start = slice_now_ns(), taken = 0, ns;
	size_t count = 0;

	while (!count || (taken < SLICE_NS && count < BURSTS_MOST)) {
		ns = slice_burst(s);
		taken = slice_now_ns() - start;
		if (taken >= SLICE_NS / 10)
			found[count++] = ns;
	}
	settle();
	qsort(found, count, sizeof(*found), slice_by_value);
	return found[count / 4];
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
