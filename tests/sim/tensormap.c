/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TMA descriptors: 128 opaque bytes that hold the address packed, not plain (on a GPU as well, so a
 * scan for addresses does not find it). Under sim_lock.
 */
#include "tests/sim/sim.h"

#include <string.h>

#define PACK_ROTATE	13
#define PACK_MASK	0x5a17c0de5a17c0deull

static void pack(CUtensorMap *map, uint64_t addr)
{
	map->opaque[1] = (addr << PACK_ROTATE | addr >> (64 - PACK_ROTATE)) ^ PACK_MASK;
}

uint64_t tensormap_address(const void *map)
{
	uint64_t v = ((const CUtensorMap *)map)->opaque[1] ^ PACK_MASK;

	return v >> PACK_ROTATE | v << (64 - PACK_ROTATE);
}

static CUresult encode(CUtensorMap *map, unsigned type, cuuint32_t rank, void *addr,
		       const cuuint64_t *dims)
{
	/* "must be aligned to 64 bytes"; "globalAddress must be aligned to 16 bytes" */
	if (!map || (uintptr_t)map % 64 || (uintptr_t)addr % 16 || !rank || rank > 5 || !dims)
		return CUDA_ERROR_INVALID_VALUE;
	memset(map, 0, sizeof(*map));
	pack(map, (uintptr_t)addr);
	map->opaque[0] = type << 8 | rank;
	for (cuuint32_t i = 0; i < rank; i++)
		map->opaque[2 + i] = dims[i] - 1;
	return CUDA_SUCCESS;
}

CUresult do_cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
				   void *addr, const cuuint64_t *dims, const cuuint64_t *strides,
				   const cuuint32_t *box, const cuuint32_t *element_strides,
				   CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
				   CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill oob)
{
	return encode(map, type, rank, addr, dims);
}

CUresult do_cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
				    void *addr, const cuuint64_t *dims, const cuuint64_t *strides,
				    const int *lower, const int *upper, cuuint32_t channels,
				    cuuint32_t pixels, const cuuint32_t *element_strides,
				    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
				    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill oob)
{
	return encode(map, type, rank, addr, dims);
}

CUresult do_cuTensorMapEncodeIm2colWide(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
					void *addr, const cuuint64_t *dims,
					const cuuint64_t *strides, int lower, int upper,
					cuuint32_t channels, cuuint32_t pixels,
					const cuuint32_t *element_strides,
					CUtensorMapInterleave interleave,
					CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
					CUtensorMapL2promotion promotion,
					CUtensorMapFloatOOBfill oob)
{
	return encode(map, type, rank, addr, dims);
}

CUresult do_cuTensorMapReplaceAddress(CUtensorMap *map, void *addr)
{
	if (!map || (uintptr_t)addr % 16)
		return CUDA_ERROR_INVALID_VALUE;
	pack(map, (uintptr_t)addr);
	return CUDA_SUCCESS;
}
