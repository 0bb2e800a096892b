/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every wrapper of memory and contexts, one by one, on the scripted driver: what it tells the
 * ledger, that it calls the driver once, and that result and errno are the driver's. Failing calls
 * are tried for the wrappers of copies and synchronisation, too. Run with the shim preloaded.
 */
#include "tests/shim/scene.h"

/* ---- every row ---- */

static bool is_ours(const struct entry *e)
{
	switch (e->family) {
	case FAMILY_MEM:
	case FAMILY_HOST:
	case FAMILY_IPC:
	case FAMILY_POOL:
	case FAMILY_VMM:
	case FAMILY_MODULE:
	case FAMILY_CTX:
	case FAMILY_SYNC:
	case FAMILY_COPY:
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
#define ALLOC(kind, size_bytes, call)                                             \
	do {                                                                      \
		script.address = fresh_address();                                 \
		script.rc = REFUSED;                                              \
		CHECK((call) == REFUSED, #call);                                  \
		silent();                                                         \
		script.rc = CUDA_SUCCESS;                                         \
		errno = EXDEV;                                                    \
		CHECK((call) == CUDA_SUCCESS && errno == EXDEV, #call);           \
		generation = happened("alloc", kind, script.address, size_bytes); \
		silent();                                                         \
	} while (0)

/* @call frees it: refused it lives on, then it closes under its own generation. */
#define FREE(kind, size_bytes, call)                                                    \
	do {                                                                            \
		script.rc = REFUSED;                                                    \
		CHECK((call) == REFUSED, #call);                                        \
		silent();                                                               \
		script.rc = CUDA_SUCCESS;                                               \
		errno = EXDEV;                                                          \
		CHECK((call) == CUDA_SUCCESS && errno == EXDEV, #call);                 \
		CHECK(happened("free", kind, script.address, size_bytes) == generation, \
		      "%s: another generation", #call);                                 \
		CHECK((call) == CUDA_SUCCESS, "%s: unknown by now", #call);             \
		silent();                                                               \
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
	script.rc = REFUSED;
	CHECK(cuMemHostRegister_v2(buffer, 100, 0) == REFUSED, "register");
	silent();
	script.rc = CUDA_SUCCESS;
	CHECK(cuMemHostRegister_v2(buffer, sizeof(buffer), 0) == CUDA_SUCCESS, "register");
	happened("alloc", "host", (uintptr_t)buffer, sizeof(buffer));
	device = d1 = d = fresh_address();
	script.address = device + 512;
	script.rc = REFUSED;
	CHECK(cuMemHostGetDevicePointer_v2(&d, buffer, 0) == REFUSED, "alias");
	CHECK(cuMemHostGetDevicePointer(&d1, buffer, 0) == REFUSED, "alias");
	silent();
	script.rc = CUDA_SUCCESS;
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
	script.address = fresh_address();
	CHECK(cuMemHostGetDevicePointer(&d1, buffer, 0) == CUDA_SUCCESS, "alias");
	happened("alloc", "host", script.address, 100);
	CHECK(cuMemHostUnregister(buffer) == CUDA_SUCCESS, "unregister");
	happened("free", "host", script.address, 100);
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
	script.rc = REFUSED;
	CHECK(cuIpcCloseMemHandle(p) == REFUSED, "last close");
	script.rc = CUDA_SUCCESS;
	CHECK(cuIpcOpenMemHandle(&p, handle, 0) == CUDA_SUCCESS, "open again");
	CHECK(cuIpcCloseMemHandle(p) == CUDA_SUCCESS, "not the last close");
	silent();
	FREE("ipc", 4 * MIB, cuIpcCloseMemHandle(p));

	/* A driver that does not tell the extent: the first byte is known. */
	script.extent_rc = CUDA_ERROR_NOT_SUPPORTED;
	ALLOC("ipc", 1, cuIpcOpenMemHandle_v2(&p, handle, 0));
	FREE("ipc", 1, cuIpcCloseMemHandle(p));
	script.extent_rc = CUDA_SUCCESS;

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
	CUdeviceptr p = fresh_address();
	CUdeviceptr_v1 p1 = (CUdeviceptr_v1)p;
	unsigned int n1 = 64;
	size_t n = 64;

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
	ALLOC("global", 64, cuModuleGetGlobal(&p1, &n1, module, "d"));
	FREE("global", 64, cuModuleUnload(module));
	ALLOC("global", 64, cuLibraryGetGlobal(&p, NULL, library, "e"));
	FREE("global", 64, cuLibraryUnload(library));
	ALLOC("global", 64, cuLibraryGetGlobal(&p, &n, library, "f"));
	FREE("global", 64, cuLibraryUnload(library));
	ALLOC("global", 64, cuLibraryGetManaged(&p, NULL, library, "g"));
	FREE("global", 64, cuLibraryUnload(library));
	ALLOC("global", 64, cuLibraryGetManaged(&p, &n, library, "h"));
	FREE("global", 64, cuLibraryUnload(library));
}

/* Handles of functions may come back with another meaning after an unload. */
static void unloaded_layouts(void)
{
	unsigned asked;

	cuGraphExecDestroy(exec_of(0));
	asked = script_layouts;
	cuGraphExecDestroy(exec_of(0));
	CHECK(script_layouts == asked, "layouts are remembered");
	cuModuleUnload((CUmodule)0x7300);
	cuGraphExecDestroy(exec_of(0));
	CHECK(script_layouts == asked + 1, "forgotten with a module");
	cuLibraryUnload((CUlibrary)0x7400);
	cuGraphExecDestroy(exec_of(0));
	CHECK(script_layouts == asked + 2, "forgotten with a library");
	drain();
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
#define DESTROY(context, call)                            \
	do {                                              \
		context_allocates(context, &address);     \
		script.rc = REFUSED;                      \
		CHECK((call) == REFUSED, #call);          \
		silent();                                 \
		script.rc = CUDA_SUCCESS;                 \
		CHECK((call) == CUDA_SUCCESS, #call);     \
		happened("free", "device", address, MIB); \
		silent();                                 \
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
	script.primary_active = 0;
	script.state_rc = CUDA_ERROR_DEINITIALIZED;
	CHECK(cuDevicePrimaryCtxRelease_v2(1) == CUDA_SUCCESS, "nobody knows");
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
	unloaded_layouts();
	virtual_memory();
	contexts();
	return check_result();
}
