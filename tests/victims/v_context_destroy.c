/* SPDX-License-Identifier: Apache-2.0 */
/* A context takes its memory and its graphs with it: nobody is left who could be harmed. */
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

VICTIM({ "destroyed", destroyed });
