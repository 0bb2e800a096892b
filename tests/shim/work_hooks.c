/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every wrapper of copies and synchronisation, one by one, on the scripted driver: what is written
 * has content, what is captured is remembered, what was waited for is not in flight. Run with the
 * shim preloaded.
 */
#include "tests/shim/scene.h"

/* ---- content ---- */

/* Memory that was mapped again, with an exec that refers to it. */
struct remapped {
	uint64_t base;
	CUgraphExec exec;
};

static struct remapped remap(uint64_t handle)
{
	struct remapped r;
	CUdeviceptr p;

	script.address = fresh_address();
	cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0);
	r.base = p;
	cuMemMap(r.base, 4 * MIB, 0, handle, 0);
	r.exec = exec_of(r.base + 64);
	cuMemUnmap(r.base, 4 * MIB);
	cuMemMap(r.base, 4 * MIB, 0, handle, 0);
	drain();
	return r;
}

static void remap_end(const struct remapped *r)
{
	cuGraphExecDestroy(r->exec);
	cuMemUnmap(r->base, 4 * MIB);
	cuMemAddressFree(r->base, 4 * MIB);
	drain();
}

static CUresult rebind(unsigned way, CUmemGenericAllocationHandle object)
{
	switch (way) {
	case 0:
		return cuMulticastBindMem(object, 0, 1, 0, MIB, 0);
	case 1:
		return cuMulticastBindAddr(object, 0, 1, MIB, 0);
	default:
		return cuMulticastUnbind(object, 0, 0, MIB);
	}
}

/* Is content that was written undefined after a rebinding of @object that the driver answered
 * with @rc? */
static bool undefined_by(unsigned way, CUmemGenericAllocationHandle object, CUresult rc)
{
	struct remapped r = remap(0x77);
	bool is;

	CHECK(cuMemsetD8_v2(r.base, 0, 1) == CUDA_SUCCESS, "write");
	launch(r.exec);
	CHECK(!found("content-undefined", "content-undefined"), "written");
	script.rc = rc;
	errno = EXDEV;
	CHECK(rebind(way, object) == rc && errno == EXDEV, "way %u", way);
	script.rc = CUDA_SUCCESS;
	launch(r.exec);
	is = found("content-undefined", "content-undefined");
	remap_end(&r);
	return is;
}

/* Binding and unbinding changes what is behind the mappings of that object, and of no other. */
static void multicast(void)
{
	for (unsigned way = 0; way < 3; way++) {
		CHECK(undefined_by(way, 0x77, CUDA_SUCCESS), "way %u", way);
		CHECK(!undefined_by(way, 0x78, CUDA_SUCCESS), "way %u, another object", way);
		CHECK(!undefined_by(way, 0x77, REFUSED), "way %u, refused", way);
	}
}

/* ---- copies ---- */

static bool is_base_of(const struct entry *e, const char *base)
{
	return strncmp(e->symbol, base, strlen(base)) == 0;
}

/* Do the addresses of this row have 32 bits? Only what has a _v2 had them. */
static bool is_old(const struct entry *e)
{
	return strstr(e->symbol, "_v2") == NULL;
}

/* Call a row of the COPY family so that it writes to @dst on STREAM. The arguments that matter
 * are the first one and the last; between them the stream will do for anything. */
static CUresult copy_to(const struct entry *e, uint64_t dst)
{
	uint64_t s = (uint64_t)STREAM;
	CUDA_MEMCPY2D_v1 c2v1 = { .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				  .dstDevice = (CUdeviceptr_v1)dst };
	CUDA_MEMCPY2D c2 = { .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = dst };
	CUDA_MEMCPY3D_v1 c3v1 = { .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				  .dstDevice = (CUdeviceptr_v1)dst };
	CUDA_MEMCPY3D c3 = { .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = dst };
	CUDA_MEMCPY3D_PEER c3p = { .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = dst };
	CUDA_MEMCPY3D_BATCH_OP op = {
		.dst = { .type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = dst },
	};
	CUstreamBatchMemOpParams word = {
		.writeValue = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = dst },
	};
	CUdeviceptr dsts[1] = { dst };

	if (is_base_of(e, "cuStreamBatchMemOp"))
		return e->call(s, 1, &word, 0);
	if (is_base_of(e, "cuStream"))
		return e->call(s, dst, 1, 0);
	if (is_base_of(e, "cuMemcpy3DBatch"))
		return e->call(1, &op, s, s, s);
	if (is_base_of(e, "cuMemcpyBatch"))
		return e->call((uint64_t)dsts, dsts, dsts, 1, s, s, s, s, s);
	if (is_base_of(e, "cuMemcpy3DPeer"))
		return e->call((uint64_t)&c3p, s);
	if (is_base_of(e, "cuMemcpy3D"))
		return e->call(is_old(e) ? (uint64_t)&c3v1 : (uint64_t)&c3, s);
	if (is_base_of(e, "cuMemcpy2D"))
		return e->call(is_old(e) ? (uint64_t)&c2v1 : (uint64_t)&c2, s);
	return e->call(dst, s, s, s, s, s, s, s, s);
}

/* What any copy or fill writes has content again. */
static void copies_write(void)
{
	struct remapped r = remap(0x79);

	launch(r.exec);
	CHECK(found("content-undefined", "content-undefined"), "nobody wrote");
	remap_end(&r);
	for (size_t i = 0; i < ENTRIES; i++) {
		const struct entry *e = &entries[i];

		if (e->family != FAMILY_COPY || is_base_of(e, "cuMemcpyDtoH") ||
		    is_base_of(e, "cuStreamWait"))
			continue;
		r = remap(0x79);
		script.rc = REFUSED;
		CHECK(copy_to(e, r.base + 128) == REFUSED, "%s", e->symbol);
		script.rc = CUDA_SUCCESS;
		launch(r.exec);
		CHECK(found("content-undefined", "content-undefined"), "%s refused", e->symbol);
		remap_end(&r);
		r = remap(0x79);
		errno = EXDEV;
		CHECK(copy_to(e, r.base + 128) == CUDA_SUCCESS && errno == EXDEV, "%s", e->symbol);
		launch(r.exec);
		CHECK(!found("content-undefined", "content-undefined"), "%s", e->symbol);
		remap_end(&r);
	}
}

/* The destination of a pitched copy is where its offsets lead. */
static void pitched_destinations(void)
{
	struct remapped r = remap(0x79);
	CUDA_MEMCPY2D c2 = { .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			     .dstDevice = r.base - MIB,
			     .dstPitch = 4096,
			     .dstY = 256,
			     .dstXInBytes = 64 };
	CUDA_MEMCPY3D c3 = { .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			     .dstDevice = r.base - 2 * MIB,
			     .dstPitch = 4096,
			     .dstHeight = 256,
			     .dstZ = 2 };

	CHECK(cuMemcpy2D_v2(&c2) == CUDA_SUCCESS, "2D");
	launch(r.exec);
	CHECK(!found("content-undefined", "content-undefined"), "2D");
	remap_end(&r);
	r = remap(0x79);
	c3.dstDevice = r.base - 2 * MIB;
	CHECK(cuMemcpy3D_v2(&c3) == CUDA_SUCCESS, "3D");
	launch(r.exec);
	CHECK(!found("content-undefined", "content-undefined"), "3D");
	remap_end(&r);
	r = remap(0x79);
	c3.dstMemoryType = CU_MEMORYTYPE_HOST;
	CHECK(cuMemcpy3D_v2(&c3) == CUDA_SUCCESS, "to the host");
	launch(r.exec);
	CHECK(found("content-undefined", "content-undefined"), "the host's copy writes no memory");
	remap_end(&r);
}

/* ---- captures ---- */

static void capture_begin(void)
{
	static uint64_t last;

	script.capture_id = ++last;
	CHECK(cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS,
	      "begin");
}

static void capture_end(void)
{
	CUgraph graph;

	CHECK(cuStreamEndCapture(STREAM, &graph) == CUDA_SUCCESS, "end");
	script.capture_id = 0;
}

static bool is_async(const struct entry *e)
{
	return strstr(e->symbol, "Async") != NULL || is_base_of(e, "cuStream");
}

/* A captured copy of memory that is gone before the graph is instantiated. */
static void captured_copies(void)
{
	CUgraphExec exec;
	CUdeviceptr p;

	for (size_t i = 0; i < ENTRIES; i++) {
		const struct entry *e = &entries[i];

		if (e->family != FAMILY_COPY || !is_async(e))
			continue;
		script.address = fresh_address();
		cuMemAlloc_v2(&p, MIB);
		script.node_type = CU_GRAPH_NODE_TYPE_MEMCPY;
		script.words[0] = p;
		script.words[1] = p;
		capture_begin();
		CHECK(copy_to(e, p) == CUDA_SUCCESS, "%s", e->symbol);
		capture_end();
		cuMemFree_v2(p);
		script.address = 0x600000000000 + i * 256;
		cuGraphInstantiateWithFlags(&exec, SCRIPT_GRAPH, 0);
		drain();
		launch(exec);
		CHECK(found("stale-launch", "freed"), "%s: its birth was missed", e->symbol);
		cuGraphExecDestroy(exec);
		drain();
	}
}

/* An allocation node; @call frees or allocates on the stream that captures. */
#define ALLOC_NODE(call)                                         \
	do {                                                     \
		script.address = fresh_address();                \
		CHECK((call) == CUDA_SUCCESS, #call);            \
		happened("alloc", "graph", script.address, 100); \
		silent();                                        \
	} while (0)

static void captured_pool(void)
{
	CUmemoryPool pool = (CUmemoryPool)0x7000;
	CUdeviceptr p;

	script.node_type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	capture_begin();
	drain();
	ALLOC_NODE(cuMemAllocAsync(&p, 100, STREAM));
	ALLOC_NODE(cuMemAllocAsync_ptsz(&p, 100, NULL));
	ALLOC_NODE(cuMemAllocFromPoolAsync(&p, 100, pool, STREAM));
	ALLOC_NODE(cuMemAllocFromPoolAsync_ptsz(&p, 100, pool, NULL));
	CHECK(cuMemFreeAsync(p, STREAM) == CUDA_SUCCESS, "free node");
	CHECK(cuMemFreeAsync_ptsz(p, NULL) == CUDA_SUCCESS, "free node");
	silent();
	/* The legacy stream captures never. */
	script.address = fresh_address();
	CHECK(cuMemAllocAsync(&p, 200, NULL) == CUDA_SUCCESS, "no node");
	happened("alloc", "pool", script.address, 200);
	CHECK(cuMemFreeAsync(p, NULL) == CUDA_SUCCESS, "no node");
	happened("free", "pool", script.address, 200);
	capture_end();
	drain();
}

/* What a node allocated may be freed by a call, where nothing captures. */
static void freed_node_memory(void)
{
	CUdeviceptr p;

	capture_begin();
	drain();
	ALLOC_NODE(cuMemAllocAsync(&p, 100, STREAM));
	capture_end();
	drain();
	CHECK(cuMemFreeAsync(p, STREAM) == CUDA_SUCCESS, "free");
	happened("free", "graph", p, 100);
	silent();
}

/* ---- synchronisation ---- */

/* By the time of the unmapping, unasked. */
static bool event_finished;

static void event_finishes(void)
{
	event_finished = true;
}

/* Is a launch - on STREAM, or the thread's default stream - that the driver calls unfinished
 * still in flight when its memory is unmapped? */
static bool in_flight(void (*synchronise)(void), bool per_thread)
{
	CUgraphExec exec;
	CUdeviceptr p;
	bool is;

	script.address = fresh_address();
	cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0);
	cuMemMap(p, 4 * MIB, 0, 1, 0);
	exec = exec_of(p);
	if (per_thread)
		CHECK(cuGraphLaunch_ptsz(exec, NULL) == CUDA_SUCCESS, "launch");
	else
		launch(exec);
	event_finished = false;
	synchronise();
	drain();
	script.stream_query = CUDA_ERROR_NOT_READY;
	script.event_query = event_finished ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
	cuMemUnmap(p, 4 * MIB);
	script.stream_query = script.event_query = CUDA_SUCCESS;
	is = found("stale-launch", "in-flight");
	cuGraphExecDestroy(exec);
	cuMemAddressFree(p, 4 * MIB);
	drain();
	return is;
}

static void refuse(void)
{
	script.rc = CUDA_ERROR_NOT_READY;
}

static void accept(void)
{
	script.rc = CUDA_SUCCESS;
}

#define EVENT  ((CUevent)0x7500)
#define OTHER  ((CUevent)0x7600)
#define SECOND ((CUstream)0x5100)
/* clang-format off */
#define WAYS(X)                                                                               \
	X(cuStreamSynchronize(STREAM))                                                        \
	X(cuStreamSynchronize_ptsz(STREAM))                                                   \
	X(cuStreamQuery(STREAM))                                                              \
	X(cuStreamQuery_ptsz(STREAM))                                                         \
	X(cuCtxSynchronize())                                                                 \
	X(cuCtxSynchronize_v2((CUcontext)script.context))                                     \
	X(cuEventRecord(EVENT, STREAM), cuEventSynchronize(EVENT))                            \
	X(cuEventRecord_ptsz(EVENT, STREAM), cuEventQuery(EVENT))                             \
	X(cuEventRecordWithFlags(EVENT, STREAM, 0), cuEventQuery(EVENT))                      \
	X(cuEventRecordWithFlags_ptsz(EVENT, STREAM, 0), cuEventSynchronize(EVENT))           \
	X(cuEventRecord(EVENT, STREAM), cuStreamWaitEvent(SECOND, EVENT, 0),                  \
	  cuStreamSynchronize(SECOND))                                                        \
	X(cuEventRecord(EVENT, STREAM), cuStreamWaitEvent_ptsz(NULL, EVENT, 0),               \
	  cuStreamQuery_ptsz(NULL))                                                           \
	X(cuEventRecord(EVENT, STREAM), cuStreamWaitEvent(SECOND, EVENT, 0),                  \
	  cuEventRecord(OTHER, SECOND), cuEventQuery(OTHER))                                  \
	X(cuEventRecord(EVENT, STREAM), event_finishes())                                     \
	X(cuStreamDestroy(STREAM))                                                            \
	X(cuStreamDestroy_v2(STREAM))
#define NO_WAYS(X)                                                                            \
	X((void)0)                                                                            \
	X(cuStreamSynchronize(SECOND))                                                        \
	X(cuEventRecord(EVENT, SECOND), cuEventQuery(EVENT))                                  \
	X(cuEventRecord(EVENT, SECOND), event_finishes())                                     \
	X(cuEventRecord(EVENT, STREAM), cuStreamWaitEvent(SECOND, EVENT, 0))                  \
	X(cuEventRecord(EVENT, STREAM), cuStreamSynchronize(SECOND))                          \
	X(cuEventRecord(EVENT, STREAM), refuse(), cuStreamWaitEvent(SECOND, EVENT, 0),        \
	  accept(), cuStreamSynchronize(SECOND))                                              \
	X(cuEventRecord(EVENT, STREAM), refuse(), cuStreamWaitEvent_ptsz(NULL, EVENT, 0),     \
	  accept(), cuStreamSynchronize_ptsz(NULL))                                           \
	X(cuEventRecord(EVENT, STREAM), cuEventDestroy(EVENT), cuEventSynchronize(EVENT))     \
	X(cuEventRecord(EVENT, STREAM), cuEventDestroy_v2(EVENT), cuEventQuery(EVENT))        \
	X(refuse(), cuStreamQuery(STREAM), accept())                                          \
	X(refuse(), cuStreamSynchronize(STREAM), accept())                                    \
	X(refuse(), cuCtxSynchronize(), accept())                                             \
	X(refuse(), cuCtxSynchronize_v2((CUcontext)script.context), accept())                 \
	X(refuse(), cuEventRecord(EVENT, STREAM), accept(), cuEventQuery(EVENT))              \
	X(refuse(), cuEventRecord_ptsz(EVENT, STREAM), accept(), cuEventQuery(EVENT))         \
	X(refuse(), cuEventRecordWithFlags(EVENT, STREAM, 0), accept(), cuEventQuery(EVENT))  \
	X(refuse(), cuEventRecordWithFlags_ptsz(EVENT, STREAM, 0), accept(),                  \
	  cuEventQuery(EVENT))                                                                \
	X(cuEventRecord(EVENT, STREAM), refuse(), cuEventQuery(EVENT), accept())              \
	X(cuEventRecord(EVENT, STREAM), refuse(), cuEventSynchronize(EVENT), accept())
/* clang-format on */

static unsigned way_number;
#define CASE(...)            \
	if (n-- == 0) {      \
		__VA_ARGS__; \
		return;      \
	}
#define TEXT(...) #__VA_ARGS__,

static void run_way(void)
{
	unsigned n = way_number;

	WAYS(CASE)
}

static void run_no_way(void)
{
	unsigned n = way_number;

	NO_WAYS(CASE)
}

static void wait_per_thread(void)
{
	cuStreamSynchronize_ptsz(NULL);
}

static void query_per_thread(void)
{
	cuStreamQuery_ptsz(NULL);
}

static void wait_legacy(void)
{
	cuStreamSynchronize(NULL);
	cuStreamQuery(NULL);
}

/* A recording that is captured proves nothing. */
static void capture_events(void)
{
	capture_begin();
	cuEventRecord(EVENT, STREAM);
	cuEventRecord_ptsz(EVENT, NULL);
	cuEventRecordWithFlags(EVENT, STREAM, 0);
	cuEventRecordWithFlags_ptsz(EVENT, NULL, 0);
	capture_end();
	cuEventSynchronize(EVENT);
	cuEventQuery(EVENT);
}

static void synchronisation(void)
{
	static const char *const ways[] = { WAYS(TEXT) }, *const no_ways[] = { NO_WAYS(TEXT) };

	for (way_number = 0; way_number < sizeof(no_ways) / sizeof(no_ways[0]); way_number++)
		CHECK(in_flight(run_no_way, false), "proves nothing: %s", no_ways[way_number]);
	CHECK(in_flight(wait_legacy, true), "another stream");
	CHECK(in_flight(wait_per_thread, false), "another stream");
	CHECK(in_flight(capture_events, false), "captured");
	for (way_number = 0; way_number < sizeof(ways) / sizeof(ways[0]); way_number++)
		CHECK(!in_flight(run_way, false), "proof: %s", ways[way_number]);
	CHECK(!in_flight(wait_per_thread, true), "the thread's stream");
	CHECK(!in_flight(query_per_thread, true), "the thread's stream");
}

static void do_nothing(void)
{
}

/* While anything captures, the legacy stream is not asked, nor a stream that captures. */
static void unaskable_streams(void)
{
	unsigned before;

	capture_begin();
	before = script_calls[HOOK_cuStreamQuery];
	CHECK(!in_flight(do_nothing, false), "unknown counts as done");
	CHECK(script_calls[HOOK_cuStreamQuery] == before, "asked during capture");
	capture_end();
	CHECK(in_flight(do_nothing, false), "asked");
	CHECK(script_calls[HOOK_cuStreamQuery] == before + 1, "asked once");
}

int main(void)
{
	trace_start();
	multicast();
	copies_write();
	pitched_destinations();
	captured_copies();
	captured_pool();
	freed_node_memory();
	synchronisation();
	unaskable_streams();
	return check_result();
}
