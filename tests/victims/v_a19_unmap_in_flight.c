/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A19, vllm-project/vllm#43020: sleep unmaps the weights from the host while a decode graph still
 * runs. The fix drains the stream first.
 */
#include "victim.h"

#define LONG_RUN 100000000LL /* cycles: about 50 ms on an H200 */

static CUdeviceptr r;
static CUmemGenericAllocationHandle h;

static CUgraphExec start(void)
{
	CUgraphExec e;

	r = vmm_reserve("R", BIG, 0);
	h = vmm_create(BIG, false);
	vmm_map(r, h, BIG);
	CAPTURE_EXEC(e, run_spin(r, LONG_RUN));
	return e;
}

/* What becomes of the running kernel is up to the driver: results are not looked at. */
static void racing(void)
{
	CUgraphExec e = start();

	launch_only("E", e);
	cuMemUnmap(r, BIG);
}

static void drained(void)
{
	CUgraphExec e = start();

	launch_only("E", e);
	settle();
	vmm_unmap(r, BIG);
}

/* A drain that the host sees through an event counts as well. */
static void waited(void)
{
	CUgraphExec e = start();
	CUevent done;

	CK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	launch_only("E", e);
	CK(cuEventRecord(done, S));
	CK(cuEventSynchronize(done));
	vmm_unmap(r, BIG);
}

/* Launched while nothing is mapped, and again once it is. */
static void asleep(void)
{
	CUgraphExec e = start();

	replay("E", e);
	vmm_unmap(r, BIG);
	victim_only_harmless(false);
	replay("E", e);
	vmm_map(r, h, BIG);
	poke(r, 0);
	replay("E", e);
}

VICTIM({ "racing", racing }, { "drained", drained }, { "waited", waited }, { "asleep", asleep });
