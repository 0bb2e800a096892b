/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From CUPTI's callbacks to the host's events.
 *
 * Only graph callbacks of the resource domain are enabled, each by its id: a domain as a whole
 * would also tell of contexts, streams and modules, for which nobody asked. Data of a callback is
 * good only while it runs, so handles are copied and nothing is kept.
 *
 * Threads: the callback comes on any thread, with the driver's locks held; it takes none and
 * counts itself in and out, so that recorder_stop() can wait for it.
 */
#define __CUDA_API_VERSION_INTERNAL /* the parameters of old functions have old types */
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "arena/atomics.h"
#include "cupti/recorder_lib.h"
#include <generated_cuda_meta.h>

/* How long recorder_stop() waits for a callback that does not return: its thread may be stopped
 * by a debugger, and the host goes on. */
#define STOP_WAIT_MS 1000

/* Callback, what it becomes, needed. Those that came with later versions are not needed. */
#define RESOURCES(X)                                                          \
	X(GRAPH_CREATED, GRAPH_CREATED, true)                                 \
	X(GRAPH_DESTROY_STARTING, GRAPH_DESTROYING, true)                     \
	X(GRAPH_CLONED, GRAPH_CLONED, true)                                   \
	X(GRAPHNODE_CREATED, NODE_CREATED, true)                              \
	X(GRAPHNODE_DESTROY_STARTING, NODE_DESTROYING, true)                  \
	X(GRAPHNODE_DEPENDENCY_CREATED, DEPENDENCY_CREATED, true)             \
	X(GRAPHNODE_DEPENDENCY_DESTROY_STARTING, DEPENDENCY_DESTROYING, true) \
	X(GRAPHEXEC_CREATE_STARTING, EXEC_CREATING, true)                     \
	X(GRAPHEXEC_CREATED, EXEC_CREATED, true)                              \
	X(GRAPHEXEC_DESTROY_STARTING, EXEC_DESTROYING, true)                  \
	X(GRAPHNODE_CLONED, NODE_CLONED, true)                                \
	X(GRAPH_NODE_UPDATED, NODE_UPDATED, false)                            \
	X(GRAPH_NODE_SET_PARAMS, NODE_PARAMS_SET, false)

static const struct resource {
	uint32_t cbid;
	enum recorder_kind kind;
	bool needed;
} resources[] = {
#define X(cbid, kind, needed) { CUPTI_CBID_RESOURCE_##cbid, RECORDER_##kind, needed },
	RESOURCES(X)
#undef X
};

/* Where a call has its stream: at an offset of its parameters, or in what the first one points
 * at. */
#define NO_STREAM UINT16_MAX
static const struct launch_call {
	uint32_t cbid;
	uint16_t stream, config;
} launches[] = {
/* clang-format off */
#define CALL(name, ...) { .cbid = CUPTI_DRIVER_TRACE_CBID_##name, __VA_ARGS__ },
#define N(name) CALL(name, .stream = NO_STREAM)
#define S(name) CALL(name, .stream = offsetof(struct name##_params_st, hStream))
#define SS(name) S(name) S(name##_ptsz)
#define C(name) CALL(name, .stream = offsetof(CUlaunchConfig, hStream), .config = 1)
	N(cuLaunch) N(cuLaunchGrid) S(cuLaunchGridAsync) SS(cuLaunchKernel)
	C(cuLaunchKernelEx) C(cuLaunchKernelEx_ptsz) SS(cuLaunchCooperativeKernel)
	N(cuLaunchCooperativeKernelMultiDevice) SS(cuGraphLaunch)
	N(cuMemcpyHtoD_v2) N(cuMemcpyDtoH_v2) N(cuMemcpyDtoD_v2) N(cuMemcpy2D_v2) N(cuMemcpy3D_v2)
	SS(cuMemcpyAsync) SS(cuMemcpyPeerAsync) SS(cuMemcpyHtoDAsync_v2) SS(cuMemcpyDtoHAsync_v2)
	SS(cuMemcpyDtoDAsync_v2) SS(cuMemcpy2DAsync_v2) SS(cuMemcpy3DAsync_v2)
	SS(cuMemsetD8Async) SS(cuMemsetD16Async) SS(cuMemsetD32Async)
#undef C
#undef SS
#undef S
#undef N
#undef CALL
	/* clang-format on */
};

static _Atomic bool started;
static _Atomic uint32_t under_way;

static void tell(const struct recorder_host *host, const struct recorder_event *e)
{
	if (!host->inside || !host->inside())
		host->event(e);
}

static void resource(const struct recorder_host *host, CUpti_CallbackId cbid,
		     const CUpti_ResourceData *data)
{
	const CUpti_GraphData *g = data ? data->resourceDescriptor : NULL;
	struct recorder_event e = { .cbid = cbid };
	unsigned i = 0;

	while (i < sizeof(resources) / sizeof(resources[0]) && resources[i].cbid != cbid)
		i++;
	if (!g || i == sizeof(resources) / sizeof(resources[0]))
		return;
	e.kind = resources[i].kind;
	e.node_type = (uint32_t)g->nodeType;
	e.graph = (uint64_t)(uintptr_t)g->graph;
	e.original_graph = (uint64_t)(uintptr_t)g->originalGraph;
	e.node = (uint64_t)(uintptr_t)g->node;
	e.original_node = (uint64_t)(uintptr_t)g->originalNode;
	e.dependency = (uint64_t)(uintptr_t)g->dependency;
	e.exec = (uint64_t)(uintptr_t)g->graphExec;
	tell(host, &e);
}

/* @param params as CUPTI lays out the parameters of the call. */
static uint64_t stream_of(CUpti_CallbackId cbid, const void *params)
{
	unsigned i = 0;
	CUstream stream;

	while (i < sizeof(launches) / sizeof(launches[0]) && launches[i].cbid != cbid)
		i++;
	if (!params || i == sizeof(launches) / sizeof(launches[0]) ||
	    launches[i].stream == NO_STREAM)
		return 0;
	if (launches[i].config)
		memcpy(&params, params, sizeof(params));
	if (!params)
		return 0;
	memcpy(&stream, (const char *)params + launches[i].stream, sizeof(stream));
	return (uint64_t)(uintptr_t)stream;
}

static void launch(const struct recorder_host *host, CUpti_CallbackId cbid,
		   const CUpti_CallbackData *data)
{
	struct recorder_event e = { .kind = RECORDER_LAUNCH, .cbid = cbid };

	/* Once a call, when the driver has taken it or not. */
	if (!data || data->callbackSite != CUPTI_API_EXIT)
		return;
	e.launch.call = data->functionName ? data->functionName : "";
	e.launch.kernel = data->symbolName;
	e.launch.stream = stream_of(cbid, data->functionParams);
	e.launch.correlation = data->correlationId;
	if (data->functionReturnValue)
		memcpy(&e.launch.result, data->functionReturnValue, sizeof(e.launch.result));
	tell(host, &e);
}

void CUPTIAPI recorder_callback(void *host, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
				const void *data)
{
	/* Dekker with recorder_stop(): it sees this count, or this sees that it was stopped. */
	add_acq_rel(&under_way, 1);
	fence_seq_cst();
	if (load_relaxed(&started)) {
		if (domain == CUPTI_CB_DOMAIN_RESOURCE)
			resource(host, cbid, data);
		else if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
			launch(host, cbid, data);
	}
	sub_acq_rel(&under_way, 1);
}

CUptiResult recorder_enable(const struct cupti *cupti, CUpti_SubscriberHandle subscriber,
			    unsigned flags)
{
	for (unsigned i = 0; i < sizeof(resources) / sizeof(resources[0]); i++) {
		CUptiResult rc = cupti->cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE,
							    resources[i].cbid);

		if (rc != CUPTI_SUCCESS && resources[i].needed)
			return rc;
	}
	/* An audit takes what this version has. */
	for (unsigned i = 0;
	     flags & RECORDER_LAUNCHES && i < sizeof(launches) / sizeof(launches[0]); i++)
		cupti->cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API,
					   launches[i].cbid);
	return CUPTI_SUCCESS;
}

void recorder_start(void)
{
	static pid_t owner; /* by the one thread that opens */

	/* Callbacks that a forked parent had under way are not ours. */
	if (owner != getpid())
		store_relaxed(&under_way, 0);
	owner = getpid();
	/* Nothing comes before it is subscribed, which orders it. */
	store_relaxed(&started, true);
}

void recorder_mute(void)
{
	store_relaxed(&started, false);
}

void recorder_stop(void)
{
	static const struct timespec millisecond = { .tv_nsec = 1000000 };

	recorder_mute();
	fence_seq_cst();
	for (int i = 0; load_acquire(&under_way) != 0 && i < STOP_WAIT_MS; i++)
		nanosleep(&millisecond, NULL);
}
