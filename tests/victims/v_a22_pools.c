/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A22, openucx/ucx#7204, Project-HAMi/HAMi-core#12 and others: memory from pools and in stream
 * order must be known, and a pointer that is not known must reach the driver.
 */
#include "victim.h"

static CUdeviceptr from_pool(const char *name, CUmemoryPool pool)
{
	CUdeviceptr p;

	CK(cuMemAllocFromPoolAsync(&p, BIG, pool, S));
	name_range(name, p, BIG);
	return p;
}

static void pools(void)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = victim_device },
	};
	CUdeviceptr out = dev_alloc("out", BIG), p, q, r;
	CUmemoryPool pool;
	CUgraphExec e;

	CK(cuMemPoolCreate(&pool, &props));
	p = async_alloc("p", BIG);
	q = from_pool("q", pool);
	r = from_pool("r", pool);
	poke(out, 0);
	poke(p, 1);
	poke(q, 2);
	poke(r, 4);
	CAPTURE_EXEC(e, run_acc(out, p); run_acc(out, q); run_acc(out, r));
	replay("E", e);
	MUST(peek(out) == 7);
	async_free(q);
	settle();
	victim_only_harmless(false);
	replay("E", e);
	CK(cuMemPoolTrimTo(pool, 0));
	MUST(peek(out) == 7);
}

/* Pointers that the library never saw: the driver's answer, and nothing else. */
static void unknown(void)
{
	tell("free", cuMemFree(0x7000000000));
	tell("free-async", cuMemFreeAsync(0x7000000000, S) != CUDA_SUCCESS);
	settle();
}

VICTIM({ "pools", pools }, { "unknown", unknown });
