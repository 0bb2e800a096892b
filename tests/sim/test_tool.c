/* SPDX-License-Identifier: Apache-2.0 */
/* What a tool is told, and in which order (tool.h). Single-threaded. */
#include "tests/sim/test.h"

#include <dlfcn.h>
#include <stddef.h>

#include "tests/sim/tool.h"

#define TOLD 256

static struct sim_tool_data told[TOLD];
static unsigned n_told;

static void listen(const struct sim_tool_data *d)
{
	CUDA_KERNEL_NODE_PARAMS p;

	if (d->event == SIM_TOOL_ENTER || d->event == SIM_TOOL_EXIT)
		return;
	IS(n_told < TOLD);
	told[n_told++] = *d;
	/* What is told can be read, right then. */
	if (d->event == SIM_TOOL_NODE_CREATED && d->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		OK(cuGraphKernelNodeGetParams((CUgraphNode)d->node, &p));
		IS(p.func);
	}
}

static void start(void)
{
	void (*set_tool)(sim_tool_fn) = (void (*)(sim_tool_fn))dlsym(RTLD_DEFAULT, "sim_tool_set");

	test_start();
	IS(set_tool);
	set_tool(listen);
}

/* The next event is this one. @return its data. */
static const struct sim_tool_data *next(enum sim_tool_event event)
{
	static unsigned at;

	IS(at < n_told);
	EQ(told[at].event, event);
	return &told[at++];
}

static CUgraph two_nodes(CUdeviceptr p)
{
	CUgraph g;

	CAPTURE(g, OK(set(S, p, 1)); OK(acc(S, p, p)));
	next(SIM_TOOL_GRAPH_CREATED);
	return g;
}

static void a_capture_is_told(void)
{
	const struct sim_tool_data *d;
	const void *first_node;
	CUgraph g;

	start();
	g = two_nodes(device(MIB));
	EQ((uintptr_t)next(SIM_TOOL_NODE_CREATE_STARTING)->graph, (uintptr_t)g);
	first_node = next(SIM_TOOL_NODE_CREATED)->node;
	next(SIM_TOOL_NODE_CREATE_STARTING);
	d = next(SIM_TOOL_NODE_CREATED);
	EQ((uintptr_t)d->graph, (uintptr_t)g);
	EQ((uintptr_t)next(SIM_TOOL_EDGE_CREATED)->dependency, (uintptr_t)first_node);
	OK(cuGraphDestroy(g));
	EQ((uintptr_t)next(SIM_TOOL_GRAPH_DESTROY_STARTING)->graph, (uintptr_t)g);
	EQ((uintptr_t)next(SIM_TOOL_NODE_DESTROY_STARTING)->node, (uintptr_t)first_node);
	next(SIM_TOOL_NODE_DESTROY_STARTING);
	EQ(n_told, 9);
}

/* The exec's own copy of each node, between the two ends of the instantiation. */
static void an_instantiation_is_told(void)
{
	unsigned created = 0, cloned = 0;
	CUgraphExec e;
	CUgraph g;

	start();
	g = two_nodes(device(MIB));
	n_told = 1;
	e = instantiate(g);
	next(SIM_TOOL_EXEC_CREATE_STARTING);
	next(SIM_TOOL_GRAPH_CREATED);
	for (unsigned i = 0; i < n_told; i++) {
		created += told[i].event == SIM_TOOL_NODE_CREATED;
		cloned += told[i].event == SIM_TOOL_NODE_CLONED && told[i].original_graph == g;
	}
	EQ(created, 2);
	EQ(cloned, 2);
	EQ(told[n_told - 1].event, SIM_TOOL_EXEC_CREATED);
	EQ((uintptr_t)told[n_told - 1].exec, (uintptr_t)e);
	n_told = 2;
	EQ(replay(e), CUDA_SUCCESS);
	EQ(n_told, 2);
	OK(cuGraphExecDestroy(e));
	EQ(told[2].event, SIM_TOOL_EXEC_DESTROY_STARTING);
	OK(cuGraphDestroy(g));
}

/* The exec's clone shares the address of an alloc node: its end is not the address's end. */
static void a_clone_of_memory_nodes(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS a = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } },
		.bytesize = MIB,
	};
	CUgraphNode node, other;
	CUgraphExec e;
	CUgraph g;
	CUdeviceptr was;

	start();
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddMemAllocNode(&node, g, NULL, 0, &a));
	OK(cuGraphAddMemFreeNode(&other, g, &node, 1, a.dptr));
	was = a.dptr;
	OK(cuGraphExecDestroy(instantiate(g)));
	e = instantiate(g);
	OK(replay(e));
	OK(cuGraphDestroy(g));
	OK(replay(e));
	OK(cuGraphExecDestroy(e));
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddMemAllocNode(&node, g, NULL, 0, &a));
	EQ(a.dptr, was);
}

const struct test tests_tool[] = {
	{ "a capture is told", a_capture_is_told, NULL },
	{ "an instantiation is told", an_instantiation_is_told, NULL },
	{ "a clone of memory nodes", a_clone_of_memory_nodes, NULL },
	{ NULL, NULL, NULL },
};
