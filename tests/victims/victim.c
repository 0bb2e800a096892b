/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared part of the victims: start-up, and the driver calls behind the words of victim.h.
 * One thread, except where a story starts more of them and each calls victim_thread_start().
 */
#include "victim.h"

#include <string.h>

#include "image.h"

#define EXIT_SKIP 77

_Thread_local CUstream S;
CUcontext victim_context;
CUdevice victim_device;

static CUmodule module, module_cond;
static struct {
	const char *name;
	CUfunction function;
} kernels[] = {
	{ "k_set", NULL },  { "k_acc", NULL },	{ "k_chase", NULL },   { "k_ticket", NULL },
	{ "k_spin", NULL }, { "k_seed", NULL }, { "k_range", NULL },   { "k_struct", NULL },
	{ "k_tma", NULL },  { "k_cond", NULL }, { "k_bounded", NULL }, { "k_copy", NULL },
};
#define KERNEL_COUNT (sizeof(kernels) / sizeof(kernels[0]))

void victim_check(CUresult r, const char *what, const char *file, int line)
{
	const char *name = NULL;

	if (r == CUDA_SUCCESS)
		return;
	fflush(stdout);
	cuGetErrorName(r, &name);
	fprintf(stderr, "%s:%d: %s: %d %s\n", file, line, what, (int)r, name ? name : "");
	exit(1);
}

void victim_fail(const char *what, const char *file, int line)
{
	fflush(stdout);
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	exit(1);
}

void victim_skip(const char *why)
{
	printf("skip %s\n", why);
	exit(EXIT_SKIP);
}

void victim_only_harmless(bool harmless)
{
	const char *gate = getenv("ARENA_GATE");

	if (!harmless && (!gate || strcmp(gate, "strict")))
		victim_skip("the stale launch would do harm");
}

/* ---- memory ---- */

void name_range(const char *name, uint64_t base, size_t bytes)
{
	printf("range %s=0x%llx:%zu\n", name, (unsigned long long)base, bytes);
}

CUdeviceptr dev_alloc(const char *name, size_t bytes)
{
	CUdeviceptr p;

	CK(cuMemAlloc(&p, bytes));
	name_range(name, p, bytes);
	return p;
}

void dev_free(CUdeviceptr p)
{
	CK(cuMemFree(p));
}

CUdeviceptr async_alloc(const char *name, size_t bytes)
{
	CUdeviceptr p;

	CK(cuMemAllocAsync(&p, bytes, S));
	name_range(name, p, bytes);
	return p;
}

void async_free(CUdeviceptr p)
{
	CK(cuMemFreeAsync(p, S));
}

void *host_alloc(const char *name, size_t bytes)
{
	void *p;

	CK(cuMemHostAlloc(&p, bytes, 0));
	name_range(name, (uintptr_t)p, bytes);
	return p;
}

void host_free(void *p)
{
	CK(cuMemFreeHost(p));
}

CUdeviceptr vmm_reserve(const char *name, size_t bytes, CUdeviceptr hint)
{
	CUdeviceptr p;

	CK(cuMemAddressReserve(&p, bytes, 0, hint, 0));
	name_range(name, p, bytes);
	return p;
}

CUmemGenericAllocationHandle vmm_create(size_t bytes, bool shareable)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = victim_device },
		.requestedHandleTypes = shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
						  : CU_MEM_HANDLE_TYPE_NONE,
	};
	CUmemGenericAllocationHandle h;

	CK(cuMemCreate(&h, bytes, &prop, 0));
	return h;
}

void vmm_map(CUdeviceptr at, CUmemGenericAllocationHandle h, size_t bytes)
{
	CUmemAccessDesc access = {
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = victim_device },
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	CK(cuMemMap(at, bytes, 0, h, 0));
	CK(cuMemSetAccess(at, bytes, &access, 1));
}

void vmm_unmap(CUdeviceptr at, size_t bytes)
{
	CK(cuMemUnmap(at, bytes));
}

void vmm_release(CUmemGenericAllocationHandle h)
{
	CK(cuMemRelease(h));
}

void vmm_address_free(CUdeviceptr at, size_t bytes)
{
	CK(cuMemAddressFree(at, bytes));
}

/* ---- work ---- */

CUmodule victim_module(void)
{
	CUmodule m;

	CK(cuModuleLoadData(&m, victim_image));
	return m;
}

CUfunction victim_kernel(const char *name)
{
	for (size_t i = 0; i < KERNEL_COUNT; i++) {
		if (strcmp(kernels[i].name, name))
			continue;
		if (!kernels[i].function)
			victim_skip("no machine code of this kernel for this device");
		return kernels[i].function;
	}
	victim_fail(name, __FILE__, __LINE__);
}

void launch(const char *kernel, void **args)
{
	CK(cuLaunchKernel(victim_kernel(kernel), 4, 1, 1, 256, 1, 1, 0, S, args, NULL));
}

void launch_single(const char *kernel, void **args)
{
	CK(cuLaunchKernel(victim_kernel(kernel), 1, 1, 1, 1, 1, 1, 0, S, args, NULL));
}

void settle(void)
{
	CK(cuStreamSynchronize(S));
}

int peek(CUdeviceptr p)
{
	int v;

	settle();
	CK(cuMemcpyDtoH(&v, p, sizeof(v)));
	return v;
}

void poke_bytes(CUdeviceptr p, const void *from, size_t bytes)
{
	settle();
	CK(cuMemcpyHtoD(p, from, bytes));
	/* From pageable memory it returns before the device has all of it. */
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
}

void poke(CUdeviceptr p, int v)
{
	int copy[N_INTS];

	for (size_t i = 0; i < N_INTS; i++)
		copy[i] = v;
	poke_bytes(p, copy, sizeof(copy));
}

void tell(const char *name, long long value)
{
	printf("value %s %lld\n", name, value);
}

/* ---- graphs ---- */

CUgraphExec instantiate(CUgraph g)
{
	CUgraphExec e;

	CK(cuGraphInstantiate(&e, g, 0));
	return e;
}

CUgraphNode only_node(CUgraph g)
{
	CUgraphNode node;
	size_t count = 1;

	CK(cuGraphGetNodes(g, &node, &count));
	MUST(count == 1);
	return node;
}

CUgraphNode add_acc(CUgraph g, CUgraphNode after, CUdeviceptr d, CUdeviceptr s)
{
	size_t n = N_INTS;
	void *args[] = { &d, &s, &n };
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = victim_kernel("k_acc"),
		.gridDimX = 4,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 256,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = args,
	};
	CUgraphNode node;

	CK(cuGraphAddKernelNode(&node, g, after ? &after : NULL, after != NULL, &p));
	return node;
}

int launch_only(const char *name, CUgraphExec e)
{
	int r = cuGraphLaunch(e, S);

	printf("launch %s %d\n", name, r);
	return r;
}

int replay(const char *name, CUgraphExec e)
{
	int r = cuGraphLaunch(e, S);
	int done = cuStreamSynchronize(S);

	if (r == CUDA_SUCCESS)
		r = done;
	printf("launch %s %d\n", name, r);
	return r;
}

void launch_captured(CUgraphExec e)
{
	CUresult r = cuGraphLaunch(e, S);

	if (r == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
		victim_skip("this driver does not capture graph launches");
	CK(r);
}

/* ---- start ---- */

void victim_thread_start(void)
{
	CK(cuCtxSetCurrent(victim_context));
	CK(cuStreamCreate(&S, CU_STREAM_NON_BLOCKING));
}

static void start(void)
{
	CK(cuInit(0));
	CK(cuDeviceGet(&victim_device, 0));
	CK(cuDevicePrimaryCtxRetain(&victim_context, victim_device));
	victim_thread_start();
	CK(cuModuleLoadData(&module, victim_image));
	/* It has no PTX: a newer device than those it was built for cannot load it. */
	if (cuModuleLoadData(&module_cond, victim_image_cond))
		module_cond = NULL;
	for (size_t i = 0; i < KERNEL_COUNT; i++) {
		CUmodule m = strcmp(kernels[i].name, "k_cond") ? module : module_cond;

		if (m)
			CK(cuModuleGetFunction(&kernels[i].function, m, kernels[i].name));
	}
}

int main(int argc, char **argv)
{
	const struct victim_form *f = victim_forms;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (f->name && argc > 1 && strcmp(f->name, argv[1]))
		f++;
	if (argc > 2 || !f->name) {
		fprintf(stderr, "usage: %s [", argv[0]);
		for (f = victim_forms; f->name; f++)
			fprintf(stderr, "%s%s", f == victim_forms ? "" : "|", f->name);
		fprintf(stderr, "]\n");
		return 2;
	}
	start();
	f->run();
	return 0;
}
