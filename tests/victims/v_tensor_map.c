/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TMA descriptor holds the address of its tensor in a packed form: no word of the parameter
 * looks like it. By value it is seen; behind a pointer it is a blind spot, never a false finding.
 */
#include "victim.h"

static CUdeviceptr out, w;

static void encode(CUtensorMap *map, CUdeviceptr at)
{
	cuuint64_t size[1] = { N_INTS };
	cuuint64_t stride[1] = { 0 };
	cuuint32_t box[1] = { 64 }, step[1] = { 1 };

	CK(cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_INT32, 1, (void *)at, size, stride,
				  box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
				  CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
				  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

static void run_tma(const CUtensorMap *map)
{
	CK(cuLaunchKernel(victim_kernel("k_tma"), 1, 1, 1, 1, 1, 1, 0, S,
			  (void *[]){ &out, (void *)map }, NULL));
}

static void start(CUtensorMap *map)
{
	int major = 0;

	CK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
				victim_device));
	if (major < 9)
		victim_skip("this device has no TMA");
	out = dev_alloc("out", BIG);
	w = dev_alloc("w", BIG);
	poke(out, 0);
	poke(w, 5);
	encode(map, w);
}

static void by_value(void)
{
	CUtensorMap map;
	CUgraphExec e;

	start(&map);
	CAPTURE_EXEC(e, run_tma(&map));
	replay("E", e);
	MUST(peek(out) == 5);
	dev_free(w);
	victim_only_harmless(false);
	replay("E", e);
}

/* The address inside a descriptor is exchanged before the capture. */
static void readdressed(void)
{
	CUdeviceptr w2;
	CUtensorMap map;
	CUgraphExec e;

	start(&map);
	w2 = dev_alloc("w2", BIG);
	poke(w2, 6);
	CK(cuTensorMapReplaceAddress(&map, (void *)w2));
	CAPTURE_EXEC(e, run_tma(&map));
	dev_free(w);
	replay("E", e);
	MUST(peek(out) == 6);
	dev_free(w2);
	victim_only_harmless(false);
	replay("E", e);
}

/* Many others are encoded between the capture and instantiate, as eager work does. */
static void among_many(void)
{
	CUtensorMap map, other;
	CUdeviceptr many;
	CUgraphExec e;
	CUgraph g;

	start(&map);
	many = dev_alloc("many", 16 * BIG);
	CAPTURE(g, run_tma(&map));
	for (size_t i = 0; i < 8 * BIG / 1024; i++)
		encode(&other, many + i * 1024);
	e = instantiate(g);
	replay("E", e);
	MUST(peek(out) == 5);
	dev_free(w);
	victim_only_harmless(false);
	replay("E", e);
}

VICTIM({ "by-value", by_value }, { "readdressed", readdressed }, { "among-many", among_many });
