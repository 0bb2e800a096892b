/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches. A graph is judged before the driver sees it; a kernel goes straight through unless
 * something captures (then the node that it became is read) or memory waits for its first write.
 *
 * Any thread. The short path of a kernel launch is two loads and a tail jump: neither word is set
 * before the shim is on, so it need not be asked.
 */
#include "shim/coverage.h"
#include "shim/cupti.h"
#include "shim/hook_capture.h"
#include "shim/record.h"
#include "shim/walk.h"

/* ---- kernels ---- */

static inline bool launch_is_plain(void)
{
	/* Relaxed: a thread that was not told of a capture does not take part in it. */
	return __builtin_expect(
		(load_relaxed(&captures_active) | load_relaxed(&ledger_undefined_count)) == 0, 1);
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

/* Both ways out are tail jumps, so that the short one needs no frame. */
#define LAUNCH(symbol, after, params, args)                                        \
	static __attribute__((cold, noinline)) CUresult symbol##_slow params       \
	{                                                                          \
		CUresult rc = REAL(symbol) args;                                   \
                                                                                   \
		if (rc == CUDA_SUCCESS)                                            \
			after;                                                     \
		return rc;                                                         \
	}                                                                          \
	CUresult symbol params                                                     \
	{                                                                          \
		HOOK_ENTER(symbol);                                                \
		return launch_is_plain() ? REAL(symbol) args : symbol##_slow args; \
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
	if (rc != CUDA_SUCCESS || launch_is_plain())
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

#define GRAPH_LAUNCH(symbol, stream)                                            \
	CUresult symbol(CUgraphExec hGraphExec, CUstream hStream)               \
	{                                                                       \
		CUresult rc;                                                    \
                                                                                \
		if (!record_on(symbol))                                         \
			return REAL(symbol)(hGraphExec, hStream);               \
		if (__builtin_expect(load_relaxed(&captures_active) != 0, 0) && \
		    capture_active_on(stream)) {                                \
			rc = REAL(symbol)(hGraphExec, hStream);                 \
			if (rc == CUDA_SUCCESS) /* it became a child node */    \
				capture_note_launch(stream, hGraphExec);        \
			return rc;                                              \
		}                                                               \
		cupti_launching(hGraphExec);                                    \
		if (!guard_launch((uint64_t)hGraphExec, stream))                \
			return CUDA_ERROR_ILLEGAL_STATE;                        \
		rc = REAL(symbol)(hGraphExec, hStream);                         \
		if (!guard_launched() && rc == CUDA_SUCCESS)                    \
			launched_unknown(hGraphExec);                           \
		return rc;                                                      \
	}

GRAPH_LAUNCH(cuGraphLaunch, STREAM_LEGACY(hStream))
GRAPH_LAUNCH(cuGraphLaunch_ptsz, STREAM_PER_THREAD(hStream))
