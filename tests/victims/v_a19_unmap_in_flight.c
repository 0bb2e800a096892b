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

/* The drain went through a second stream, and the first one is busy with something else again. */
static void relayed(void)
{
	CUdeviceptr other = dev_alloc("other", BIG);
	CUgraphExec e = start(), busy;
	CUstream second;
	CUevent done;

	CAPTURE_EXEC(busy, run_spin(other, 10 * LONG_RUN));
	CK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	CK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	launch_only("E", e);
	CK(cuEventRecord(done, S));
	launch_only("BUSY", busy);
	CK(cuStreamWaitEvent(second, done, 0));
	CK(cuStreamSynchronize(second));
	vmm_unmap(r, BIG);
}

/* An event of a stream that has nothing to do with it. */
static void bystander(void)
{
	CUgraphExec e = start();
	CUstream second;
	CUevent done;

	CK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	CK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	launch_only("E", e);
	CK(cuEventRecord(done, second));
	CK(cuEventSynchronize(done));
	cuMemUnmap(r, BIG);
}

VICTIM({ "racing", racing }, { "drained", drained }, { "waited", waited }, { "asleep", asleep },
       { "relayed", relayed }, { "bystander", bystander });
