/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry points for PyTorch's pluggable allocator, looked up and called as PyTorch does.
 *
 *	pluggable SCENE
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "arena/arena.h"

#define CHECK(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(EXIT_FAILURE);                                             \
		}                                                                       \
	} while (0)

#define SIZE (2 << 20)

static void *(*torch_malloc)(ssize_t size, int device, void *stream);
static void (*torch_free)(void *p, ssize_t size, int device, void *stream);

static CUcontext primary(void)
{
	CUcontext context;

	CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	return context;
}

static size_t bytes_at(void *p)
{
	CUdeviceptr base;
	size_t size = 0;

	return cuMemGetAddressRange(&base, &size, (CUdeviceptr)p) == CUDA_SUCCESS ? size : 0;
}

/* Memory of the driver: usable, and gone when it is freed. No context is current. */
static void scene_plain(void)
{
	CUcontext now = NULL;
	void *p = torch_malloc(SIZE, 0, NULL);

	CHECK(p && cuCtxGetCurrent(&now) == CUDA_SUCCESS && !now);
	CHECK(cuCtxSetCurrent(primary()) == CUDA_SUCCESS);
	CHECK(cuMemsetD8((CUdeviceptr)p, 1, SIZE) == CUDA_SUCCESS && bytes_at(p) == SIZE);
	torch_free(p, SIZE, 0, NULL);
	CHECK(bytes_at(p) == 0);
	torch_free(NULL, 0, 0, NULL);
	CHECK(!torch_malloc(0, 0, NULL));
	CHECK(!torch_malloc(SIZE, 77, NULL)); /* there is no such device */
	CHECK(!torch_malloc(1l << 60, 0, NULL));
}

/* A model that is built again under its tag lies where it lay. */
static void scene_tagged(void)
{
	struct arena *layer;
	void *first[2], *again[2];

	CHECK(cuCtxSetCurrent(primary()) == CUDA_SUCCESS);
	CHECK(arena_open("model", &layer) == 0 && arena_enter(layer) == 0);
	for (int pass = 0; pass < 2; pass++) {
		void **p = pass ? again : first;

		CHECK(arena_tag_push("weights", ARENA_SCRATCH) == 0);
		p[0] = torch_malloc(SIZE, 0, NULL);
		p[1] = torch_malloc(SIZE / 2, 0, NULL);
		CHECK(arena_tag_pop() == 0);
		CHECK(p[0] && p[1] && (uintptr_t)p[0] % 512 == 0 && (uintptr_t)p[1] % 512 == 0);
		torch_free(p[0], SIZE, 0, NULL);
		torch_free(p[1], SIZE / 2, 0, NULL);
	}
	CHECK(first[0] == again[0] && first[1] == again[1]);
	CHECK(arena_leave() == 0);
	CHECK(cuMemsetD8((CUdeviceptr)first[0], 1, SIZE) == CUDA_SUCCESS); /* it is still there */
}

/* A MemPool carves blocks out of a slot. Two models in turn have one block each, at one place: the
 * graph of the first one serves the second. */
static void scene_pool(void)
{
	void (*report)(void *p, int64_t bytes, uint64_t allocated, uint64_t reserved,
		       uint16_t cuda);
	struct arena *layer;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;
	void *p;

	report = (void (*)(void *, int64_t, uint64_t, uint64_t, uint16_t))dlsym(
		RTLD_DEFAULT, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
	CHECK(report && cuCtxSetCurrent(primary()) == CUDA_SUCCESS);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	CHECK(arena_open("model", &layer) == 0 && arena_enter(layer) == 0);
	for (int pass = 0; pass < 2; pass++) {
		CHECK(arena_tag_push("weights", ARENA_SCRATCH) == 0);
		p = torch_malloc(SIZE, 0, NULL);
		CHECK(arena_tag_pop() == 0);
		report(p, 4096, 0, 0, 1);
		if (pass == 0) {
			CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == 0);
			CHECK(cuMemsetD8Async((CUdeviceptr)p, 1, 4096, stream) == 0);
			CHECK(cuStreamEndCapture(stream, &graph) == 0);
			CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0) == 0);
		}
		CHECK(cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
		CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
		report(p, -4096, 0, 0, 1);
		torch_free(p, SIZE, 0, NULL);
	}
	CHECK(arena_leave() == 0);
}

/* While a stream captures in the global mode, in which the driver allocates nothing. */
static void scene_captures(void)
{
	CUstream stream;
	CUgraph graph;
	void *p;

	CHECK(cuCtxSetCurrent(primary()) == CUDA_SUCCESS);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
	p = torch_malloc(SIZE, 0, stream);
	CHECK(p);
	torch_free(p, SIZE, 0, stream);
	CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
	const char *scene = argc > 1 ? argv[1] : "";

	torch_malloc = (void *(*)(ssize_t, int, void *))dlsym(RTLD_DEFAULT, "arena_torch_malloc");
	torch_free =
		(void (*)(void *, ssize_t, int, void *))dlsym(RTLD_DEFAULT, "arena_torch_free");
	CHECK(torch_malloc && torch_free && cuInit(0) == CUDA_SUCCESS);
	if (strcmp(scene, "plain") == 0)
		scene_plain();
	else if (strcmp(scene, "pool") == 0)
		scene_pool();
	else if (strcmp(scene, "tagged") == 0)
		scene_tagged();
	else if (strcmp(scene, "captures") == 0)
		scene_captures();
	else
		return 2;
	return EXIT_SUCCESS;
}
