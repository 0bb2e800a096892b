/* SPDX-License-Identifier: Apache-2.0 */
/* The ways in which an address reaches a kernel: inside a struct, in a packed buffer, off base. */
#include "victim.h"

static CUdeviceptr out, w;

struct by_value {
	CUdeviceptr out;
	long long tag;
	CUdeviceptr src;
	size_t n;
};

static void start(void)
{
	out = dev_alloc("out", BIG);
	w = dev_alloc("w", BIG);
	poke(out, 0);
	poke(w, 1);
}

/* The launch works, the memory goes, the launch is refused. */
static void finish(CUgraphExec e)
{
	replay("E", e);
	MUST(peek(out) == 1);
	dev_free(w);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 1);
}

static void in_struct(void)
{
	CUgraphExec e;

	start();
	struct by_value a = { out, 42, w, N_INTS };

	CAPTURE_EXEC(e, launch("k_struct", (void *[]){ &a }));
	finish(e);
}

static void packed(void)
{
	struct {
		CUdeviceptr d, s;
		size_t n;
	} args;
	size_t bytes = sizeof(args);
	void *extra[] = {
		CU_LAUNCH_PARAM_BUFFER_POINTER,
		&args,
		CU_LAUNCH_PARAM_BUFFER_SIZE,
		&bytes,
		CU_LAUNCH_PARAM_END,
	};
	CUgraphExec e;

	start();
	args.d = out;
	args.s = w;
	args.n = N_INTS;
	CAPTURE_EXEC(e, CK(cuLaunchKernel(victim_kernel("k_acc"), 4, 1, 1, 256, 1, 1, 0, S, NULL,
					  extra)));
	finish(e);
}

static void extended(void)
{
	size_t n = N_INTS;
	CUgraphExec e;

	start();
	CUlaunchConfig config = {
		.gridDimX = 4,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 256,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = S,
	};

	CAPTURE_EXEC(e, CK(cuLaunchKernelEx(&config, victim_kernel("k_acc"),
					    (void *[]){ &out, &w, &n }, NULL)));
	finish(e);
}

static void interior(void)
{
	CUgraphExec e;

	start();
	CK(cuMemcpyDtoD(w + BIG - 4096, w, 4096));
	/* It returns before the device is done, and the replay is in a stream of its own. */
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
	CAPTURE_EXEC(e, run_acc(out, w + BIG - 4096));
	finish(e);
}

/* A view of elements of one or two bytes need not begin at a word. The kernel's own elements are
 * ints, so that it is not run. */
static void odd(void)
{
	CUgraphExec e1, e2, e3;
	CUgraph g1, g2, g3;

	start();
	struct by_value a = { out, 42, w + 2, N_INTS };

	CAPTURE(g1, run_acc(out, w + 1));
	CAPTURE(g2, run_acc(out, w + 2));
	CAPTURE(g3, launch("k_struct", (void *[]){ &a }));
	e1 = instantiate(g1);
	e2 = instantiate(g2);
	e3 = instantiate(g3);
	dev_free(w);
	victim_only_harmless(false);
	replay("E1", e1);
	replay("E2", e2);
	replay("E3", e3);
}

VICTIM({ "struct", in_struct }, { "packed", packed }, { "extended", extended },
       { "interior", interior }, { "odd", odd });
