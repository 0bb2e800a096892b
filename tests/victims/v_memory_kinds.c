/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of memory that a kernel can read: freed, then launched. */
#include "victim.h"

#include <sys/mman.h>

static CUdeviceptr out;

/* Capture a reader of @w, replay it once; the caller frees @w and replays again. */
static CUgraphExec reader(CUdeviceptr w)
{
	CUgraphExec e;

	out = dev_alloc("out", BIG);
	poke(out, 0);
	CAPTURE_EXEC(e, run_acc(out, w));
	replay("E", e);
	return e;
}

static void finish(CUgraphExec e, int value)
{
	MUST(peek(out) == value);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == value);
}

static void managed(void)
{
	CUdeviceptr w;
	CUgraphExec e;

	CK(cuMemAllocManaged(&w, BIG, CU_MEM_ATTACH_GLOBAL));
	name_range("w", w, BIG);
	*(int *)w = 1;
	e = reader(w);
	dev_free(w);
	finish(e, 1);
}

static void pitched(void)
{
	CUdeviceptr w;
	CUgraphExec e;
	size_t pitch;

	CK(cuMemAllocPitch(&w, &pitch, 4096, 1024, 4));
	name_range("w", w, pitch * 1024);
	poke(w, 1);
	e = reader(w);
	dev_free(w);
	finish(e, 1);
}

static void pinned(void)
{
	int *h = host_alloc("w", BIG);
	CUdeviceptr w;
	CUgraphExec e;

	h[0] = 1;
	CK(cuMemHostGetDevicePointer(&w, h, 0));
	e = reader(w);
	host_free(h);
	finish(e, 1);
}

static void registered(void)
{
	int *h = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr w;
	CUgraphExec e;

	MUST(h != MAP_FAILED);
	name_range("w", (uintptr_t)h, BIG);
	h[0] = 1;
	CK(cuMemHostRegister(h, BIG, CU_MEMHOSTREGISTER_DEVICEMAP));
	CK(cuMemHostGetDevicePointer(&w, h, 0));
	e = reader(w);
	CK(cuMemHostUnregister(h));
	finish(e, 1);
}

static void reservation(void)
{
	CUdeviceptr w = vmm_reserve("w", BIG, 0);
	CUmemGenericAllocationHandle h = vmm_create(BIG, false);
	CUgraphExec e;

	vmm_map(w, h, BIG);
	poke(w, 1);
	e = reader(w);
	vmm_unmap(w, BIG);
	vmm_address_free(w, BIG);
	finish(e, 1);
}

/* The same addresses, reserved and mapped anew: other memory (unlike A31). */
static void reserved_again(void)
{
	CUdeviceptr w = vmm_reserve("w", BIG, 0), again;
	CUmemGenericAllocationHandle h = vmm_create(BIG, false);
	CUgraphExec e;

	vmm_map(w, h, BIG);
	poke(w, 1);
	e = reader(w);
	vmm_unmap(w, BIG);
	vmm_address_free(w, BIG);
	CK(cuMemAddressReserve(&again, BIG, 0, w, 0));
	if (again != w)
		victim_skip("the address could not be had again");
	vmm_map(again, h, BIG);
	poke(again, 2);
	replay("E", e);
}

VICTIM({ "managed", managed }, { "pitched", pitched }, { "pinned", pinned },
       { "registered", registered }, { "reservation", reservation },
       { "reserved-again", reserved_again });
