/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a CUPTI that was there and was finalised leaves of a replay's speed, with nothing of ours in
 * the process: tests/gpu compares it with a window that was closed. Prints "measure NAME
 * NANOSECONDS", as measure.c of the victims does.
 */
#include <cupti.h>
#include <time.h>

#include "tests/victims/victim.h"

#define NODES	256
#define BATCHES 41
#define REPLAYS 10 /* between two synchronisations: below the depth of the launch queue */

static CUdeviceptr out, w;

static void CUPTIAPI hear(void *userdata, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
			  const void *data)
{
}

static CUpti_SubscriberHandle attach(void)
{
	CUpti_SubscriberHandle s;

	MUST(cuptiSubscribe(&s, hear, NULL) == CUPTI_SUCCESS);
	MUST(cuptiEnableDomain(1, s, CUPTI_CB_DOMAIN_RESOURCE) == CUPTI_SUCCESS);
	return s;
}

static void detach(CUpti_SubscriberHandle s)
{
	MUST(cuptiUnsubscribe(s) == CUPTI_SUCCESS);
	MUST(cuptiFinalize() == CUPTI_SUCCESS);
}

static CUgraphExec chain(void)
{
	CUgraphNode last = NULL;
	CUgraph g;

	CK(cuGraphCreate(&g, 0));
	for (int i = 0; i < NODES; i++)
		last = add_acc(g, last, out, w);
	return instantiate(g);
}

static void start(void)
{
	CK(cuMemAlloc(&out, BIG));
	CK(cuMemAlloc(&w, BIG));
}

static void serve(CUgraphExec e, unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		CK(cuGraphLaunch(e, S));
	settle();
}

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

static void measure(const char *name, CUgraphExec e)
{
	double samples[BATCHES];

	serve(e, 10 * REPLAYS);
	for (unsigned i = 0; i < BATCHES; i++) {
		double start_ns = now_ns();

		for (unsigned k = 0; k < REPLAYS; k++)
			CK(cuGraphLaunch(e, S));
		samples[i] = (now_ns() - start_ns) / REPLAYS;
		settle();
	}
	qsort(samples, BATCHES, sizeof(*samples), by_value);
	printf("measure %s %.1f\n", name, samples[BATCHES / 2]);
}

/* A graph that was made while it was attached, and one that was made afterwards. */
static void finalized(void)
{
	CUpti_SubscriberHandle s;
	CUgraphExec inside;

	start();
	s = attach();
	inside = chain();
	serve(inside, REPLAYS);
	detach(s);
	measure("replay-inside", inside);
	measure("replay-after", chain());
}

static void never(void)
{
	start();
	measure("replay-256", chain());
}

VICTIM({ "finalized", finalized }, { "never", never });
