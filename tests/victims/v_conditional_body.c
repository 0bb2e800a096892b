/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel inside the body of a conditional node refers to memory like any other. */
#include "victim.h"

static CUdeviceptr out, w;

static void set_condition(CUgraph g, CUgraphNode *node, CUgraphConditionalHandle handle, int v)
{
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = victim_kernel("k_cond"),
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = (void *[]){ &handle, &v },
	};

	CK(cuGraphAddKernelNode(node, g, NULL, 0, &p));
}

static CUgraphExec start(int condition)
{
	CUgraphConditionalHandle handle;
	CUgraphNode setter, node;
	CUgraph g;

	out = dev_alloc("out", BIG);
	w = dev_alloc("w", BIG);
	poke(out, 0);
	poke(w, 1);
	CK(cuGraphCreate(&g, 0));
	CK(cuGraphConditionalHandleCreate(&handle, g, victim_context, 0,
					  CU_GRAPH_COND_ASSIGN_DEFAULT));
	set_condition(g, &setter, handle, condition);
	CUgraphNodeParams p = {
		.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
		.conditional = { .handle = handle,
				 .type = CU_GRAPH_COND_TYPE_IF,
				 .size = 1,
				 .ctx = victim_context },
	};

	CK(cuGraphAddNode(&node, g, &setter, NULL, 1, &p));
	add_acc(p.conditional.phGraph_out[0], NULL, out, w);
	return instantiate(g);
}

static void taken(void)
{
	CUgraphExec e = start(1);

	replay("E", e);
	MUST(peek(out) == 1);
	dev_free(w);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 1);
}

static void healthy(void)
{
	CUgraphExec e = start(0);

	replay("E", e);
	replay("E", e);
	MUST(peek(out) == 0);
}

VICTIM({ "taken", taken }, { "healthy", healthy });
