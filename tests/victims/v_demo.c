/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The story of the demonstration: a small serving engine captures its decode step in a graph,
 * reloads its weights - which moves a tensor - and serves on. It says what it does in words;
 * tests/e2e/test_demo.py runs it without and with the library.
 */
#include "victim.h"

static __attribute__((noinline)) CUdeviceptr load_weights(int value)
{
	CUdeviceptr w;

	CK(cuMemAlloc(&w, 64 * MIB));
	poke(w, value);
	printf("engine: weights of value %d are at 0x%llx\n", value, (unsigned long long)w);
	return w;
}

static bool serve(CUgraphExec decode, CUdeviceptr logits, int expected)
{
	CUresult r;
	int got;

	poke(logits, 0);
	r = cuGraphLaunch(decode, S);
	if (r != CUDA_SUCCESS) {
		const char *name = "?";

		cuGetErrorName(r, &name);
		printf("engine: the driver call for this token returned %d (%s); no token is served\n",
		       (int)r, name);
		return false;
	}
	r = cuStreamSynchronize(S);
	if (r != CUDA_SUCCESS) {
		printf("engine: the GPU faulted with error %d, this process is lost\n", (int)r);
		return false;
	}
	got = peek(logits);
	printf("engine: served a token, logit %d%s\n", got,
	       got == expected ? "" : " - WRONG, and nothing said so");
	return got == expected;
}

static void reload(void)
{
	CUdeviceptr logits, w, kv_cache;
	CUgraphExec decode;

	CK(cuMemAlloc(&logits, 4 * MIB));
	w = load_weights(1);
	CAPTURE_EXEC(decode, run_acc(logits, w));
	printf("engine: the decode step is captured in a graph\n");
	MUST(serve(decode, logits, 1));

	printf("engine: reload: the new weights get memory of their own, the old memory is freed\n");
	dev_free(w);
	CK(cuMemAlloc(&kv_cache, 64 * MIB));
	poke(kv_cache, 42);
	printf("engine: the cache grows into 0x%llx\n", (unsigned long long)kv_cache);
	w = load_weights(2);
	if (!serve(decode, logits, 2))
		exit(3);
}

VICTIM({ "reload", reload });
