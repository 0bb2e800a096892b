/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches. A graph is judged before the driver sees it; a kernel goes straight through unless
 * something captures (then the node that it became is read) or memory waits for its first write.
 *
 * Any thread. The short path of a kernel launch is four loads and a tail jump: neither word is set
 * before the shim is on, so it need not be asked.
 */
#include "shim/coverage.h"
#include "shim/cupti.h"
#include "shim/hook_capture.h"
#include "shim/record.h"
#include "shim/walk.h"

/* ---- kernels ---- */

/* Not 0: somebody looks at launches. A thread that was not told of a capture does not take part in
 * it: the order is of no matter. */
static inline uint32_t launches_watched(void)
{
	return load_folded(&captures_active) | load_folded(&ledger_undefined_count);
}

static inline bool captured(uint64_t stream)
{
	return load_relaxed(&captures_active) != 0 && capture_note(stream);
}

/* The driver took the launch: what it was given is good to read. */
static void launched(uint64_t stream, CUfunction f, void *const *kernel_params, void *const *extra)
{
	if (!shim_ready() || shim_inside)
		return;
	if (!captured(stream) && load_relaxed(&ledger_undefined_count) != 0)
		walk_written(f, kernel_params, extra);
}

/* One way out, a tail jump that is chosen without a branch: no frame, and parameters that are on
 * the stack stay there. */
#define LAUNCH(symbol, after, params, args)                                        \
	static __attribute__((cold, noinline)) CUresult symbol##_slow params       \
	{                                                                          \
		CUresult rc;                                                       \
                                                                                   \
		HOOK_ENTER(symbol);                                                \
		rc = REAL(symbol) args;                                            \
		if (rc == CUDA_SUCCESS && launches_watched() != 0)                 \
			after;                                                     \
		return rc;                                                         \
	}                                                                          \
	QUICK_CODE CUresult symbol params                                          \
	{                                                                          \
		CUresult(*way) params = load_folded(&real.symbol);                 \
                                                                                   \
		if ((launches_watched() | !load_folded(&real.seen_##symbol)) != 0) \
			way = symbol##_slow;                                       \
		return way args;                                                   \
	}

#define LAUNCH_SHAPE                                                                       \
	CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, \
		unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,    \
		unsigned int sharedMemBytes, CUstream hStream, void **kernelParams
#define LAUNCH_SHAPE_ARGS                                                                          \
	f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, \
		kernelParams

LAUNCH(cuLaunchKernel, launched(STREAM_LEGACY(hStream), f, kernelParams, extra),
       (LAUNCH_SHAPE, void **extra), (LAUNCH_SHAPE_ARGS, extra))
LAUNCH(cuLaunchKernel_ptsz, launched(STREAM_PER_THREAD(hStream), f, kernelParams, extra),
       (LAUNCH_SHAPE, void **extra), (LAUNCH_SHAPE_ARGS, extra))
LAUNCH(cuLaunchCooperativeKernel, launched(STREAM_LEGACY(hStream), f, kernelParams, NULL),
       (LAUNCH_SHAPE), (LAUNCH_SHAPE_ARGS))
LAUNCH(cuLaunchCooperativeKernel_ptsz, launched(STREAM_PER_THREAD(hStream), f, kernelParams, NULL),
       (LAUNCH_SHAPE), (LAUNCH_SHAPE_ARGS))

/* Nodes that other kernels rewrite on the device, without a call on the host. */
static void count_device_updatable(const CUlaunchConfig *config)
{
	for (unsigned i = 0; config->attrs && i < config->numAttrs; i++) {
		const CUlaunchAttribute *a = &config->attrs[i];

		if (a->id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE &&
		    a->value.deviceUpdatableKernelNode.deviceUpdatable)
			coverage_count(DEVICE_LAUNCH);
	}
}

static void launched_ex(uint64_t stream, const CUlaunchConfig *config, CUfunction f,
			void *const *kernel_params, void *const *extra)
{
	count_device_updatable(config);
	launched(stream, f, kernel_params, extra);
}

LAUNCH(cuLaunchKernelEx,
       launched_ex(STREAM_LEGACY(config->hStream), config, f, kernelParams, extra),
       (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
       (config, f, kernelParams, extra))
LAUNCH(cuLaunchKernelEx_ptsz,
       launched_ex(STREAM_PER_THREAD(config->hStream), config, f, kernelParams, extra),
       (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
       (config, f, kernelParams, extra))

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList,
					      unsigned int numDevices, unsigned int flags)
{
	CUresult rc;

	HOOK_ENTER(cuLaunchCooperativeKernelMultiDevice);
	rc = REAL(cuLaunchCooperativeKernelMultiDevice)(launchParamsList, numDevices, flags);
	if (rc != CUDA_SUCCESS || launches_watched() == 0)
		return rc;
	for (unsigned i = 0; i < numDevices; i++) {
		const CUDA_LAUNCH_PARAMS *p = &launchParamsList[i];

		launched(STREAM_LEGACY(p->hStream), p->function, p->kernelParams, NULL);
	}
	return rc;
}

/* Its parameters were set by calls that nobody watches; cuLaunch and cuLaunchGrid go to the legacy
 * stream, which cannot capture. */
CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
	bool on = record_on(cuLaunchGridAsync);
	CUresult rc = REAL(cuLaunchGridAsync)(f, grid_width, grid_height, hStream);

	if (on && rc == CUDA_SUCCESS && captured(STREAM_LEGACY(hStream)))
		coverage_count(LEGACY_LAUNCH);
	return rc;
}

/* ---- graphs ---- */

/* What it holds is not known. */
static __attribute__((cold, noinline)) void launched_unknown(CUgraphExec exec)
{
	if (exec_find((uint64_t)exec) == NULL)
		coverage_count(UNKNOWN_EXEC);
}

static CUresult launch_graph(CUgraphExec exec, CUstream stream, uint64_t id,
			     CUresult (*launch)(CUgraphExec, CUstream))
{
	CUresult rc;

	if (!shim_ready() || shim_inside)
		return launch(exec, stream);
	if (__builtin_expect(load_relaxed(&captures_active) != 0, 0) && capture_active_on(id)) {
		rc = launch(exec, stream);
		if (rc == CUDA_SUCCESS) /* it became a child node */
			capture_note_launch(id, exec);
		return rc;
	}
	cupti_launching(exec);
	if (!guard_launch((uint64_t)exec, id))
		return CUDA_ERROR_ILLEGAL_STATE;
	rc = launch(exec, stream);
	if (!guard_launched() && rc == CUDA_SUCCESS)
		launched_unknown(exec);
	return rc;
}

/* The mirror of what this thread launches once more, while nobody looks; NULL: another launch. */
static inline struct exec *launch_again(CUgraphExec exec, uint64_t id)
{
	if (SELDOM(load_acquire(&shim_state) != SHIM_ON) || SELDOM(shim_inside != 0) ||
	    SELDOM((load_relaxed(&captures_active) | load_relaxed(&witness_on)) != 0))
		return NULL;
	return guard_launch_quick((uint64_t)exec, id);
}

#define GRAPH_LAUNCH(symbol, id)                                             \
	static __attribute__((noinline))                                     \
	CUresult symbol##_other(CUgraphExec hGraphExec, CUstream hStream)    \
	{                                                                    \
		HOOK_ENTER(symbol);                                          \
		return launch_graph(hGraphExec, hStream, id, REAL(symbol));  \
	}                                                                    \
	QUICK_CODE CUresult symbol(CUgraphExec hGraphExec, CUstream hStream) \
	{                                                                    \
		struct launcher *self = launcher_self;                       \
		struct exec *e = NULL;                                       \
		CUresult rc;                                                 \
                                                                             \
		if (!SELDOM(!load_relaxed(&real.seen_##symbol)))             \
			e = launch_again(hGraphExec, id);                    \
		if (SELDOM(e == NULL))                                       \
			return symbol##_other(hGraphExec, hStream);          \
		rc = REAL(symbol)(hGraphExec, hStream);                      \
		guard_launched_quick(e, self);                               \
		return rc;                                                   \
	}

GRAPH_LAUNCH(cuGraphLaunch, STREAM_LEGACY(hStream))
GRAPH_LAUNCH(cuGraphLaunch_ptsz, STREAM_PER_THREAD(hStream))
