/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under the shim: PyTorch's allocator is a library that was opened without RTLD_GLOBAL, as Python
 * does it. Whatever it reports arrives where it would have arrived, and the shim hears of it or
 * says that it does not.
 *
 *	torch_names LIBC10_CUDA seen | unseen
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)4 << 20)

#define MUST(x) ((x) ? (void)0 : fail(#x, __LINE__))

static _Noreturn void fail(const char *what, int line)
{
	fprintf(stderr, "torch_names.c:%d: %s\n", line, what);
	exit(EXIT_FAILURE);
}

static CUdeviceptr memory;
static CUgraphExec exec;

/* A graph that fills the first block. */
static void capture(void)
{
	CUgraph graph;
	CUstream s;

	MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
	MUST(cuMemsetD8Async(memory + 512, 1, 64, s) == CUDA_SUCCESS);
	MUST(cuStreamEndCapture(s, &graph) == CUDA_SUCCESS);
	MUST(cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
	void *lib = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	void (*tell)(void *, int64_t);
	int64_t (*told)(void);
	CUcontext context;

	MUST(lib != NULL);
	tell = (void (*)(void *, int64_t))dlsym(lib, "c10_cuda_tell");
	told = (int64_t(*)(void))dlsym(lib, "c10_told");
	MUST(tell != NULL && told != NULL);
	/* Before CUDA is used: nobody listens, and it arrives. */
	tell(&memory, 7);
	MUST(told() == 7);
	MUST(cuInit(0) == CUDA_SUCCESS);
	MUST(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	MUST(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	MUST(cuMemAlloc(&memory, BYTES) == CUDA_SUCCESS);
	tell((void *)memory, 4096);
	capture();
	MUST(cuGraphLaunch(exec, NULL) == CUDA_SUCCESS);
	tell((void *)memory, -4096);
	MUST(told() == 7);
	/* The gate is strict. */
	MUST((cuGraphLaunch(exec, NULL) == CUDA_SUCCESS) == (strcmp(argv[2], "unseen") == 0));
	return EXIT_SUCCESS;
}
