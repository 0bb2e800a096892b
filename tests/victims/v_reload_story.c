/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reload in a program that looks at every result and cleans up after a failure. The runner
 * lets each driver call of it fail in turn (tests/e2e/run_faults.py): the program must see
 * exactly what it would see without the library, and no finding may be invented.
 *
 * It prints "call NAME CODE" for each call, and no addresses.
 */
#include "victim.h"

static CUdeviceptr out, w, fresh;
static CUgraph graph, graph_new;
static CUgraphExec exec;

static bool step(const char *name, CUresult r)
{
	printf("call %s %d\n", name, (int)r);
	return r == CUDA_SUCCESS;
}
#define DO(call, ...) step(#call, call(__VA_ARGS__))

static bool acc_kernel(CUdeviceptr src)
{
	size_t n = N_INTS;
	void *args[] = { &out, &src, &n };

	return DO(cuLaunchKernel, victim_kernel("k_acc"), 4, 1, 1, 256, 1, 1, 0, S, args, NULL);
}

static bool capture(CUgraph *g, CUdeviceptr src)
{
	bool launched;

	if (!DO(cuStreamBeginCapture, S, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
		return false;
	launched = acc_kernel(src);
	return DO(cuStreamEndCapture, S, g) && launched && *g;
}

static bool run(void)
{
	return DO(cuGraphLaunch, exec, S) && DO(cuStreamSynchronize, S);
}

static bool load(CUdeviceptr *p, unsigned v)
{
	return DO(cuMemAlloc, p, BIG) && DO(cuMemsetD32Async, *p, v, N_INTS, S) &&
	       DO(cuStreamSynchronize, S);
}

static bool begin(void)
{
	return load(&out, 0) && load(&w, 1) && capture(&graph, w) &&
	       DO(cuGraphInstantiateWithFlags, &exec, graph, 0) && run();
}

static bool drop(CUdeviceptr *p)
{
	CUdeviceptr old = *p;

	if (!DO(cuMemFree, old))
		return false;
	*p = 0;
	return true;
}

static bool update(void)
{
	CUgraphExecUpdateResultInfo info;

	return capture(&graph_new, fresh) && DO(cuGraphExecUpdate, exec, graph_new, &info);
}

static bool add_copy(void)
{
	CUDA_MEMSET_NODE_PARAMS set = { .dst = fresh, .elementSize = 4, .width = 1, .height = 1 };
	CUgraphNode node;
	CUgraph clone;
	bool ok;

	if (!DO(cuGraphClone, &clone, graph_new))
		return false;
	ok = DO(cuGraphAddMemsetNode, &node, clone, NULL, 0, &set, victim_context) &&
	     DO(cuGraphDestroyNode, node);
	return DO(cuGraphDestroy, clone) && ok;
}

static bool remap(void)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = victim_device },
	};
	CUmemGenericAllocationHandle h;
	CUdeviceptr at;
	bool ok;

	if (!DO(cuMemAddressReserve, &at, BIG, 0, 0, 0))
		return false;
	if (DO(cuMemCreate, &h, BIG, &prop, 0)) {
		ok = DO(cuMemMap, at, BIG, 0, h, 0) && DO(cuMemUnmap, at, BIG);
		ok = DO(cuMemRelease, h) && ok;
	} else {
		ok = false;
	}
	return DO(cuMemAddressFree, at, BIG) && ok;
}

static bool stream_ordered(void)
{
	CUdeviceptr p;

	return DO(cuMemAllocAsync, &p, BIG, S) && DO(cuMemFreeAsync, p, S) &&
	       DO(cuStreamSynchronize, S);
}

static void finish(void)
{
	if (exec)
		DO(cuGraphExecDestroy, exec);
	if (graph)
		DO(cuGraphDestroy, graph);
	if (graph_new)
		DO(cuGraphDestroy, graph_new);
	if (fresh)
		drop(&fresh);
	if (w)
		drop(&w);
	if (out)
		drop(&out);
}

static void healthy(void)
{
	if (begin() && load(&fresh, 2) && update() && drop(&w) && run() && add_copy() && remap() &&
	    stream_ordered())
		tell("out", peek(out));
	finish();
}

static void buggy(void)
{
	victim_only_harmless(false);
	if (begin() && load(&fresh, 2) && drop(&w) && run())
		tell("out", peek(out));
	finish();
}

VICTIM({ "healthy", healthy }, { "buggy", buggy });
