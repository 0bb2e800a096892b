/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of graphs: what an exec keeps, how it changes, what it allocates. */
#include "tests/sim/test.h"

#include <string.h>

static void an_exec_keeps_what_was_captured(void)
{
	CUdeviceptr out, w, late;
	CUgraphNode node;
	CUgraphExec e;
	CUgraph g;
	size_t n = 1;
	CUDA_KERNEL_NODE_PARAMS p;

	test_start();
	out = device(4096);
	w = device(4096);
	late = device(4096);
	OK(set(S, out, 0));
	OK(set(S, w, 5));
	CAPTURE(g, OK(acc(S, out, w)));
	EQ(first(out), 0);		/* a capture runs nothing */
	e = instantiate(g);
	OK(cuGraphGetNodes(g, &node, &n));
	EQ(n, 1);
	OK(cuGraphKernelNodeGetParams(node, &p));
	EQ(*(CUdeviceptr *)p.kernelParams[0], out);
	*(CUdeviceptr *)p.kernelParams[0] = late; /* forbidden, and without effect on the exec */
	OK(cuGraphDestroy(g));
	OK(replay(e));
	OK(replay(e));
	EQ(first(out), 10);
	EQ(cuGraphDestroy(g), CUDA_ERROR_INVALID_VALUE);
}

static void node_parameters_are_copied(void)
{
	CUdeviceptr out, w, other;
	size_t count = N, n = 1;
	void *args[] = { &out, &other, &count };
	CUDA_KERNEL_NODE_PARAMS p;
	CUgraphNode node;
	CUgraphExec e;
	CUgraph g;

	test_start();
	out = device(4096);
	w = device(4096);
	other = device(4096);
	OK(set(S, out, 0));
	OK(set(S, w, 1));
	OK(set(S, other, 2));
	CAPTURE(g, OK(acc(S, out, w)));
	OK(cuGraphGetNodes(g, &node, &n));
	OK(cuGraphKernelNodeGetParams(node, &p));
	p.kernelParams = args;
	OK(cuGraphKernelNodeSetParams(node, &p));
	other = 0xdead00;
	e = instantiate(g);
	OK(replay(e));
	EQ(first(out), 2);
}

static void packed_arguments_stay_packed(void)
{
	struct { CUdeviceptr p; int v; size_t n; } args = { 0, 6, N };
	size_t size = sizeof(args), n = 1;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			  CU_LAUNCH_PARAM_END };
	CUDA_KERNEL_NODE_PARAMS p;
	CUgraphNode node;
	CUgraphExec e;
	CUgraph g;

	test_start();
	args.p = device(4096);
	CAPTURE(g, OK(cuLaunchKernel(kernel("k_set"), 1, 1, 1, 1, 1, 1, 0, S, NULL, extra)));
	OK(cuGraphGetNodes(g, &node, &n));
	OK(cuGraphKernelNodeGetParams(node, &p));
	EQ((uintptr_t)p.kernelParams, 0);
	EQ((uintptr_t)p.extra[0], (uintptr_t)CU_LAUNCH_PARAM_BUFFER_POINTER);
	EQ(*(CUdeviceptr *)p.extra[1], args.p);
	EQ(*(size_t *)p.extra[3], size);
	e = instantiate(g);
	args.v = 7;
	OK(replay(e));
	EQ(first(args.p), 6);
}

static void update_follows_the_topology(void)
{
	CUgraphExecUpdateResultInfo info;
	CUdeviceptr out, a, b;
	CUgraph g, same, longer, other;
	CUgraphExec e;

	test_start();
	out = device(4096);
	a = device(4096);
	b = device(4096);
	OK(set(S, out, 0));
	OK(set(S, a, 1));
	OK(set(S, b, 10));
	CAPTURE(g, OK(acc(S, out, a)));
	CAPTURE(same, OK(acc(S, out, b)));
	CAPTURE(longer, OK(acc(S, out, a)); OK(acc(S, out, a)));
	CAPTURE(other, OK(cuMemsetD32Async(out, 0, N, S)));
	e = instantiate(g);
	OK(cuGraphExecUpdate(e, same, &info));
	EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
	OK(cuMemFree(a));
	OK(replay(e));
	EQ(first(out), 10);
	EQ(cuGraphExecUpdate(e, longer, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	IS(info.errorNode);
	EQ(cuGraphExecUpdate(e, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
	OK(replay(e));			/* a failed update changes nothing */
	EQ(first(out), 20);
}

static void launches_in_flight_keep_their_parameters(void)
{
	CUdeviceptr out, a, b;
	size_t count = N, n = 2;
	CUDA_KERNEL_NODE_PARAMS p;
	CUgraphNode node[2];
	CUgraphExec e;
	CUgraph g;

	test_start();
	out = device(4096);
	a = device(4096);
	b = device(4096);
	OK(set(S, out, 0));
	OK(set(S, a, 1));
	OK(set(S, b, 100));
	CAPTURE(g, OK(spin(S, b + 4, 2000000)); OK(acc(S, out, a)));
	OK(cuGraphGetNodes(g, node, &n));
	e = instantiate(g);
	OK(cuGraphLaunch(e, S));
	OK(cuGraphKernelNodeGetParams(node[1], &p));
	p.kernelParams = (void *[]){ &out, &b, &count };
	OK(cuGraphExecKernelNodeSetParams(e, node[1], &p));
	OK(cuGraphLaunch(e, S));
	OK(cuGraphExecDestroy(e));
	OK(cuStreamSynchronize(S));
	EQ(first(out), 101);
}

static void nodes_can_be_disabled(void)
{
	CUdeviceptr out, a;
	CUgraphNode node, host;
	CUDA_HOST_NODE_PARAMS hp = { .fn = (CUhostFn)(void *)test_start };
	size_t n = 1;
	unsigned on;
	CUgraphExec e;
	CUgraph g;

	test_start();
	out = device(4096);
	a = device(4096);
	OK(set(S, out, 0));
	OK(set(S, a, 1));
	CAPTURE(g, OK(acc(S, out, a)));
	OK(cuGraphGetNodes(g, &node, &n));
	e = instantiate(g);
	OK(cuGraphNodeSetEnabled(e, node, 0));
	OK(cuGraphNodeGetEnabled(e, node, &on));
	EQ(on, 0);
	OK(cuMemFree(a));
	OK(replay(e));
	EQ(first(out), 0);
	OK(cuGraphAddHostNode(&host, g, NULL, 0, &hp));
	EQ(cuGraphNodeSetEnabled(e, host, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphNodeSetEnabled(e, node, 1));
	EQ(replay(e), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void every_generation_instantiates(void)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {
		.flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
	};
	CUgraphExec e[3];
	CUgraph g, cycle;
	CUgraphNode a, b;
	cuuint64_t flags;

	test_start();
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddEmptyNode(&a, g, NULL, 0));
	OK(cuGraphInstantiate(&e[0], g, 0));
	OK(cuGraphInstantiateWithParams(&e[1], g, &params));
	EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
	OK(cuGraphExecGetFlags(e[1], &flags));
	EQ(flags, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	OK(cuGraphExecDestroy(e[0]));
	EQ(cuGraphExecDestroy(e[0]), CUDA_ERROR_INVALID_VALUE);
	EQ(cuGraphLaunch(e[0], S), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphInstantiate(&e[2], g, 0));
	EQ((uintptr_t)e[2], (uintptr_t)e[0]);	/* handles are reused */
	OK(cuGraphCreate(&cycle, 0));
	OK(cuGraphAddEmptyNode(&a, cycle, NULL, 0));
	OK(cuGraphAddEmptyNode(&b, cycle, &a, 1));
	OK(cuGraphAddDependencies(cycle, &b, &a, NULL, 1));
	EQ(cuGraphInstantiate(&e[0], cycle, 0), CUDA_ERROR_INVALID_VALUE);
}

static void children_are_clones(void)
{
	CUdeviceptr out, w;
	CUgraphNode in_child, copy, child_node, found;
	CUgraph child, parent, embedded, clone;
	size_t n = 1;
	CUgraphNodeType type;
	CUgraphExec e;

	test_start();
	out = device(4096);
	w = device(4096);
	OK(set(S, out, 0));
	OK(set(S, w, 2));
	CAPTURE(child, OK(acc(S, out, w)));
	OK(cuGraphGetNodes(child, &in_child, &n));
	OK(cuGraphCreate(&parent, 0));
	OK(cuGraphAddChildGraphNode(&child_node, parent, NULL, 0, child));
	OK(cuGraphChildGraphNodeGetGraph(child_node, &embedded));
	IS(embedded != child);
	OK(cuGraphNodeFindInClone(&copy, in_child, embedded));
	IS(copy != in_child);
	EQ(cuGraphDestroy(embedded), CUDA_ERROR_INVALID_VALUE);	/* the node's */
	OK(cuGraphDestroy(child));
	OK(cuGraphClone(&clone, parent));
	OK(cuGraphNodeFindInClone(&found, child_node, clone));
	OK(cuGraphNodeGetType(found, &type));
	EQ(type, CU_GRAPH_NODE_TYPE_GRAPH);
	e = instantiate(clone);
	OK(cuGraphDestroy(parent));
	OK(replay(e));
	EQ(first(out), 2);
}

static void nodes_and_edges(void)
{
	CUgraphNode a, b, c, list[4], from[4], to[4];
	size_t n = 4;
	CUgraph g;

	test_start();
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddEmptyNode(&a, g, NULL, 0));
	OK(cuGraphAddEmptyNode(&b, g, &a, 1));
	OK(cuGraphAddEmptyNode(&c, g, (CUgraphNode[]){ a, b }, 2));
	EQ(cuGraphAddEmptyNode(&c, g, (CUgraphNode[]){ a, a }, 2), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphGetNodes(g, NULL, &n));
	EQ(n, 3);
	n = 4;
	OK(cuGraphGetNodes(g, list, &n));
	EQ(n, 3);
	EQ((uintptr_t)list[3], 0);
	n = 4;
	OK(cuGraphGetRootNodes(g, list, &n));
	EQ(n, 1);
	EQ((uintptr_t)list[0], (uintptr_t)a);
	n = 4;
	OK(cuGraphGetEdges(g, from, to, NULL, &n));
	EQ(n, 3);
	n = 4;
	OK(cuGraphNodeGetDependencies(c, list, NULL, &n));
	EQ(n, 2);
	OK(cuGraphDestroyNode(b));
	n = 4;
	OK(cuGraphNodeGetDependencies(c, list, NULL, &n));
	EQ(n, 1);
	EQ(cuGraphDestroyNode(b), CUDA_ERROR_INVALID_VALUE);
}

/* Branch i adds i + 1 to out, and clears the condition. */
static CUgraphExec conditional(CUgraphConditionalNodeType type, unsigned size, unsigned initial,
			       CUdeviceptr out)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUgraph body;
	CUdeviceptr by;
	size_t n = N;
	CUgraphNode node;
	CUcontext ctx;
	CUgraph g;

	OK(cuCtxGetCurrent(&ctx));
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphConditionalHandleCreate(&p.conditional.handle, g, ctx, initial,
					  CU_GRAPH_COND_ASSIGN_DEFAULT));
	p.conditional.type = type;
	p.conditional.size = size;
	p.conditional.ctx = ctx;
	OK(cuGraphAddNode(&node, g, NULL, NULL, 0, &p));
	for (unsigned i = 0; i < size; i++) {
		CUgraphConditionalHandle handle = p.conditional.handle;
		int zero = 0;

		by = device(4096);
		OK(set(S, by, 1 + (int)i));
		OK(cuStreamSynchronize(S));
		OK(cuStreamBeginCaptureToGraph(S, p.conditional.phGraph_out[i], NULL, NULL, 0,
					       CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(run(S, "k_acc", (void *[]){ &out, &by, &n }));
		OK(run(S, "k_cond", (void *[]){ &handle, &zero }));
		OK(cuStreamEndCapture(S, &body));
	}
	return instantiate(g);
}

static void conditionals(void)
{
	CUdeviceptr out;

	test_start();
	out = device(8192);
	OK(cuMemsetD32(out, 0, 2048));
	OK(replay(conditional(CU_GRAPH_COND_TYPE_IF, 1, 1, out)));
	EQ(first(out), 1);
	OK(replay(conditional(CU_GRAPH_COND_TYPE_IF, 1, 0, out)));
	EQ(first(out), 1);
	OK(replay(conditional(CU_GRAPH_COND_TYPE_IF, 2, 0, out)));
	EQ(first(out), 3);		/* the else branch adds 2 */
	OK(replay(conditional(CU_GRAPH_COND_TYPE_WHILE, 1, 1, out)));
	EQ(first(out), 4);		/* the body ends its loop */
	OK(replay(conditional(CU_GRAPH_COND_TYPE_SWITCH, 3, 2, out)));
	EQ(first(out), 7);
	OK(replay(conditional(CU_GRAPH_COND_TYPE_SWITCH, 3, 3, out)));
	EQ(first(out), 7);
}

static void alloc_nodes(void)
{
	CUdeviceptr p, p2, again, out;
	unsigned type;
	CUgraphExec e, e2;
	CUgraph g, g2, clone;

	test_start();
	out = device(4096);
	OK(cuMemsetD32(out, 0, N));
	CAPTURE(g, OK(cuMemAllocAsync(&p, 4 * MIB, S)); OK(set(S, p, 1)); OK(acc(S, out, p));
		OK(cuMemFreeAsync(p, S)); OK(cuMemAllocAsync(&again, 4 * MIB, S));
		OK(cuMemFreeAsync(again, S)));
	EQ(again, p);			/* reused within the graph */
	EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p),
	   CUDA_ERROR_INVALID_VALUE);
	e = instantiate(g);
	EQ(cuGraphInstantiate(&e2, g, 0), CUDA_ERROR_NOT_SUPPORTED);
	EQ(cuGraphClone(&clone, g), CUDA_ERROR_NOT_SUPPORTED);
	for (int i = 0; i < 3; i++)
		OK(replay(e));
	EQ(first(out), 3);
	EQ(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);	/* the graph freed it */
	OK(cuGraphDestroy(g));
	CAPTURE(g2, OK(cuMemAllocAsync(&p2, 4 * MIB, S)); OK(set(S, p2, 2)));
	IS(p2 != p);			/* the exec still holds the address */
	e2 = instantiate(g2);
	OK(replay(e2));
	EQ(first(p2), 2);
	EQ(replay(e2), CUDA_ERROR_INVALID_VALUE);	/* what it allocated is still there */
	OK(cuMemFree(p2));
	OK(replay(e2));
	OK(cuMemFreeAsync(p2, S));
	OK(cuDeviceGraphMemTrim(0));
	OK(replay(e));
	EQ(first(out), 4);
}

static void outside_the_graph_its_memory_is_gone(void)
{
	CUgraphExec e;
	CUdeviceptr p;
	CUgraph g;

	test_start();
	CAPTURE(g, OK(cuMemAllocAsync(&p, 4 * MIB, S)); OK(set(S, p, 1));
		OK(cuMemFreeAsync(p, S)));
	e = instantiate(g);
	OK(replay(e));
	OK(set(S, p, 1));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void batch_memory_operations(void)
{
	CUstreamBatchMemOpParams op = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32 };
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { .count = 1, .paramArray = &op }, back;
	CUgraphNode node;
	CUdeviceptr a;
	CUgraphExec e;
	CUgraph g;

	test_start();
	a = device(4096);
	op.writeValue.address = a;
	op.writeValue.value = 77;
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddBatchMemOpNode(&node, g, NULL, 0, &p));
	op.writeValue.value = 78;	/* copied */
	OK(cuGraphBatchMemOpNodeGetParams(node, &back));
	EQ(back.paramArray[0].writeValue.address, a);
	e = instantiate(g);
	OK(replay(e));
	EQ(first(a), 77);
	OK(cuGraphExecBatchMemOpNodeSetParams(e, node, &p));
	OK(replay(e));
	EQ(first(a), 78);
	OK(cuMemFree(a));
	EQ(replay(e), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void copies_and_fills(void)
{
	CUDA_MEMSET_NODE_PARAMS fill = { .elementSize = 4, .width = N, .height = 1, .value = 9 };
	CUDA_MEMCPY3D copy = { 0 }, back;
	CUgraphNode f, c;
	CUdeviceptr a, b;
	CUcontext ctx;
	CUgraphExec e;
	CUgraph g;

	test_start();
	OK(cuCtxGetCurrent(&ctx));
	a = device(4096);
	b = device(4096);
	fill.dst = a;
	copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.srcDevice = a;
	copy.dstDevice = b;
	copy.WidthInBytes = 4096;
	copy.Height = copy.Depth = 1;
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddMemsetNode(&f, g, NULL, 0, &fill, ctx));
	OK(cuGraphAddMemcpyNode(&c, g, &f, 1, &copy, ctx));
	OK(cuGraphMemcpyNodeGetParams(c, &back));
	EQ(back.srcDevice, a);
	e = instantiate(g);
	OK(replay(e));
	EQ(first(b), 9);
	fill.value = 10;
	OK(cuGraphExecMemsetNodeSetParams(e, f, &fill, ctx));
	OK(replay(e));
	EQ(first(b), 10);
	OK(cuMemFree(b));
	EQ(replay(e), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void tensor_maps_hide_the_address(void)
{
	static CUtensorMap tensor, moved;
	cuuint64_t dims[] = { N };
	cuuint32_t box[] = { 64 }, ones[] = { 1 };
	CUdeviceptr out, a, b;

	test_start();
	out = device(4096);
	a = device(4096);
	b = device(4096);
	OK(set(S, a, 21));
	OK(set(S, b, 22));
	OK(cuTensorMapEncodeTiled(&tensor, CU_TENSOR_MAP_DATA_TYPE_INT32, 1, (void *)(uintptr_t)a,
				  dims, NULL, box, ones, 0, 0, 0, 0));
	for (size_t i = 0; i + 8 <= sizeof(tensor); i++)
		IS(memcmp((char *)&tensor + i, &a, 8));
	OK(run(S, "k_tma", (void *[]){ &out, &tensor }));
	EQ(cuStreamSynchronize(S), CUDA_SUCCESS);
	EQ(first(out), 21);
	moved = tensor;
	OK(cuTensorMapReplaceAddress(&moved, (void *)(uintptr_t)b));
	OK(run(S, "k_tma", (void *[]){ &out, &moved }));
	OK(cuStreamSynchronize(S));
	EQ(first(out), 22);
	OK(cuMemFree(a));
	OK(run(S, "k_tma", (void *[]){ &out, &tensor }));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* The handle that the runtime launches. */
static void a_kernel_in_a_functions_clothes(void)
{
	CUdeviceptr p;
	CUlibrary lib;
	CUfunction f, real;
	CUkernel k;
	size_t offset, size, n = N;
	const char *name;
	int v = 4;

	test_start();
	p = device(4096);
	OK(cuLibraryLoadData(&lib, "image", NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&k, lib, "k_set"));
	EQ(cuLibraryGetKernel(&k, lib, "k_none"), CUDA_ERROR_NOT_FOUND);
	f = (CUfunction)k;
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, S, (void *[]){ &p, &v, &n }, NULL));
	OK(cuStreamSynchronize(S));
	EQ(first(p), 4);
	EQ(cuFuncGetParamInfo(f, 0, &offset, &size), CUDA_ERROR_INVALID_HANDLE);
	EQ(cuFuncGetName(&name, f), CUDA_ERROR_INVALID_HANDLE);
	OK(cuKernelGetParamInfo(k, 2, &offset, &size));
	EQ(offset, 16);
	EQ(size, 8);
	EQ(cuKernelGetParamInfo(k, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
	OK(cuKernelGetFunction(&real, k));
	OK(cuFuncGetParamInfo(real, 1, &offset, &size));
	EQ(offset, 8);
	EQ(size, 4);
	OK(cuLibraryUnload(lib));
	EQ(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, S, (void *[]){ &p, &v, &n }, NULL),
	   CUDA_ERROR_INVALID_HANDLE);
}

const struct test tests_graph[] = {
	{ "an exec keeps what was captured", an_exec_keeps_what_was_captured, NULL },
	{ "node parameters are copied", node_parameters_are_copied, NULL },
	{ "packed arguments stay packed", packed_arguments_stay_packed, NULL },
	{ "update follows the topology", update_follows_the_topology, NULL },
	{ "launches in flight keep their parameters", launches_in_flight_keep_their_parameters,
	  NULL },
	{ "nodes can be disabled", nodes_can_be_disabled, NULL },
	{ "every generation instantiates", every_generation_instantiates, NULL },
	{ "children are clones", children_are_clones, NULL },
	{ "nodes and edges", nodes_and_edges, NULL },
	{ "conditionals", conditionals, NULL },
	{ "alloc nodes", alloc_nodes, NULL },
	{ "outside the graph its memory is gone", outside_the_graph_its_memory_is_gone, NULL },
	{ "batch memory operations", batch_memory_operations, NULL },
	{ "copies and fills", copies_and_fills, NULL },
	{ "tensor maps hide the address", tensor_maps_hide_the_address, NULL },
	{ "a kernel in a function's clothes", a_kernel_in_a_functions_clothes, NULL },
	{ NULL, NULL, NULL },
};
