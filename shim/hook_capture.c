/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capture: which streams capture, and the births of the nodes that captured calls make.
 *
 * A launch is read right after the driver captured it, from the node that it became: its
 * parameters mean now what they will never mean again if memory is freed before instantiate.
 * What no wrapper saw is read when the capture ends.
 *
 * The table of origin streams exists to keep captures_active right: it counts begins that were
 * not ended, however a capture ends. When it is full, a capture is simply not counted; the others
 * keep launches off the short path meanwhile.
 *
 * Any thread. One spin lock for the table, never held across a call of the driver.
 */
#include <errno.h>
#include <pthread.h>

#include "arena/block.h"
#include "arena/born.h"
#include "arena/event.h"
#include "shim/cupti.h"
#include "shim/hook_capture.h"
#include "shim/nested.h"
#include "shim/record.h"
#include "shim/walk.h"

#define CAPTURES_MAX 256
/* A captured call adds one node, a batch of copies a few. */
#define NODES_MAX 16

struct capture {
	uint64_t stream; /* 0: free */
	uint64_t thread; /* of a per-thread default stream; each thread has its own */
	uint64_t graph;
	uint64_t serial; /* of the capture, never used twice */
	int ordinal;	 /* of its device, -1: not known */
	bool owned;	 /* the graph goes away with a failed capture */
};

/* What a stream captures at this moment. */
struct capturing {
	cuuint64_t id; /* never used twice in a process */
	CUgraph graph;
	CUgraphNode nodes[NODES_MAX]; /* that its next node will depend on */
	size_t count;
};

/* The first of the quick words: the others follow in its line. */
QUICK_WORD __attribute__((aligned(64))) _Atomic uint32_t captures_active;
static struct spinlock lock = SPINLOCK_INIT;
static struct capture captures[CAPTURES_MAX]; /* guarded by lock */
static uint64_t serial_last;		      /* guarded by lock */

/* The newest node whose birth this thread recorded. A call that added none is not mistaken for an
 * older one: what was born stays as it was born; this only spares the question. */
static _Thread_local struct {
	cuuint64_t id;
	CUgraphNode node;
} noted __attribute__((tls_model("initial-exec")));

/* The newest capture that this thread began. */
static _Thread_local struct {
	const struct capture *at;
	uint64_t serial;
} mine __attribute__((tls_model("initial-exec")));

/* ---- asking ---- */

static bool ask(uint64_t stream, struct capturing *out)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const CUgraphEdgeData *edges;
	const CUgraphNode *nodes = NULL;
	CUstream s = (CUstream)stream;
	int saved_errno = errno;
	CUresult rc;

	if (s == CU_STREAM_LEGACY) /* cannot capture */
		return false;
	shim_inside++;
	rc = REAL(cuStreamGetCaptureInfo_v3)(s, &status, &out->id, &out->graph, &nodes, &edges,
					     &out->count);
	if (rc == CUDA_ERROR_NOT_FOUND) /* a driver before 12.3 */
		rc = REAL(cuStreamGetCaptureInfo_v2)(s, &status, &out->id, &out->graph, &nodes,
						     &out->count);
	shim_inside--;
	errno = saved_errno;
	if (rc != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return false;
	if (out->count > NODES_MAX)
		out->count = NODES_MAX;
	/* The array is the driver's, until the next call on the stream. */
	for (size_t i = 0; i < out->count; i++)
		out->nodes[i] = nodes[i];
	return true;
}

bool capture_active_on(uint64_t stream)
{
	struct capturing now;

	return ask(stream, &now);
}

bool capture_note_launch(uint64_t stream, CUgraphExec exec)
{
	struct capturing now;

	if (!ask(stream, &now))
		return false;
	for (size_t i = 0; i < now.count && !cupti_is_alone(); i++) {
		CUgraphNode node = now.nodes[i];

		if (noted.id == now.id && noted.node == node)
			continue;
		/* What a launch became means more than CUPTI can tell of it. */
		if (!exec && birth_known((uint64_t)now.graph, (uint64_t)node))
			continue;
		if (exec)
			walk_launch_births(now.graph, node, exec);
		else
			walk_birth(now.graph, node);
		noted.id = now.id;
		noted.node = node;
	}
	return true;
}

bool capture_note(uint64_t stream)
{
	return capture_note_launch(stream, NULL);
}

void capture_note_alloc(uint64_t stream, uint64_t base, uint64_t size_bytes)
{
	struct capturing now;

	if (ask(stream, &now))
		record_open_once(RANGE_GRAPH, base, size_bytes, (uint64_t)now.graph);
}

/* ---- the table ---- */

static uint64_t thread_of(uint64_t stream)
{
	return (CUstream)stream == CU_STREAM_PER_THREAD ? (uint64_t)pthread_self() : 0;
}

/* Lock held. @param stream 0: a free entry. */
static struct capture *find(uint64_t stream, uint64_t thread)
{
	for (int i = 0; i < CAPTURES_MAX; i++)
		if (captures[i].stream == stream && captures[i].thread == thread)
			return &captures[i];
	return NULL;
}

static void enter(const struct capture *new)
{
	struct capture *c;

	spin_lock(&lock);
	c = find(new->stream, new->thread); /* left there: its stream was destroyed */
	if (c == NULL) {
		c = find(0, 0);
		if (c && add_relaxed(&captures_active, 1) == 0)
			block_window(true);
	}
	if (c) {
		*c = *new;
		c->serial = ++serial_last;
		mine.at = c;
		mine.serial = c->serial;
	}
	spin_unlock(&lock);
}

bool capture_here_slow(int ordinal)
{
	bool here;

	spin_lock(&lock);
	here = mine.at != NULL && mine.at->serial == mine.serial &&
	       (ordinal < 0 || mine.at->ordinal < 0 || mine.at->ordinal == ordinal);
	spin_unlock(&lock);
	return here;
}

/* Where a capture on @stream will be; asked before it begins. -1: not the current context. */
static int ordinal_of(uint64_t stream)
{
	CUcontext there = NULL, here = NULL;
	CUdevice ordinal = -1;
	bool known;

	shim_inside++;
	known = REAL(cuStreamGetCtx)((CUstream)stream, &there) == CUDA_SUCCESS &&
		REAL(cuCtxGetCurrent)(&here) == CUDA_SUCCESS && there == here &&
		REAL(cuCtxGetDevice)(&ordinal) == CUDA_SUCCESS;
	shim_inside--;
	return known ? ordinal : -1;
}

/* @return the entry as it was; stream 0 when there was none. */
static struct capture leave(uint64_t stream)
{
	struct capture old = { 0 };
	struct capture *c;

	spin_lock(&lock);
	c = find(stream, thread_of(stream));
	if (c) {
		old = *c;
		*c = (struct capture){ 0 };
		if (add_relaxed(&captures_active, -1u) == 1)
			block_window(false);
	}
	spin_unlock(&lock);
	return old;
}

/* ---- begin and end ---- */

static void begun(uint64_t stream, int ordinal, bool into_graph)
{
	struct capture c = {
		.stream = stream,
		.thread = thread_of(stream),
		.ordinal = ordinal,
		.owned = !into_graph,
	};
	struct capturing now;

	if (ask(stream, &now)) {
		c.graph = (uint64_t)now.graph;
		/* Births that an earlier graph with this handle left behind are not this one's. */
		if (c.owned)
			nested_forget_graph(c.graph);
	}
	enter(&c);
	born_capture_begins();
}

/* A refusal ends a capture that was invalidated or not joined, and leaves one that this thread
 * or stream may not end. */
static bool still_captures(uint64_t stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult rc;

	shim_inside++;
	rc = REAL(cuStreamIsCapturing)((CUstream)stream, &status);
	shim_inside--;
	return rc == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static void emit_captured(CUgraph graph)
{
	size_t count = 0;

	if (event_sink == NULL)
		return;
	shim_inside++;
	REAL(cuGraphGetNodes)(graph, NULL, &count);
	shim_inside--;
	event_emit(.kind = EVENT_CAPTURE, .size_bytes = count, .what = "");
}

static void ended(uint64_t stream, CUresult rc, const CUgraph *graph)
{
	struct capture old;

	if (rc != CUDA_SUCCESS && still_captures(stream))
		return;
	/* Births belong into the capture window. */
	if (rc == CUDA_SUCCESS && graph && !cupti_is_alone())
		walk_missing_births(*graph);
	old = leave(stream);
	if (rc == CUDA_SUCCESS && graph) {
		emit_captured(*graph);
	} else if (rc != CUDA_SUCCESS && old.owned) {
		nested_forget_graph(old.graph);
	}
}

void capture_stream_gone(uint64_t stream)
{
	if (load_relaxed(&captures_active) != 0)
		leave(stream);
}

#define BEGIN(symbol, stream, into_graph, params, args)                 \
	CUresult symbol params                                          \
	{                                                               \
		bool on = record_on(symbol);                            \
		int ordinal = -1;                                       \
		CUresult rc;                                            \
                                                                        \
		if (on) {                                               \
			cupti_begin();                                  \
			ordinal = ordinal_of(stream);                   \
		}                                                       \
		cupti_expect_graph(true);                               \
		rc = REAL(symbol) args;                                 \
		cupti_expect_graph(false);                              \
		if (on && rc == CUDA_SUCCESS)                           \
			ERRNO_KEPT(begun(stream, ordinal, into_graph)); \
		return rc;                                              \
	}

#define END(symbol, stream)                                     \
	CUresult symbol(CUstream hStream, CUgraph *phGraph)     \
	{                                                       \
		bool on = record_on(symbol);                    \
		CUresult rc = REAL(symbol)(hStream, phGraph);   \
                                                                \
		if (on)                                         \
			ERRNO_KEPT(ended(stream, rc, phGraph)); \
		return rc;                                      \
	}

BEGIN(cuStreamBeginCapture, STREAM_LEGACY(hStream), false, (CUstream hStream), (hStream))
BEGIN(cuStreamBeginCapture_ptsz, STREAM_PER_THREAD(hStream), false, (CUstream hStream), (hStream))
BEGIN(cuStreamBeginCapture_v2, STREAM_LEGACY(hStream), false,
      (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode))
BEGIN(cuStreamBeginCapture_v2_ptsz, STREAM_PER_THREAD(hStream), false,
      (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode))
BEGIN(cuStreamBeginCaptureToGraph, STREAM_LEGACY(hStream), true,
      (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
       const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode),
      (hStream, hGraph, dependencies, dependencyData, numDependencies, mode))
BEGIN(cuStreamBeginCaptureToGraph_ptsz, STREAM_PER_THREAD(hStream), true,
      (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
       const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode),
      (hStream, hGraph, dependencies, dependencyData, numDependencies, mode))
END(cuStreamEndCapture, STREAM_LEGACY(hStream))
END(cuStreamEndCapture_ptsz, STREAM_PER_THREAD(hStream))
