/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A27 (trap), openxla/xla#6668, NVIDIA/warp#464: an exec gets new addresses before it is
 * launched, and the old memory may go. An update that fails changes nothing.
 */
#include "victim.h"

static CUdeviceptr out, a, b, c, d;
static CUgraph g;
static CUgraphExec e;

static void start(void)
{
	out = dev_alloc("out", BIG);
	a = dev_alloc("a", BIG);
	b = dev_alloc("b", BIG);
	c = dev_alloc("c", BIG);
	d = dev_alloc("d", BIG);
	poke(out, 0);
	poke(a, 1);
	poke(b, 2);
	poke(c, 4);
	poke(d, 8);
	CAPTURE(g, run_acc(out, a));
	e = instantiate(g);
}

static void update_to_b(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph other;

	CAPTURE(other, run_acc(out, b));
	CK(cuGraphExecUpdate(e, other, &info));
	CK(cuGraphDestroy(other));
}

static void set_to_c(void)
{
	CUDA_KERNEL_NODE_PARAMS np;
	size_t n = N_INTS;

	CK(cuGraphKernelNodeGetParams(only_node(g), &np));
	np.kernelParams = (void *[]){ &out, &c, &n };
	CK(cuGraphExecKernelNodeSetParams(e, only_node(g), &np));
}

static void failed(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph other;

	start();
	update_to_b();
	dev_free(a);
	replay("E", e);
	set_to_c();
	dev_free(b);
	replay("E", e);
	MUST(peek(out) == 6);
	CAPTURE(other, run_acc(out, d); run_acc(out, d));
	tell("update", cuGraphExecUpdate(e, other, &info));
	tell("update-result", info.result);
	dev_free(c);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 6);
}

/* After the refusal the exec is repaired: nothing is sticky. */
static void repaired(void)
{
	start();
	dev_free(a);
	victim_only_harmless(false);
	replay("E", e);
	update_to_b();
	replay("E", e);
	MUST(peek(out) == 2);
}

/* Equal kernels in another order while one of them is disabled: which is it now? */
static void reordered(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph mine, other;
	CUgraphNode second;
	CUgraphExec x;

	start();
	CK(cuGraphExecDestroy(e));
	CK(cuGraphCreate(&mine, 0));
	second = add_acc(mine, add_acc(mine, NULL, out, a), out, b);
	x = instantiate(mine);
	CK(cuGraphNodeSetEnabled(x, second, 0));
	CK(cuGraphExecUpdate(x, mine, &info));
	replay("X", x);
	CK(cuGraphCreate(&other, 0));
	second = add_acc(other, NULL, out, b);
	CK(cuGraphAddDependencies(other, (CUgraphNode[]){ add_acc(other, NULL, out, a) }, &second,
				  NULL, 1));
	CK(cuGraphExecUpdate(x, other, &info));
	replay("X", x);
}

/* New source and destination of a memcpy node, new destination of a memset node. */
static void copies(void)
{
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.WidthInBytes = 4096,
		.Height = 1,
		.Depth = 1,
	};
	CUDA_MEMSET_NODE_PARAMS set = { .elementSize = 4, .width = 1024, .height = 1, .value = 3 };
	CUgraphNode node_copy, node_set;
	CUgraph mine;
	CUgraphExec x;

	start();
	CK(cuGraphCreate(&mine, 0));
	copy.srcDevice = a;
	copy.dstDevice = b;
	CK(cuGraphAddMemcpyNode(&node_copy, mine, NULL, 0, &copy, victim_context));
	set.dst = a;
	CK(cuGraphAddMemsetNode(&node_set, mine, &node_copy, 1, &set, victim_context));
	x = instantiate(mine);
	copy.srcDevice = c;
	copy.dstDevice = d;
	CK(cuGraphExecMemcpyNodeSetParams(x, node_copy, &copy, victim_context));
	set.dst = c;
	CK(cuGraphExecMemsetNodeSetParams(x, node_set, &set, victim_context));
	CK(cuGraphExecDestroy(e));
	dev_free(a);
	dev_free(b);
	replay("X", x);
	MUST(peek(d) == 4 && peek(c) == 3);
	dev_free(c);
	victim_only_harmless(false);
	replay("X", x);
	MUST(peek(d) == 4);
}

VICTIM({ "failed", failed }, { "repaired", repaired }, { "copies", copies },
       { "reordered", reordered });
