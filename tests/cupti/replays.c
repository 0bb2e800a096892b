/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a CUPTI that was there and was finalised leaves of a replay's speed, with nothing of ours in
 * the process: tests/gpu compares it with a window that was closed. The graph is made without it
 * (never), while it is attached (inside) or afterwards (after).
 */
#include <cupti.h>

#include "tests/victims/slices.h"

#define NODES	256
#define REPLAYS 8

static CUdeviceptr out, w;
static CUgraphExec replayed;

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

static void replay_once(void)
{
	CK(cuGraphLaunch(replayed, S));
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

static void serve(void)
{
	SLICES_SERVE({ "replay-256", replay_once, REPLAYS, NULL });
}

static void inside(void)
{
	CUpti_SubscriberHandle s;

	start();
	s = attach();
	replayed = chain();
	replay_once();
	settle();
	detach(s);
	serve();
}

static void after(void)
{
	start();
	detach(attach());
	replayed = chain();
	serve();
}

static void never(void)
{
	start();
	replayed = chain();
	serve();
}

VICTIM({ "inside", inside }, { "after", after }, { "never", never });
