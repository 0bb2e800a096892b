/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A24, ggml-org/llama.cpp#12152: an application swaps one entry of the parameters that belong to
 * a node for its own memory, sets them, and reuses that memory. Only bytes that were copied at
 * the call count.
 */
#include "victim.h"

static void swapped(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), a = dev_alloc("a", BIG), b = dev_alloc("b", BIG);
	CUDA_KERNEL_NODE_PARAMS np;
	volatile CUdeviceptr mine = b;
	CUgraph g;
	CUgraphExec e;

	poke(out, 0);
	poke(a, 1);
	poke(b, 2);
	CAPTURE(g, run_acc(out, a));
	CK(cuGraphKernelNodeGetParams(only_node(g), &np));
	void *args[] = { np.kernelParams[0], (void *)&mine, np.kernelParams[2] };

	np.kernelParams = args;
	CK(cuGraphKernelNodeSetParams(only_node(g), &np));
	e = instantiate(g);
	mine = 0xdead;
	args[1] = NULL;
	dev_free(a);
	replay("E", e);
	MUST(peek(out) == 2);
}

/* The other way round: what was set dies. */
static void buggy(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), a = dev_alloc("a", BIG), b = dev_alloc("b", BIG);
	CUDA_KERNEL_NODE_PARAMS np;
	CUgraph g;
	CUgraphExec e;

	poke(out, 0);
	CAPTURE(g, run_acc(out, a));
	CK(cuGraphKernelNodeGetParams(only_node(g), &np));
	void *args[] = { np.kernelParams[0], &b, np.kernelParams[2] };

	np.kernelParams = args;
	CK(cuGraphKernelNodeSetParams(only_node(g), &np));
	e = instantiate(g);
	dev_free(b);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 0);
}

VICTIM({ "swapped", swapped }, { "buggy", buggy });
