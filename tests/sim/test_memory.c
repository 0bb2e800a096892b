/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of memory: addresses, lifetimes, illegal accesses. */
#include "tests/sim/test.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void addresses_are_reused(void)
{
	CUdeviceptr a, b, small, other;

	test_start();
	a = device(4 * MIB);
	b = device(4 * MIB);
	EQ(a % (2 * MIB), 0);
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	EQ(device(4 * MIB), b);		/* last in, first out */
	EQ(device(4 * MIB), a);
	small = device(4096);
	other = device(512);
	EQ(small / (2 * MIB), other / (2 * MIB));	/* one shared page */
	OK(cuMemFree(small));
	EQ(device(4000), small);
}

static void bad_frees(void)
{
	CUdeviceptr a, out;
	void *h;

	test_start();
	a = device(4 * MIB);
	EQ(cuMemFree(a + 512), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree(a));
	EQ(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemFree(0x1234500), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree(0));
	EQ(cuMemAlloc(&out, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemAlloc(&out, 1ull << 50), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAllocHost(&h, 4096));
	EQ(cuMemFree((uintptr_t)h), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemFreeHost((char *)h + 64), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeHost(h));
	EQ(cuMemFreeHost(h), CUDA_ERROR_INVALID_VALUE);
}

/* The harm that the guard is there to prevent. */
static void stale_access_poisons(void)
{
	CUdeviceptr a, b, out;
	size_t n = N;
	void *args[] = { &b, &a, &n };
	CUfunction f;
	int v;

	test_start();
	f = kernel("k_acc");
	a = device(4 * MIB);
	b = device(4 * MIB);
	OK(cuMemFree(a));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, S, args, NULL));	/* does not look */
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
	EQ(cuMemAlloc(&out, 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
	EQ(cuMemcpyDtoH(&v, b, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
	EQ(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, S, args, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void past_the_end_poisons(void)
{
	CUdeviceptr a;

	test_start();
	a = device(4 * N - 4);
	OK(set(S, a, 1));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* A derivation reads and writes what its row says, and nothing behind it. */
static void derivations_touch_their_ranges(void)
{
	CUdeviceptr in, out;
	uint32_t count = N, fp16 = 1;
	void *args[] = { &in, &out, &count, &fp16 };
	uint16_t half[2 * N] = { 0x3c00 };
	float f32;

	test_start();
	in = device(2 * N);
	out = device(4 * N);
	OK(cuMemcpyHtoD(in, half, 2 * N));
	OK(run(S, "arena_sinks_f32", args));
	OK(cuStreamSynchronize(S));
	OK(cuMemcpyDtoH(&f32, out, 4));
	IS(f32 == 1);
	count = N + 1;
	OK(run(S, "arena_sinks_f32", args));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void host_cannot_touch_device_memory(void)
{
	volatile int *p;
	int status;
	pid_t pid;

	test_start();
	p = (int *)(uintptr_t)device(4 * MIB);
	pid = fork();
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);	/* a sanitizer would tell about it at length */
		*p = 1;
		_exit(0);
	}
	EQ(waitpid(pid, &status, 0), pid);
	IS(WIFSIGNALED(status));
	EQ(WTERMSIG(status), SIGSEGV);
}

static void a_free_waits_for_the_work(void)
{
	CUdeviceptr a;

	test_start();
	a = device(4 * MIB);
	OK(spin(S, a, 50000000));
	EQ(cuStreamQuery(S), CUDA_ERROR_NOT_READY);
	OK(cuMemFree(a));
	OK(cuStreamQuery(S));		/* done, and it did not fault */
}

static void managed_pitched_and_pinned(void)
{
	CUdeviceptr m, p, h2;
	void *again;
	size_t pitch;
	int *h;

	test_start();
	OK(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
	OK(set(S, m, 7));
	OK(cuStreamSynchronize(S));
	EQ(*(int *)(uintptr_t)m, 7);
	OK(cuMemAllocPitch(&p, &pitch, 100, 8, 4));
	EQ(pitch, 512);
	OK(cuMemHostAlloc((void **)&h, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer(&h2, h, 0));
	EQ(h2, (uintptr_t)h);
	OK(set(S, h2, 9));
	OK(cuStreamSynchronize(S));
	EQ(h[N - 1], 9);
	OK(cuMemFreeHost(h));
	OK(cuMemAllocHost(&again, 4096));
	EQ((uintptr_t)again, (uintptr_t)h);
}

static int page[N] __attribute__((aligned(4096)));
static void registered_host_memory(void)
{
	test_start();
	OK(cuMemHostRegister(page, sizeof(page), 0));
	EQ(cuMemHostRegister(page, sizeof(page), 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	OK(set(S, (uintptr_t)page, 5));
	OK(cuMemHostUnregister(page));
	EQ(page[3], 5);
	EQ(cuMemHostUnregister(page), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	OK(set(S, (uintptr_t)page, 6));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void freed_pinned_source_faults(void)
{
	CUdeviceptr d;
	CUgraphExec e;
	CUgraph g;
	int *h;

	test_start();
	d = device(4096);
	OK(cuMemAllocHost((void **)&h, 4096));
	*h = 3;
	CAPTURE(g, OK(cuMemcpyHtoDAsync(d, h, 4096, S)));
	e = instantiate(g);
	OK(replay(e));
	EQ(first(d), 3);
	OK(cuMemFreeHost(h));
	EQ(replay(e), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void pointer_queries(void)
{
	CUdeviceptr a, base;
	unsigned type;
	size_t size;

	test_start();
	a = device(4 * MIB);
	OK(cuMemGetAddressRange(&base, &size, a + 100));
	EQ(base, a);
	EQ(size, 4 * MIB);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a));
	EQ(type, CU_MEMORYTYPE_DEVICE);
	OK(cuMemFree(a));
	EQ(cuMemGetAddressRange(&base, &size, a), CUDA_ERROR_NOT_FOUND);
	EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a),
	   CUDA_ERROR_INVALID_VALUE);
}

/* ---- virtual memory ---- */

/* Of a decode kernel: over two mappings, queries and keys in one row; then one element too many. */
static void decode_kernels_touch_their_ranges(void)
{
	uint16_t row[8] = { 0x3f80, 0x4000, 0x4040, 0x4080, 0x3f80, 0x4000, 0x4040, 0x4080 };
	uint16_t table[2] = { 0, 0x3f80 }, back[8];	/* cos 0, sin 1; rows are 1 2 3 4 */
	uint32_t tokens = 2, heads = 1, rot = 2, rows = 1, stride = 4, none = 0;
	CUdeviceptr positions, cos_sin, q, k, r;

	test_start();
	positions = device(16);
	cos_sin = device(4);
	r = reserve(4 * MIB);
	map(r, physical(2 * MIB), 2 * MIB);
	map(r + 2 * MIB, physical(2 * MIB), 2 * MIB);
	q = r + 2 * MIB - 2;
	k = q + 4;
	OK(cuMemsetD8(positions, 0, 16));
	OK(cuMemcpyHtoD(cos_sin, table, sizeof(table)));
	OK(cuMemcpyHtoD(q, row, sizeof(row)));
	void *args[] = { &positions, &q, &k, &cos_sin, &tokens, &heads, &heads, &rot, &rows,
			 &stride, &none, &stride, &none, &none };
	OK(run(S, "decode_rotary", args));
	OK(cuStreamSynchronize(S));
	OK(cuMemcpyDtoH(back, q, sizeof(back)));
	for (int i = 0; i < 8; i += 4) {
		EQ(back[i], 0xc000);	/* -2 1 -4 3 */
		EQ(back[i + 1], 0x3f80);
		EQ(back[i + 2], 0xc080);
		EQ(back[i + 3], 0x4040);
	}
	k = r + 4 * MIB - 2;
	OK(run(S, "decode_rotary", args));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void map_needs_access(void)
{
	CUdeviceptr r;

	test_start();
	r = reserve(4 * MIB);
	OK(cuMemMap(r, 4 * MIB, 0, physical(4 * MIB), 0));
	OK(set(S, r, 1));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void vmm_arguments(void)
{
	CUmemGenericAllocationHandle h, again;
	CUdeviceptr r, other;

	test_start();
	h = physical(4 * MIB);
	r = reserve(8 * MIB);
	EQ(cuMemMap(r + 4096, 4 * MIB, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemMap(r + 6 * MIB, 4 * MIB, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	map(r, h, 4 * MIB);
	EQ(cuMemMap(r, 4 * MIB, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	map(r + 4 * MIB, h, 4 * MIB);	/* one physical block, two addresses */
	OK(set(S, r, 8));
	OK(cuStreamSynchronize(S));
	EQ(first(r + 4 * MIB), 8);
	EQ(cuMemUnmap(r, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemAddressFree(r, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)r));
	EQ(again, h);
	OK(cuMemRelease(h));
	OK(cuMemRelease(again));
	EQ(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
	EQ(first(r), 8);		/* the mappings keep it */
	OK(cuMemUnmap(r, 8 * MIB));	/* both at once */
	EQ(cuMemUnmap(r, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAddressFree(r, 8 * MIB));
	OK(cuMemAddressReserve(&other, 8 * MIB, 0, r, 0));
	EQ(other, r);			/* the hint is taken */
}

static void unmapped_access_faults(void)
{
	CUdeviceptr r;

	test_start();
	r = reserve(4 * MIB);
	map(r, physical(4 * MIB), 4 * MIB);
	OK(set(S, r, 1));
	OK(cuStreamSynchronize(S));
	OK(cuMemUnmap(r, 4 * MIB));
	OK(set(S, r, 1));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void unmap_does_not_wait(void)
{
	CUdeviceptr r;

	test_start();
	r = reserve(4 * MIB);
	map(r, physical(4 * MIB), 4 * MIB);
	OK(spin(S, r, 50000000));
	EQ(cuStreamQuery(S), CUDA_ERROR_NOT_READY);
	OK(cuMemUnmap(r, 4 * MIB));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void remap_keeps_the_address_and_replaces_the_bytes(void)
{
	CUdeviceptr r;
	CUgraphExec e;
	CUgraph g;

	test_start();
	r = reserve(4 * MIB);
	map(r, physical(4 * MIB), 4 * MIB);
	OK(set(S, r, 41));
	CAPTURE(g, OK(acc(S, r, r)));
	e = instantiate(g);
	OK(replay(e));
	EQ(first(r), 82);
	OK(cuMemUnmap(r, 4 * MIB));
	map(r, physical(4 * MIB), 4 * MIB);
	OK(replay(e));
	EQ(first(r), 0);
}

static void shared_handles(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED };
	CUmemGenericAllocationHandle h, imported;
	CUdeviceptr r;
	int fd;

	test_start();
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	OK(cuMemCreate(&h, 2 * MIB, &prop, 0));
	OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	r = reserve(4 * MIB);
	map(r, h, 2 * MIB);
	map(r + 2 * MIB, imported, 2 * MIB);
	OK(set(S, r, 6));
	OK(cuStreamSynchronize(S));
	EQ(first(r + 2 * MIB), 6);
}

static void multicast(void)
{
	CUmulticastObjectProp prop = { .numDevices = 1, .size = 2 * MIB };
	CUmemGenericAllocationHandle mc, h;
	CUdeviceptr r;

	test_start();
	OK(cuMulticastCreate(&mc, &prop));
	OK(cuMulticastAddDevice(mc, 0));
	h = physical(2 * MIB);
	OK(cuMulticastBindMem(mc, 0, h, 0, 2 * MIB, 0));
	r = reserve(4 * MIB);
	map(r, mc, 2 * MIB);
	map(r + 2 * MIB, h, 2 * MIB);
	OK(set(S, r, 4));
	OK(cuStreamSynchronize(S));
	EQ(first(r + 2 * MIB), 4);
	OK(cuMulticastUnbind(mc, 0, 0, 2 * MIB));
	OK(set(S, r, 4));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* ---- pools, imports ---- */

static void stream_ordered(void)
{
	CUdeviceptr p, q, out;
	uint64_t used;
	CUmemoryPool pool;
	CUstream other;

	test_start();
	out = device(4096);
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&p, 4 * MIB, S));
	OK(set(S, p, 3));
	OK(spin(S, out, 3000000));
	OK(cuMemFreeAsync(p, S));
	EQ(cuMemFreeAsync(p, S), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAllocAsync(&q, 4 * MIB, other));
	IS(q != p);			/* the free is still ahead */
	OK(cuStreamSynchronize(S));
	OK(cuMemAllocAsync(&q, 4 * MIB, S));
	EQ(q, p);
	OK(cuMemFreeAsync(q, S));
	OK(cuStreamSynchronize(S));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolTrimTo(pool, 0));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	EQ(used, 4 * MIB);		/* the one of the other stream */
	OK(set(S, q, 1));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void own_pools(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED };
	CUmemPoolPtrExportData data;
	CUmemoryPool pool, imported;
	CUdeviceptr p, q;
	int fd;

	test_start();
	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&p, 4096, pool, S));
	OK(set(S, p, 11));
	OK(cuStreamSynchronize(S));
	OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					    0));
	OK(cuMemPoolImportFromShareableHandle(&imported, (void *)(uintptr_t)fd,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemPoolExportPointer(&data, p));
	OK(cuMemPoolImportPointer(&q, imported, &data));
	IS(q != p);
	EQ(first(q), 11);
	OK(cuMemFreeAsync(q, S));
	OK(cuMemFreeAsync(p, S));
	OK(cuStreamSynchronize(S));
	EQ(cuMemFreeAsync(p, S), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemPoolDestroy(pool));
}

static void ipc(void)
{
	CUipcMemHandle handle;
	CUdeviceptr a, b, c;

	test_start();
	a = device(4 * MIB);
	OK(set(S, a, 2));
	OK(cuStreamSynchronize(S));
	OK(cuIpcGetMemHandle(&handle, a));
	OK(cuIpcOpenMemHandle(&b, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuIpcOpenMemHandle(&c, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	EQ(b, c);
	IS(b != a);
	EQ(first(b), 2);
	OK(cuIpcCloseMemHandle(b));
	EQ(first(b), 2);		/* opened twice */
	OK(cuIpcCloseMemHandle(b));
	EQ(cuIpcCloseMemHandle(b), CUDA_ERROR_INVALID_VALUE);
	OK(set(S, b, 2));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void the_owner_frees_what_is_imported(void)
{
	CUipcMemHandle handle;
	CUdeviceptr a, b;

	test_start();
	a = device(4 * MIB);
	OK(cuIpcGetMemHandle(&handle, a));
	OK(cuIpcOpenMemHandle(&b, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuMemFree(a));
	OK(set(S, b, 2));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void external_memory(void)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {
		.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
	};
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = { .offset = 4096, .size = 4096 };
	CUexternalMemory memory;
	CUdeviceptr p;

	test_start();
	desc.handle.fd = memfd_create("test", 0);
	desc.size = 2 * MIB;
	EQ(ftruncate(desc.handle.fd, 2 * MIB), 0);
	OK(cuImportExternalMemory(&memory, &desc));
	OK(cuExternalMemoryGetMappedBuffer(&p, memory, &buffer));
	OK(set(S, p, 12));
	OK(cuStreamSynchronize(S));
	EQ(first(p), 12);
	OK(cuDestroyExternalMemory(memory));
	OK(set(S, p, 12));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void globals_end_with_the_module(void)
{
	CUdeviceptr p, again;
	CUmodule other;
	size_t size;

	test_start();
	OK(cuModuleLoadData(&other, "image"));
	OK(cuModuleGetGlobal(&p, &size, other, "g_table"));
	EQ(size, 4096);
	EQ(first(p), 0);
	OK(cuModuleGetGlobal(&again, NULL, module, "g_table"));
	IS(again != p);
	EQ(cuModuleGetGlobal(&p, &size, other, "g_none"), CUDA_ERROR_NOT_FOUND);
	OK(cuModuleUnload(other));
	EQ(cuModuleUnload(other), CUDA_ERROR_INVALID_HANDLE);
	OK(set(S, p, 1));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void memory_ends_with_the_context(void)
{
	CUcontext ctx, before;
	CUdeviceptr p, r;

	test_start();
	r = reserve(2 * MIB);
	map(r, physical(2 * MIB), 2 * MIB);
	OK(cuCtxGetCurrent(&before));
	OK(cuCtxCreate(&ctx, NULL, 0, 0));
	p = device(4 * MIB);
	OK(cuCtxDestroy(ctx));
	OK(cuCtxGetCurrent(&ctx));
	EQ((uintptr_t)ctx, (uintptr_t)before);
	EQ(first(r), 0);		/* mapped memory is the process's */
	OK(set(S, p, 1));
	EQ(cuStreamSynchronize(S), CUDA_ERROR_ILLEGAL_ADDRESS);
}

const struct test tests_memory[] = {
	{ "addresses are reused", addresses_are_reused, NULL },
	{ "bad frees", bad_frees, NULL },
	{ "stale access poisons the process", stale_access_poisons, NULL },
	{ "past the end poisons the process", past_the_end_poisons, NULL },
	{ "derivations touch their ranges", derivations_touch_their_ranges, NULL },
	{ "host cannot touch device memory", host_cannot_touch_device_memory, NULL },
	{ "a free waits for the work", a_free_waits_for_the_work, NULL },
	{ "managed, pitched and pinned memory", managed_pitched_and_pinned, NULL },
	{ "registered host memory", registered_host_memory, NULL },
	{ "a freed pinned source faults", freed_pinned_source_faults, NULL },
	{ "pointer queries", pointer_queries, NULL },
	{ "decode kernels touch their ranges", decode_kernels_touch_their_ranges, NULL },
	{ "a mapping needs access", map_needs_access, NULL },
	{ "vmm arguments and lifetimes", vmm_arguments, NULL },
	{ "unmapped access faults", unmapped_access_faults, NULL },
	{ "unmap does not wait", unmap_does_not_wait, NULL },
	{ "remap: same address, other bytes", remap_keeps_the_address_and_replaces_the_bytes,
	  NULL },
	{ "shared handles", shared_handles, NULL },
	{ "multicast", multicast, NULL },
	{ "stream-ordered allocation", stream_ordered, NULL },
	{ "own pools, imported pointers", own_pools, NULL },
	{ "ipc", ipc, NULL },
	{ "the owner frees what is imported", the_owner_frees_what_is_imported, NULL },
	{ "external memory", external_memory, NULL },
	{ "globals end with the module", globals_end_with_the_module, NULL },
	{ "memory ends with the context", memory_ends_with_the_context, NULL },
	{ NULL, NULL, NULL },
};
