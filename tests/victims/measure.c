/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU time of driver calls, for a comparison of runs with and without the library: prints
 * "measure NAME NANOSECONDS", each the median of several batches. Real driver (tests/gpu).
 */
#include "victim.h"

#include <time.h>

#define BATCHES	    41
#define LAUNCHES    400 /* a batch stays below the depth of the launch queue */
#define REPLAYS	    40
#define REPLAYS_FEW 10 /* for short processes, of which many are compared */
#define NODES_SMALL 256
#define NODES_LARGE 1000
#define EXECS	    11

static CUdeviceptr out, w;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void say(const char *name, double *samples, size_t count)
{
	qsort(samples, count, sizeof(*samples), by_value);
	printf("measure %s %.1f\n", name, samples[count / 2]);
}

/* Median time of one @once, @times of them between two synchronisations. */
static void measure(const char *name, void (*once)(void), int times)
{
	double samples[BATCHES];

	for (int i = 0; i < BATCHES; i++) {
		double start;

		settle();
		start = now_ns();
		for (int k = 0; k < times; k++)
			once();
		samples[i] = (now_ns() - start) / times;
	}
	settle();
	say(name, samples, BATCHES);
}

static void launch_kernel(void)
{
	run_acc(out, w);
}

static void alloc_free(void)
{
	CUdeviceptr p;

	CK(cuMemAlloc(&p, BIG));
	CK(cuMemFree(p));
}

static void alloc_free_async(void)
{
	CUdeviceptr p;

	CK(cuMemAllocAsync(&p, BIG, S));
	CK(cuMemFreeAsync(p, S));
}

static CUgraphExec replayed;

static void replay_once(void)
{
	CK(cuGraphLaunch(replayed, S));
}

static CUgraph chain(int nodes)
{
	CUgraphNode last = NULL;
	CUgraph g;

	CK(cuGraphCreate(&g, 0));
	for (int i = 0; i < nodes; i++)
		last = add_acc(g, last, out, w);
	return g;
}

/* What a window of CUPTI costs while it is open is paid by the first replays. */
static void replays(void)
{
	CK(cuMemAlloc(&out, BIG));
	CK(cuMemAlloc(&w, BIG));
	replayed = instantiate(chain(NODES_SMALL));
	for (int i = 0; i < 10 * REPLAYS_FEW; i++)
		replay_once();
	measure("replay-256", replay_once, REPLAYS_FEW);
}

static void instantiations(void)
{
	double samples[EXECS];
	CUgraph g = chain(NODES_LARGE);

	for (int i = 0; i < EXECS; i++) {
		double start = now_ns();

		instantiate(g); /* kept: its bytes are in the exit line */
		samples[i] = (now_ns() - start) / NODES_LARGE;
	}
	say("instantiate-node", samples, EXECS);
}

static void all(void)
{
	CK(cuMemAlloc(&out, BIG));
	CK(cuMemAlloc(&w, BIG));
	measure("launch", launch_kernel, LAUNCHES);
	measure("alloc-free", alloc_free, 5);
	measure("alloc-free-async", alloc_free_async, 100);
	replayed = instantiate(chain(NODES_SMALL));
	measure("replay-256", replay_once, REPLAYS);
	replayed = instantiate(chain(1));
	measure("replay-1", replay_once, LAUNCHES);
	instantiations();
}

VICTIM({ "all", all }, { "replays", replays });
