/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of streams, events and capture. */
#include "tests/sim/test.h"

#include <pthread.h>
#include <string.h>

static void work_is_lazy_and_in_order(void)
{
	CUdeviceptr a;
	int polls = 0;

	test_start();
	a = device(4096);
	OK(set(S, a, 1));
	OK(spin(S, a, 5000000));	/* five queries long */
	OK(acc(S, a, a));
	while (cuStreamQuery(S) == CUDA_ERROR_NOT_READY)
		polls++;
	EQ(polls, 5);
	EQ(first(a), 2);
}

static void events_order_streams(void)
{
	CUdeviceptr a, b;
	CUstream other;
	CUevent e;
	float ms;

	test_start();
	a = device(4096);
	b = device(4096);
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&e, CU_EVENT_DEFAULT));
	OK(cuEventQuery(e));		/* never recorded */
	OK(cuMemsetD32Async(b, 0, N, S));
	OK(spin(S, a, 3000000));
	OK(set(S, a, 6));
	OK(cuEventRecord(e, S));
	EQ(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	OK(cuStreamWaitEvent(other, e, 0));
	OK(acc(other, b, a));
	OK(cuStreamSynchronize(other));
	OK(cuEventQuery(e));
	EQ(first(b), 6);
	OK(cuEventElapsedTime(&ms, e, e));
	EQ(ms, 0);
}

static void the_legacy_stream_waits_for_blocking_streams(void)
{
	CUdeviceptr a;
	CUstream blocking;

	test_start();
	a = device(4096);
	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuMemsetD32Async(a, 3, N, blocking));
	OK(acc(NULL, a, a));
	OK(acc(blocking, a, a));
	OK(cuStreamSynchronize(blocking));
	EQ(first(a), 12);
}

static int order[3];
static int at;
static void note(void *what)
{
	CUdeviceptr p;

	order[at++] = *(int *)what;
	if (cuMemAlloc(&p, 4096) != CUDA_ERROR_NOT_PERMITTED)
		order[0] = -1;
}

static void host_functions_run_in_order(void)
{
	int one = 1, two = 2;

	test_start();
	OK(cuLaunchHostFunc(S, note, &one));
	EQ(at, 0);
	OK(cuLaunchHostFunc(S, note, &two));
	OK(cuStreamSynchronize(S));
	EQ(order[0], 1);
	EQ(order[1], 2);
}

/* ---- capture ---- */

static void every_launch_becomes_a_node(void)
{
	static const CUgraphNodeType want[] = {
		CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET,
		CU_GRAPH_NODE_TYPE_HOST, CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE,
		CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
	};
	CUdeviceptr a, b, p;
	CUgraphNode nodes[16];
	CUgraphNodeType type;
	size_t n = 16;
	int one = 1;
	CUgraph g;

	test_start();
	a = device(4096);
	b = device(4096);
	CAPTURE(g, OK(set(S, a, 1)); OK(cuMemcpyDtoDAsync(b, a, 4096, S));
		OK(cuMemsetD8Async(a, 0, 16, S)); OK(cuLaunchHostFunc(S, note, &one));
		OK(cuMemAllocAsync(&p, 4096, S)); OK(cuMemFreeAsync(p, S));
		OK(cuStreamWriteValue32(S, a, 1, 0)));
	OK(cuGraphGetNodes(g, nodes, &n));
	EQ(n, sizeof(want) / sizeof(*want));
	for (size_t i = 0; i < n; i++) {
		OK(cuGraphNodeGetType(nodes[i], &type));
		EQ(type, want[i]);
	}
	n = 16;
	OK(cuGraphGetEdges(g, NULL, NULL, NULL, &n));
	EQ(n, 6);			/* a chain */
	OK(replay(instantiate(g)));
	EQ(at, 1);
}

/* Refused, as on a real 13.0; only a driver to come makes a child node. */
static void a_graph_launch_in_a_capture(void)
{
	CUgraphNodeType type;
	CUgraphNode nodes[2];
	CUdeviceptr a, b;
	CUgraph g, inner;
	CUgraphExec e;
	size_t n = 2;
	int version;

	test_start();
	a = device(4096);
	b = device(4096);
	OK(set(S, a, 1));
	OK(set(S, b, 2));
	CAPTURE(inner, OK(acc(S, a, b)));
	e = instantiate(inner);
	OK(cuDriverGetVersion(&version));
	if (version < 14000) {
		OK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED));
		EQ(cuGraphLaunch(e, S), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		EQ(cuGraphLaunch(e, S), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		EQ(cuStreamEndCapture(S, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		EQ((uintptr_t)g, 0);
		OK(replay(e));
		EQ(first(a), 3);
		return;
	}
	CAPTURE(g, OK(set(S, a, 10)); OK(cuGraphLaunch(e, S)));
	OK(cuGraphGetNodes(g, nodes, &n));
	EQ(n, 2);
	OK(cuGraphNodeGetType(nodes[1], &type));
	EQ(type, CU_GRAPH_NODE_TYPE_GRAPH);
	OK(replay(instantiate(g)));
	EQ(first(a), 12);
}

static void capture_information(void)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *deps;
	CUgraph seen, g;
	cuuint64_t id, id2;
	CUdeviceptr a;
	size_t n;

	test_start();
	a = device(4096);
	OK(cuStreamIsCapturing(S, &status));
	EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED));
	EQ(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
	OK(cuStreamGetCaptureInfo(S, &status, &id, &seen, &deps, NULL, &n));
	EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	EQ(n, 0);
	OK(set(S, a, 1));
	OK(set(S, a, 2));
	OK(cuStreamGetCaptureInfo(S, &status, &id2, &seen, &deps, NULL, &n));
	EQ(id, id2);
	EQ(n, 1);			/* the last node */
	OK(cuStreamEndCapture(S, &g));
	EQ((uintptr_t)g, (uintptr_t)seen);
	EQ(cuStreamEndCapture(S, &g), CUDA_ERROR_ILLEGAL_STATE);
}

static void a_query_invalidates_the_capture(void)
{
	CUgraph g = (CUgraph)1;
	CUstreamCaptureStatus status;
	CUdeviceptr a;

	test_start();
	a = device(4096);
	OK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED));
	EQ(cuStreamQuery(S), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamIsCapturing(S, &status));
	EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	EQ(set(S, a, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	EQ(cuStreamEndCapture(S, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	EQ((uintptr_t)g, 0);
	OK(cuStreamSynchronize(S));
}

static void *unsafe_call(void *rc)
{
	CUdeviceptr p;
	CUcontext ctx;

	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	*(CUresult *)rc = cuMemAlloc(&p, 4096);
	return NULL;
}

static CUresult from_another_thread(void)
{
	CUresult rc = CUDA_ERROR_UNKNOWN;
	pthread_t t;

	pthread_create(&t, NULL, unsafe_call, &rc);
	pthread_join(t, NULL);
	return rc;
}

/* cuThreadExchangeStreamCaptureMode() in cuda.h has the table. */
static void unsafe_calls_by_mode(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr p;
	CUgraph g;

	test_start();
	OK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_GLOBAL));
	EQ(from_another_thread(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	EQ(cuStreamEndCapture(S, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	OK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(from_another_thread());
	EQ(cuMemAlloc(&p, 4096), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	EQ(cuStreamEndCapture(S, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	OK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAlloc(&p, 4096));
	OK(cuMemFree(p));
	OK(cuStreamEndCapture(S, &g));

	OK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuMemAlloc(&p, 4096));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(cuStreamEndCapture(S, &g));
}

static void the_legacy_stream_and_captures(void)
{
	CUstream blocking;
	CUdeviceptr a;
	CUgraph g;

	test_start();
	a = device(4096);
	EQ(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
	   CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	EQ(set(NULL, a, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	EQ(cuStreamEndCapture(blocking, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(set(NULL, a, 1));		/* S is non-blocking */
	OK(cuStreamEndCapture(S, &g));
}

static CUstream side;
static CUevent forked, joined;

/* S and side: a on S, b on side behind it. */
static void fork_streams(CUdeviceptr a, CUdeviceptr b)
{
	if (!side) {
		OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
		OK(cuEventCreate(&forked, 0));
		OK(cuEventCreate(&joined, 0));
	}
	OK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(set(S, a, 1));
	OK(cuEventRecord(forked, S));
	OK(cuStreamWaitEvent(side, forked, 0));
	OK(set(side, b, 2));
}

static void fork_and_join(void)
{
	CUdeviceptr a, b;
	CUgraphExec e;
	CUgraph g;
	size_t n = 0;

	test_start();
	a = device(4096);
	b = device(4096);
	fork_streams(a, b);
	OK(cuEventRecord(joined, side));
	OK(cuStreamWaitEvent(S, joined, 0));
	OK(acc(S, a, b));
	OK(cuStreamEndCapture(S, &g));
	OK(cuGraphGetEdges(g, NULL, NULL, NULL, &n));
	EQ(n, 3);
	e = instantiate(g);
	OK(replay(e));
	EQ(first(a), 3);
}

static void fork_without_join(void)
{
	CUdeviceptr a, b;
	CUgraph g;

	test_start();
	a = device(4096);
	b = device(4096);
	fork_streams(a, b);
	EQ(cuStreamEndCapture(S, &g), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	fork_streams(a, b);
	EQ(cuEventQuery(forked), CUDA_ERROR_CAPTURED_EVENT);
	EQ(cuStreamEndCapture(side, &g), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	EQ(cuStreamEndCapture(S, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuStreamSynchronize(side));
}

/* Two captures that meet; a wait for what was recorded before the capture. */
static void isolation(void)
{
	CUevent before;
	CUgraph g;

	test_start();
	OK(cuEventCreate(&before, 0));
	OK(cuEventRecord(before, S));
	OK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED));
	EQ(cuStreamWaitEvent(S, before, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	EQ(cuStreamEndCapture(S, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamBeginCapture(side, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(before, S));
	EQ(cuStreamWaitEvent(side, before, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
	EQ(cuStreamEndCapture(side, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void capture_to_a_graph(void)
{
	CUdeviceptr a;
	CUgraphNode node;
	CUgraph g, end;
	size_t n;

	test_start();
	a = device(4096);
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddEmptyNode(&node, g, NULL, 0));
	OK(cuStreamBeginCaptureToGraph(S, g, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(set(S, a, 1));
	OK(cuStreamEndCapture(S, &end));
	EQ((uintptr_t)end, (uintptr_t)g);
	OK(cuGraphGetNodes(g, NULL, &n));
	EQ(n, 2);
	OK(cuGraphGetEdges(g, NULL, NULL, NULL, &n));
	EQ(n, 1);
}

static void *many_launches(void *p)
{
	CUstream s;
	CUcontext ctx;

	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 200; i++) {
		CUdeviceptr q = device(4096);

		OK(set(s, q, i));
		OK(cuStreamSynchronize(s));
		EQ(first(q), i);
		OK(cuMemFree(q));
	}
	OK(cuStreamDestroy(s));
	return p;
}

static void threads(void)
{
	pthread_t t[4];

	test_start();
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, many_launches, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

const struct test tests_capture[] = {
	{ "work is lazy and in order", work_is_lazy_and_in_order, NULL },
	{ "events order streams", events_order_streams, NULL },
	{ "the legacy stream waits for blocking streams",
	  the_legacy_stream_waits_for_blocking_streams, NULL },
	{ "host functions run in order", host_functions_run_in_order, NULL },
	{ "every launch becomes a node", every_launch_becomes_a_node, NULL },
	{ "a graph launch in a capture", a_graph_launch_in_a_capture, NULL },
	{ "capture information", capture_information, NULL },
	{ "a query invalidates the capture", a_query_invalidates_the_capture, NULL },
	{ "unsafe calls by mode", unsafe_calls_by_mode, NULL },
	{ "the legacy stream and captures", the_legacy_stream_and_captures, NULL },
	{ "fork and join", fork_and_join, NULL },
	{ "fork without join", fork_without_join, NULL },
	{ "isolation", isolation, NULL },
	{ "capture to a graph", capture_to_a_graph, NULL },
	{ "threads", threads, NULL },
	{ NULL, NULL, NULL },
};
