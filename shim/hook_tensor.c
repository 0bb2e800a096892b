/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TMA descriptors: which address each one encodes is remembered, for the day it shows up among the
 * parameters of a kernel (tensormap.h).
 *
 * Any thread.
 */
#include "shim/record.h"
#include "shim/tensormap.h"

#define ENCODE(symbol, params, args)                                            \
	CUresult symbol params                                                  \
	{                                                                       \
		bool on = record_on(symbol);                                    \
		CUresult rc = REAL(symbol) args;                                \
                                                                                \
		if (on && rc == CUDA_SUCCESS)                                   \
			tensormap_remember(tensorMap, (uint64_t)globalAddress); \
		return rc;                                                      \
	}

_Static_assert(sizeof(CUtensorMap) == TENSORMAP_BYTES, "size of a descriptor");
_Static_assert(_Alignof(CUtensorMap) % TENSORMAP_ALIGN == 0, "alignment of a descriptor");

ENCODE(cuTensorMapEncodeTiled,
       (CUtensorMap * tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
	void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
	const cuuint32_t *boxDim, const cuuint32_t *elementStrides,
	CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
	CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill),
       (tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, boxDim,
	elementStrides, interleave, swizzle, l2Promotion, oobFill))
ENCODE(cuTensorMapEncodeIm2col,
       (CUtensorMap * tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
	void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
	const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
	cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides,
	CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
	CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill),
       (tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
	pixelBoxLowerCorner, pixelBoxUpperCorner, channelsPerPixel, pixelsPerColumn, elementStrides,
	interleave, swizzle, l2Promotion, oobFill))
ENCODE(cuTensorMapEncodeIm2colWide,
       (CUtensorMap * tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
	void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
	int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
	cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides,
	CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
	CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
	CUtensorMapFloatOOBfill oobFill),
       (tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
	pixelBoxLowerCornerWidth, pixelBoxUpperCornerWidth, channelsPerPixel, pixelsPerColumn,
	elementStrides, interleave, mode, swizzle, l2Promotion, oobFill))
ENCODE(cuTensorMapReplaceAddress, (CUtensorMap * tensorMap, void *globalAddress),
       (tensorMap, globalAddress))
