/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU time of driver calls, in slices that tests/gpu compares with and without the library. For a
 * real driver.
 */
#include "tests/victims/slices.h"

#define LAUNCHES    100
#define REPLAYS	    8
#define NODES_SMALL 256
#define NODES_LARGE 1000

static CUdeviceptr out, w;
static CUgraphExec small, one, large;
static CUgraph graph_large;

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

static void replay_small(void)
{
	CK(cuGraphLaunch(small, S));
}

static void replay_one(void)
{
	CK(cuGraphLaunch(one, S));
}

static void instantiate_large(void)
{
	large = instantiate(graph_large);
}

/* The last one stays: its bytes are in the exit line. */
static void drop_large(void)
{
	if (large)
		CK(cuGraphExecDestroy(large));
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

static void start_small(void)
{
	CK(cuMemAlloc(&out, BIG));
	CK(cuMemAlloc(&w, BIG));
	small = instantiate(chain(NODES_SMALL));
}

/* What a window of CUPTI costs while it is open is paid by the first replays. */
static void replays(void)
{
	start_small();
	SLICES_SERVE({ "replay-256", replay_small, REPLAYS, NULL });
}

static void all(void)
{
	start_small();
	one = instantiate(chain(1));
	graph_large = chain(NODES_LARGE);
	SLICES_SERVE({ "launch", launch_kernel, LAUNCHES, NULL },
		     { "alloc-free", alloc_free, 5, NULL },
		     { "alloc-free-async", alloc_free_async, 50, NULL },
		     { "replay-256", replay_small, REPLAYS, NULL },
		     { "replay-1", replay_one, LAUNCHES, NULL },
		     { "instantiate-1000", instantiate_large, 1, drop_large });
}

VICTIM({ "all", all }, { "replays", replays });
