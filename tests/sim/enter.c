/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens around every call: the one lock, and what the call needs. Any thread.
 *
 * Invariant: a body runs under sim_lock and calls other bodies directly, never the exported gates.
 * The lock is recursive only for destructors of user objects, which may ask for an error's name,
 * and for a tool (tool.h), which may ask about what it is told.
 */
#include "tests/sim/sim.h"

#include <string.h>

pthread_mutex_t sim_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
bool sim_initialised;
CUresult sim_sticky;
_Thread_local struct thread_state tls;
static bool forked;	/* CUDA does not survive fork(): the child cannot initialise it again */

enum need {
	NOTHING,	/* works before cuInit() */
	INIT,		/* a query: works on a poisoned process */
	HEALTHY,	/* needs no context, but fails after a sticky error */
	CONTEXT,	/* needs a current context */
	UNSAFE		/* and may synchronise: forbidden while a global capture runs */
};

/* The longest prefix of the symbol decides. */
static const struct {
	const char *prefix;
	enum need need;
} needs[] = {
	{ "cu", CONTEXT },
	{ "cuCtxCreate", HEALTHY }, { "cuCtxDestroy", HEALTHY }, { "cuCtxDetach", HEALTHY },
	{ "cuCtxGetCurrent", INIT }, { "cuCtxSetCurrent", INIT }, { "cuCtxPopCurrent", INIT },
	{ "cuCtxPushCurrent", INIT }, { "cuDevice", INIT }, { "cuDevicePrimaryCtxRetain", HEALTHY },
	{ "cuDevicePrimaryCtxRe", HEALTHY }, { "cuDeviceGraphMemTrim", HEALTHY },
	{ "cuDriverGetVersion", NOTHING }, { "cuEventQuery", UNSAFE },
	{ "cuEventSynchronize", UNSAFE }, { "cuFuncGetName", INIT }, { "cuFuncGetParam", INIT },
	{ "cuGetError", NOTHING }, { "cuGetExportTable", NOTHING },
	{ "cuGetProcAddress", NOTHING }, { "cuGraph", HEALTHY }, { "cuInit", NOTHING },
	{ "cuKernelGetName", INIT }, { "cuKernelGetParam", INIT },
	{ "cuLibrary", HEALTHY }, { "cuMemAddress", HEALTHY },
	{ "cuMemAlloc", UNSAFE }, { "cuMemAllocAsync", CONTEXT },
	{ "cuMemAllocFromPoolAsync", CONTEXT }, { "cuMemCreate", HEALTHY },
	{ "cuMemExport", HEALTHY }, { "cuMemFree", UNSAFE }, { "cuMemFreeAsync", CONTEXT },
	{ "cuMemGetAccess", HEALTHY }, { "cuMemGetAllocation", INIT },
	{ "cuMemHostAlloc", UNSAFE }, { "cuMemHostRegister", UNSAFE },
	{ "cuMemHostUnregister", UNSAFE }, { "cuMemImport", HEALTHY },
	{ "cuMemMap", HEALTHY }, { "cuMemMapArrayAsync", CONTEXT }, { "cuMemPool", HEALTHY },
	{ "cuMemRelease", HEALTHY }, { "cuMemRetain", HEALTHY }, { "cuMemSetAccess", HEALTHY },
	{ "cuMemSetMemPool", HEALTHY }, { "cuMemUnmap", HEALTHY },
	{ "cuModuleGetLoadingMode", INIT }, { "cuMulticast", HEALTHY },
	{ "cuProfiler", NOTHING }, { "cuTensorMap", INIT },
	{ "cuThreadExchangeStreamCaptureMode", INIT },
};

static uint8_t need_of[SIM_ROWS];

static void child_after_fork(void)
{
	forked = sim_initialised;
	sim_initialised = false;
	sim_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

static void lock_for_fork(void)
{
	pthread_mutex_lock(&sim_lock);
}

static void parent_after_fork(void)
{
	pthread_mutex_unlock(&sim_lock);
}

static __attribute__((constructor)) void enter_start(void)
{
	size_t length, longest;

	for (int r = 0; r < SIM_ROWS; r++) {
		longest = 0;
		for (size_t i = 0; i < ARRAY_SIZE(needs); i++) {
			length = strlen(needs[i].prefix);
			if (length <= longest ||
			    strncmp(sim_rows[r].symbol, needs[i].prefix, length))
				continue;
			longest = length;
			need_of[r] = needs[i].need;
		}
	}
	pthread_atfork(lock_for_fork, parent_after_fork, child_after_fork);
}

static CUresult check_need(enum need need)
{
	if (need == NOTHING)
		return CUDA_SUCCESS;
	if (!sim_initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (need == INIT)
		return CUDA_SUCCESS;
	/* CUDA calls from a host function: the documentation allows this answer. */
	if (tls.in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	if (sim_sticky)
		return sim_sticky;
	if (need >= CONTEXT && !context_current())
		return tls.contexts ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
	return need == UNSAFE ? capture_unsafe() : CUDA_SUCCESS;
}

bool sim_enter(enum sim_row row, CUresult *rc)
{
	*rc = fail_check(row);
	if (!*rc) {
		pthread_mutex_lock(&sim_lock);
		tls.per_thread = sim_rows[row].per_thread;
		*rc = check_need(need_of[row]);
		if (!*rc) {
			tool_tell_call(SIM_TOOL_ENTER, row, *rc);
			return true;
		}
		pthread_mutex_unlock(&sim_lock);
	}
	trace_call(row, *rc);
	return false;
}

CUresult sim_leave(enum sim_row row, CUresult rc)
{
	/* A call that found the fault reports it. */
	if (sim_sticky && need_of[row] >= HEALTHY)
		rc = sim_sticky;
	tool_tell_call(SIM_TOOL_EXIT, row, rc);
	pthread_mutex_unlock(&sim_lock);
	trace_call(row, rc);
	return rc;
}

CUresult do_cuInit(unsigned int flags)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	sim_initialised = true;
	return CUDA_SUCCESS;
}
