/* SPDX-License-Identifier: Apache-2.0 */
/* A context takes its memory and its graphs with it: nobody is left who could be harmed. */
#include <sys/mman.h>

#include "image.h"
#include "victim.h"

static void destroyed(void)
{
	CUdeviceptr out = dev_alloc("out", BIG), w = dev_alloc("w", BIG), theirs_out, theirs;
	CUctxCreateParams params = { 0 };
	CUgraphExec e, theirs_e;
	CUstream stream = S;
	CUcontext other;
	CUmodule module;
	CUfunction acc;
	size_t n = N_INTS;
	CUgraph g;

	poke(out, 0);
	poke(w, 1);
	CAPTURE_EXEC(e, run_acc(out, w));
	CK(cuCtxCreate(&other, &params, 0, victim_device));
	CK(cuStreamCreate(&S, CU_STREAM_NON_BLOCKING));
	module = victim_module();
	CK(cuModuleGetFunction(&acc, module, "k_acc"));
	theirs_out = dev_alloc("theirs-out", BIG);
	theirs = dev_alloc("theirs", BIG);
	CAPTURE(g, CK(cuLaunchKernel(acc, 4, 1, 1, 256, 1, 1, 0, S,
				     (void *[]){ &theirs_out, &theirs, &n }, NULL)));
	theirs_e = instantiate(g);
	replay("other", theirs_e);
	CK(cuCtxDestroy(other));
	S = stream;
	CK(cuCtxSetCurrent(victim_context));
	replay("E", e);
	MUST(peek(out) == 1);
}

struct by_value {
	CUdeviceptr out;
	long long tag;
	CUdeviceptr src;
	size_t n;
};

/* One pointer, with nothing behind it. */
static void **last_of_page(void *value)
{
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void **last = (void **)(pages + 4096) - 1;

	MUST(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
	*last = value;
	return last;
}

/* A function with the handle of one that died with its context takes fewer parameters. */
static void handles(void)
{
	CUctxCreateParams params = { 0 };
	CUdeviceptr w, their_out;
	size_t n = N_INTS;
	CUfunction old, now;
	CUcontext other;
	CUgraphExec e;
	CUgraph g;

	CK(cuCtxCreate(&other, &params, 0, victim_device));
	CK(cuStreamCreate(&S, CU_STREAM_NON_BLOCKING));
	their_out = dev_alloc("their-out", BIG);
	CK(cuModuleGetFunction(&old, victim_module(), "k_acc"));
	CAPTURE(g, CK(cuLaunchKernel(old, 4, 1, 1, 256, 1, 1, 0, S,
				     (void *[]){ &their_out, &their_out, &n }, NULL)));
	CK(cuCtxDestroy(other));
	CK(cuCtxCreate(&other, &params, 0, victim_device));
	CK(cuStreamCreate(&S, CU_STREAM_NON_BLOCKING));
	CK(cuModuleGetFunction(&now, victim_module(), "k_struct"));
	if (now != old)
		victim_skip("the driver gave another handle");
	their_out = dev_alloc("their-out-2", BIG);
	w = dev_alloc("w", BIG);
	poke(their_out, 0);
	poke(w, 1);
	struct by_value v = { their_out, 42, w, N_INTS };

	CAPTURE_EXEC(e, CK(cuLaunchKernel(now, 4, 1, 1, 256, 1, 1, 0, S, last_of_page(&v), NULL)));
	replay("E", e);
	MUST(peek(their_out) == 1);
	dev_free(w);
	victim_only_harmless(false);
	replay("E", e);
}

VICTIM({ "destroyed", destroyed }, { "handles", handles });
