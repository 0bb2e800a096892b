/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every wrapper of memory, copies, synchronisation and contexts, one by one, on the scripted
 * driver: what it tells the ledger (read from the trace), that it calls the driver once, and that
 * result and errno are the driver's. Run with the shim preloaded.
 */
#include <errno.h>

#include "tests/shim/check.h"
#include "tests/shim/script_driver.h"
#include "tests/shim/trace.h"

#define STREAM		((CUstream)0x5000)
#define MIB		(1ull << 20)
#define REFUSED		CUDA_ERROR_INVALID_VALUE

typedef CUresult (*any_fn)(uint64_t, ...);

/* ---- what happened ---- */

static void silent_at(int line)
{
	struct trace_line t;

	while (trace_next(&t))
		CHECK(false, "line %d: not expected: %s %s 0x%lx", line, t.what, t.kind,
		      t.address);
}
#define silent() silent_at(__LINE__)

/* The next line of the trace is this event. @return the generation. */
static uint64_t happened_at(int line, const char *what, const char *kind, uint64_t address,
			    uint64_t size_bytes)
{
	struct trace_line t = { .finding = false };
	bool any = trace_next(&t);

	CHECK(any && !t.finding && strcmp(t.what, what) == 0 && strcmp(t.kind, kind) == 0 &&
		      t.address == address && t.size_bytes == size_bytes,
	      "line %d: %s %s 0x%lx+%lu expected, got %s %s 0x%lx+%lu", line, what, kind, address,
	      size_bytes, any ? t.what : "nothing", t.kind, t.address, t.size_bytes);
	return t.serial;
}
#define happened(...) happened_at(__LINE__, __VA_ARGS__)

/* The next two lines are such events, in either order. */
static void happened_both_at(int line, const char *what, const char *kind,
			     const uint64_t addresses[2], uint64_t size_bytes)
{
	struct trace_line t[2] = { { .finding = false }, { .finding = false } };
	bool swapped;

	trace_next(&t[0]);
	trace_next(&t[1]);
	swapped = t[0].address != addresses[0];
	for (int i = 0; i < 2; i++)
		CHECK(strcmp(t[i].what, what) == 0 && strcmp(t[i].kind, kind) == 0 &&
			      t[i].address == addresses[swapped ? !i : i] &&
			      t[i].size_bytes == size_bytes,
		      "line %d: %s %s expected, got %s %s 0x%lx", line, what, kind, t[i].what,
		      t[i].kind, t[i].address);
}
#define happened_both(...) happened_both_at(__LINE__, __VA_ARGS__)

/* Did a finding of this kind and reason come, whatever else did? */
static bool found(const char *what, const char *reason)
{
	struct trace_line t;
	bool any = false;

	while (trace_next(&t))
		any |= t.finding && strcmp(t.what, what) == 0 && strcmp(t.kind, reason) == 0;
	return any;
}

/* ---- set-up ---- */

/* Below 4 GiB, so that the oldest ABIs can hold it; each is used once. */
static uint64_t fresh_address(void)
{
	static uint64_t last = 0x10000000;

	return last += 16 * MIB;
}

/* An exec whose one kernel node points at @address. */
static CUgraphExec exec_of(uint64_t address)
{
	static uint64_t last = 0x500000000000;
	CUgraphExec exec;
	uint64_t before = script.address;

	script.node_type = CU_GRAPH_NODE_TYPE_KERNEL;
	script.words[0] = address;
	script.words[1] = 0;
	script.address = last += 256;
	CHECK(cuGraphInstantiateWithFlags(&exec, SCRIPT_GRAPH, 0) == CUDA_SUCCESS, "instantiate");
	script.address = before;
	return exec;
}

static void launch(CUgraphExec exec)
{
	CHECK(cuGraphLaunch(exec, STREAM) == CUDA_SUCCESS, "launch");
}

static void drain(void)
{
	struct trace_line t;

	while (trace_next(&t))
		;
}

/* ---- every row ---- */

struct entry { const char *symbol; any_fn call; enum hook_id id; enum hook_family family; };

static const struct entry entries[] = {
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	{ #base #suffix #stream, (any_fn)(void *)base##suffix##stream,                        \
	  HOOK_##base##suffix##stream, FAMILY_##family },
#include "shim/hooks.def"
#undef HOOK
};
#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

static bool is_ours(const struct entry *e)
{
	switch (e->family) {
	case FAMILY_MEM: case FAMILY_HOST: case FAMILY_IPC: case FAMILY_POOL: case FAMILY_VMM:
	case FAMILY_MODULE: case FAMILY_CTX: case FAMILY_SYNC: case FAMILY_COPY:
		return true;
	default:
		return false;
	}
}

/* A call that fails: once, as it is, and nothing becomes of it. The callee's prototype is not
 * known here; with integers and pointers more arguments than it takes do no harm. */
static void refused_rows(void)
{
	for (size_t i = 0; i < ENTRIES; i++) {
		const struct entry *e = &entries[i];
		unsigned before = script_calls[e->id];
		CUresult rc;

		if (!is_ours(e))
			continue;
		script.rc = CUDA_ERROR_UNKNOWN;
		script.set_errno = EXDEV;
		rc = e->call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
		CHECK(rc == CUDA_ERROR_UNKNOWN, "%s: result %d", e->symbol, rc);
		CHECK(errno == EXDEV, "%s: errno %d", e->symbol, errno);
		CHECK(script_calls[e->id] == before + 1, "%s: %u calls", e->symbol,
		      script_calls[e->id] - before);
	}
	script.rc = CUDA_SUCCESS;
	script.set_errno = 0;
	silent();
}

/* ---- memory ---- */

/* @call allocates: a range opens, errno stays; refused, nothing opens. */
#define ALLOC(kind, size_bytes, call)                                                         \
	do {                                                                                  \
		script.address = fresh_address();                                             \
		script.rc = REFUSED;                                                          \
		CHECK((call) == REFUSED, #call);                                              \
		silent();                                                                     \
		script.rc = CUDA_SUCCESS;                                                     \
		errno = EXDEV;                                                                \
		CHECK((call) == CUDA_SUCCESS && errno == EXDEV, #call);                       \
		generation = happened("alloc", kind, script.address, size_bytes);             \
		silent();                                                                     \
	} while (0)

/* @call frees it: refused it lives on, then it closes under its own generation. */
#define FREE(kind, size_bytes, call)                                                          \
	do {                                                                                  \
		script.rc = REFUSED;                                                          \
		CHECK((call) == REFUSED, #call);                                              \
		silent();                                                                     \
		script.rc = CUDA_SUCCESS;                                                     \
		errno = EXDEV;                                                                \
		CHECK((call) == CUDA_SUCCESS && errno == EXDEV, #call);                       \
		CHECK(happened("free", kind, script.address, size_bytes) == generation,       \
		      "%s: another generation", #call);                                       \
		CHECK((call) == CUDA_SUCCESS, "%s: unknown by now", #call);                   \
		silent();                                                                     \
	} while (0)

static void device_memory(void)
{
	CUdeviceptr_v1 p1;
	CUdeviceptr p;
	unsigned int pitch1;
	size_t pitch;
	uint64_t generation;

	script.size_bytes = 512;
	ALLOC("device", 4096, cuMemAlloc(&p1, 4096));
	FREE("device", 4096, cuMemFree(p1));
	ALLOC("device", 8192, cuMemAlloc_v2(&p, 8192));
	FREE("device", 8192, cuMemFree_v2(p));
	ALLOC("device", 512 * 7, cuMemAllocPitch(&p1, &pitch1, 400, 7, 4));
	FREE("device", 512 * 7, cuMemFree(p1));
	ALLOC("device", 512 * 9, cuMemAllocPitch_v2(&p, &pitch, 400, 9, 4));
	FREE("device", 512 * 9, cuMemFree_v2(p));
	ALLOC("managed", MIB, cuMemAllocManaged(&p, MIB, CU_MEM_ATTACH_GLOBAL));
	FREE("managed", MIB, cuMemFree_v2(p));
	CHECK(cuMemFree_v2(0) == CUDA_SUCCESS, "freeing NULL");
	silent();
}

static void pool_memory(void)
{
	CUmemoryPool pool = (CUmemoryPool)0x7000;
	CUmemPoolPtrExportData data = { { 0 } };
	CUdeviceptr p;
	uint64_t generation;

	ALLOC("pool", 100, cuMemAllocAsync(&p, 100, STREAM));
	FREE("pool", 100, cuMemFreeAsync(p, STREAM));
	ALLOC("pool", 100, cuMemAllocAsync_ptsz(&p, 100, STREAM));
	FREE("pool", 100, cuMemFreeAsync_ptsz(p, STREAM));
	ALLOC("pool", 100, cuMemAllocFromPoolAsync(&p, 100, pool, STREAM));
	FREE("pool", 100, cuMemFree_v2(p));
	ALLOC("pool", 100, cuMemAllocFromPoolAsync_ptsz(&p, 100, pool, STREAM));
	FREE("pool", 100, cuMemFreeAsync(p, NULL));
	script.size_bytes = 3 * MIB;
	ALLOC("ipc", 3 * MIB, cuMemPoolImportPointer(&p, pool, &data));
	FREE("ipc", 3 * MIB, cuMemFreeAsync(p, STREAM));
}

static void host_memory(void)
{
	static char buffer[8192];
	CUdeviceptr_v1 d1;
	CUdeviceptr d;
	uint64_t generation, device;
	void *p;

	ALLOC("host", 100, cuMemAllocHost(&p, 100));
	FREE("host", 100, cuMemFreeHost(p));
	ALLOC("host", 100, cuMemAllocHost_v2(&p, 100));
	FREE("host", 100, cuMemFreeHost(p));
	ALLOC("host", 100, cuMemHostAlloc(&p, 100, 0));
	/* Unified addressing: the same address is no second range. */
	CHECK(cuMemHostGetDevicePointer_v2(&d, p, 0) == CUDA_SUCCESS, "device pointer");
	CHECK(cuMemHostGetDevicePointer(&d1, p, 0) == CUDA_SUCCESS, "device pointer");
	silent();
	FREE("host", 100, cuMemFreeHost(p));

	/* Another address, asked for an inner byte, twice: one range as large as the buffer. */
	CHECK(cuMemHostRegister_v2(buffer, sizeof(buffer), 0) == CUDA_SUCCESS, "register");
	happened("alloc", "host", (uintptr_t)buffer, sizeof(buffer));
	device = fresh_address();
	script.address = device + 512;
	CHECK(cuMemHostGetDevicePointer_v2(&d, buffer + 512, 0) == CUDA_SUCCESS, "alias");
	happened("alloc", "host", device, sizeof(buffer));
	CHECK(cuMemHostGetDevicePointer(&d1, buffer + 512, 0) == CUDA_SUCCESS, "alias again");
	silent();
	script.rc = REFUSED;
	CHECK(cuMemHostUnregister(buffer) == REFUSED, "unregister");
	silent();
	script.rc = CUDA_SUCCESS;
	CHECK(cuMemHostUnregister(buffer) == CUDA_SUCCESS, "unregister");
	happened("free", "host", device, sizeof(buffer));
	happened("free", "host", (uintptr_t)buffer, sizeof(buffer));

	script.rc = REFUSED;
	CHECK(cuMemHostRegister(buffer, 100, 0) == REFUSED, "register");
	silent();
	script.rc = CUDA_SUCCESS;
	CHECK(cuMemHostRegister(buffer, 100, 0) == CUDA_SUCCESS, "register");
	happened("alloc", "host", (uintptr_t)buffer, 100);
	CHECK(cuMemHostUnregister(buffer) == CUDA_SUCCESS, "unregister");
	happened("free", "host", (uintptr_t)buffer, 100);
	silent();
}

static void imported_memory(void)
{
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC desc = { .size = 2 * MIB };
	CUexternalMemory external = (CUexternalMemory)0x7100;
	CUipcMemHandle handle = { { 0 } };
	uint64_t generation, first;
	CUdeviceptr p;

	script.size_bytes = 4 * MIB;
	ALLOC("ipc", 4 * MIB, cuIpcOpenMemHandle(&p, handle, 0));
	FREE("ipc", 4 * MIB, cuIpcCloseMemHandle(p));
	ALLOC("ipc", 4 * MIB, cuIpcOpenMemHandle_v2(&p, handle, 0));
	/* The driver counts: the last of three closes ends it. */
	CHECK(cuIpcOpenMemHandle_v2(&p, handle, 0) == CUDA_SUCCESS, "open again");
	CHECK(cuIpcOpenMemHandle(&p, handle, 0) == CUDA_SUCCESS, "open again");
	CHECK(cuIpcCloseMemHandle(p) == CUDA_SUCCESS, "first close");
	CHECK(cuIpcCloseMemHandle(p) == CUDA_SUCCESS, "second close");
	silent();
	FREE("ipc", 4 * MIB, cuIpcCloseMemHandle(p));

	ALLOC("ipc", 2 * MIB, cuExternalMemoryGetMappedBuffer(&p, external, &desc));
	FREE("ipc", 2 * MIB, cuMemFree_v2(p));
	ALLOC("ipc", 2 * MIB, cuExternalMemoryGetMappedBuffer(&p, external, &desc));
	first = p;
	script.rc = REFUSED;
	CHECK(cuDestroyExternalMemory(external) == REFUSED, "destroy");
	silent();
	script.rc = CUDA_SUCCESS;
	CHECK(cuDestroyExternalMemory((CUexternalMemory)0x7200) == CUDA_SUCCESS, "another");
	silent();
	CHECK(cuDestroyExternalMemory(external) == CUDA_SUCCESS, "destroy");
	happened("free", "ipc", first, 2 * MIB);
	silent();
}

static void module_globals(void)
{
	CUmodule module = (CUmodule)0x7300;
	CUlibrary library = (CUlibrary)0x7400;
	uint64_t generation, first, second;
	unsigned int n1;
	CUdeviceptr_v1 p1;
	CUdeviceptr p;
	size_t n;

	script.size_bytes = 64;
	ALLOC("global", 64, cuModuleGetGlobal_v2(&p, &n, module, "a"));
	first = p;
	CHECK(cuModuleGetGlobal_v2(&p, &n, module, "a") == CUDA_SUCCESS, "asked again");
	CHECK(cuModuleGetGlobal(&p1, &n1, module, "a") == CUDA_SUCCESS, "asked again");
	CHECK(cuModuleGetGlobal_v2(NULL, &n, module, "a") == CUDA_SUCCESS && n == 64, "size only");
	silent();
	ALLOC("global", 64, cuModuleGetGlobal_v2(&p, NULL, module, "b"));
	second = p;
	script.rc = REFUSED;
	CHECK(cuModuleUnload(module) == REFUSED, "unload");
	silent();
	script.rc = CUDA_SUCCESS;
	CHECK(cuModuleUnload((CUmodule)library) == CUDA_SUCCESS, "unload another");
	silent();
	CHECK(cuModuleUnload(module) == CUDA_SUCCESS, "unload");
	happened_both("free", "global", (uint64_t[]){ first, second }, 64);
	silent();

	ALLOC("global", 64, cuModuleGetGlobal(&p1, NULL, module, "c"));
	FREE("global", 64, cuModuleUnload(module));
	ALLOC("global", 64, cuLibraryGetGlobal(&p, NULL, library, "d"));
	FREE("global", 64, cuLibraryUnload(library));
	ALLOC("global", 64, cuLibraryGetManaged(&p, &n, library, "e"));
	FREE("global", 64, cuLibraryUnload(library));
}

/* ---- virtual memory ---- */

static void virtual_memory(void)
{
	uint64_t generation, base;
	CUdeviceptr p;

	ALLOC("reserved", 16 * MIB, cuMemAddressReserve(&p, 16 * MIB, 0, 0, 0));
	base = p;
	script.rc = REFUSED;
	CHECK(cuMemMap(base, 2 * MIB, 0, 1, 0) == REFUSED, "map");
	silent();
	script.rc = CUDA_SUCCESS;
	for (unsigned i = 0; i < 3; i++) {
		CHECK(cuMemMap(base + i * 2 * MIB, 2 * MIB, 0, 1 + i, 0) == CUDA_SUCCESS, "map");
		happened("map", "mapped", base + i * 2 * MIB, 2 * MIB);
	}
	script.rc = REFUSED;
	CHECK(cuMemUnmap(base, 4 * MIB) == REFUSED, "unmap");
	CHECK(cuMemAddressFree(base, 16 * MIB) == REFUSED, "mappings are there");
	silent();
	script.rc = CUDA_SUCCESS;
	CHECK(cuMemUnmap(base, 4 * MIB) == CUDA_SUCCESS, "unmap two");
	happened_both("unmap", "mapped", (uint64_t[]){ base, base + 2 * MIB }, 2 * MIB);
	silent();
	CHECK(cuMemUnmap(base + 4 * MIB, 2 * MIB) == CUDA_SUCCESS, "unmap the third");
	happened("unmap", "mapped", base + 4 * MIB, 2 * MIB);
	script.address = base;
	FREE("reserved", 16 * MIB, cuMemAddressFree(base, 16 * MIB));
}

/* Memory that was mapped again, with an exec that refers to it. */
struct remapped { uint64_t base; CUgraphExec exec; };

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

/* Binding and unbinding changes what is behind the mappings of that object, and of no other. */
static void multicast(void)
{
	for (unsigned i = 0; i < 6; i++) {
		CUmemGenericAllocationHandle object = i < 3 ? 0x77 : 0x78;
		struct remapped r = remap(0x77);
		CUresult rc;

		CHECK(cuMemsetD8_v2(r.base, 0, 1) == CUDA_SUCCESS, "written");
		if (i % 3 == 0)
			rc = cuMulticastBindMem(object, 0, 1, 0, MIB, 0);
		else if (i % 3 == 1)
			rc = cuMulticastBindAddr(object, 0, 1, MIB, 0);
		else
			rc = cuMulticastUnbind(object, 0, 0, MIB);
		CHECK(rc == CUDA_SUCCESS, "way %u", i);
		launch(r.exec);
		CHECK(found("content-undefined", "content-undefined") == (object == 0x77),
		      "way %u", i);
		remap_end(&r);
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
	CUdeviceptr dsts[1] = { dst };

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

		if (e->family != FAMILY_COPY || is_base_of(e, "cuMemcpyDtoH"))
			continue;
		r = remap(0x79);
		script.rc = REFUSED;
		CHECK(copy_to(e, r.base + 128) == REFUSED, "%s", e->symbol);
		script.rc = CUDA_SUCCESS;
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
	CUDA_MEMCPY2D c2 = { .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = r.base - MIB,
			     .dstPitch = 4096, .dstY = 256, .dstXInBytes = 64 };
	CUDA_MEMCPY3D c3 = { .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = r.base - 2 * MIB,
			     .dstPitch = 4096, .dstHeight = 256, .dstZ = 2 };

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
	return strstr(e->symbol, "Async") != NULL;
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

static void captured_pool(void)
{
	uint64_t base = fresh_address();
	CUdeviceptr p;

	script.node_type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	script.address = base;
	capture_begin();
	drain();
	CHECK(cuMemAllocAsync(&p, 100, STREAM) == CUDA_SUCCESS, "allocation node");
	happened("alloc", "graph", base, 100);
	CHECK(cuMemFreeAsync(p, STREAM) == CUDA_SUCCESS, "free node");
	silent();
	capture_end();
	drain();
	/* On a stream that does not capture the same call is a free. */
	CHECK(cuMemFreeAsync(p, STREAM) == CUDA_SUCCESS, "free");
	happened("free", "graph", base, 100);
	silent();
}

/* ---- synchronisation ---- */

/* Is a launch that the driver calls unfinished still in flight when its memory is unmapped? */
static bool in_flight(void (*synchronise)(void))
{
	CUgraphExec exec;
	CUdeviceptr p;
	bool is;

	script.address = fresh_address();
	cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0);
	cuMemMap(p, 4 * MIB, 0, 1, 0);
	exec = exec_of(p);
	launch(exec);
	synchronise();
	drain();
	script.stream_query = CUDA_ERROR_NOT_READY;
	cuMemUnmap(p, 4 * MIB);
	script.stream_query = CUDA_SUCCESS;
	is = found("stale-launch", "in-flight");
	cuGraphExecDestroy(exec);
	cuMemAddressFree(p, 4 * MIB);
	drain();
	return is;
}

#define EVENT ((CUevent)0x7500)
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
	X(cuStreamDestroy(STREAM))                                                            \
	X(cuStreamDestroy_v2(STREAM))
#define NO_WAYS(X)                                                                            \
	X((void)0)                                                                            \
	X(cuStreamSynchronize((CUstream)0x5100))                                              \
	X(cuEventRecord(EVENT, STREAM), cuEventDestroy(EVENT), cuEventSynchronize(EVENT))     \
	X(cuEventRecord(EVENT, STREAM), cuEventDestroy_v2(EVENT), cuEventQuery(EVENT))        \
	X(script.rc = CUDA_ERROR_NOT_READY, cuStreamQuery(STREAM), script.rc = CUDA_SUCCESS)  \
	X(script.rc = CUDA_ERROR_UNKNOWN, cuCtxSynchronize(), script.rc = CUDA_SUCCESS)

static unsigned way_number;
#define CASE(...) if (n-- == 0) { __VA_ARGS__; return; }
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

static void synchronisation(void)
{
	static const char *const ways[] = { WAYS(TEXT) }, *const no_ways[] = { NO_WAYS(TEXT) };

	for (way_number = 0; way_number < sizeof(no_ways) / sizeof(no_ways[0]); way_number++)
		CHECK(in_flight(run_no_way), "proves nothing: %s", no_ways[way_number]);
	for (way_number = 0; way_number < sizeof(ways) / sizeof(ways[0]); way_number++)
		CHECK(!in_flight(run_way), "proof: %s", ways[way_number]);
}

/* ---- contexts ---- */

static void context_allocates(uint64_t context, uint64_t *address)
{
	CUdeviceptr p;

	script.context = context;
	script.address = *address = fresh_address();
	CHECK(cuMemAlloc_v2(&p, MIB) == CUDA_SUCCESS, "alloc");
	drain();
}

/* @call destroys @context: refused nothing closes, then its range does and no other. */
#define DESTROY(context, call)                                                                \
	do {                                                                                  \
		context_allocates(context, &address);                                         \
		script.rc = REFUSED;                                                          \
		CHECK((call) == REFUSED, #call);                                              \
		silent();                                                                     \
		script.rc = CUDA_SUCCESS;                                                     \
		CHECK((call) == CUDA_SUCCESS, #call);                                         \
		happened("free", "device", address, MIB);                                     \
		silent();                                                                     \
	} while (0)

static void contexts(void)
{
	CUcontext a = (CUcontext)0xa000, primary;
	uint64_t address, other;

	context_allocates(0xb000, &other);
	DESTROY(0xa000, cuCtxDestroy(a));
	DESTROY(0xa000, cuCtxDestroy_v2(a));
	/* Detached, but others are attached to it: it stays current. */
	context_allocates(0xa000, &address);
	CHECK(cuCtxDetach(a) == CUDA_SUCCESS, "detach");
	silent();
	script.context = 0xb000;
	CHECK(cuCtxDetach(a) == CUDA_SUCCESS, "detach the last");
	happened("free", "device", address, MIB);

	script.context = 0xc000;
	CHECK(cuDevicePrimaryCtxRetain(&primary, 1) == CUDA_SUCCESS, "retain");
	script.primary_active = 0;
	DESTROY(0xc000, cuDevicePrimaryCtxRelease(1));
	DESTROY(0xc000, cuDevicePrimaryCtxRelease_v2(1));
	DESTROY(0xc000, cuDevicePrimaryCtxReset(1));
	DESTROY(0xc000, cuDevicePrimaryCtxReset_v2(1));
	script.primary_active = 1;
	context_allocates(0xc000, &address);
	CHECK(cuDevicePrimaryCtxRelease_v2(1) == CUDA_SUCCESS, "others hold it");
	CHECK(cuDevicePrimaryCtxReset_v2(2) == CUDA_SUCCESS, "another device");
	CHECK(cuDevicePrimaryCtxReset_v2(100000) == CUDA_SUCCESS, "no such device");
	silent();
}

int main(void)
{
	trace_start();
	refused_rows();
	device_memory();
	pool_memory();
	host_memory();
	imported_memory();
	module_globals();
	virtual_memory();
	multicast();
	copies_write();
	pitched_destinations();
	captured_copies();
	captured_pool();
	synchronisation();
	contexts();
	trace_stop();
	return check_result();
}
