/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: copies, fills and operations on words, for three reasons only. What they write has defined
 * content again. A copy in a reload may bring a value to where it does not last (born.h). And on a
 * stream that captures they are nodes, whose addresses mean what they mean now. While nothing
 * captures or reloads and nothing is undefined - nearly always - a call costs three loads.
 *
 * The wrappers differ in their types, and in where the destination is: WRITES_<base> says that,
 * the rest comes from hooks.def. Synchronous forms build no nodes (a stream that captures refuses
 * them) and prove nothing about other streams.
 *
 * Threads: any.
 */
#include <errno.h>

#include "arena/born.h"
#include "shim/hook_capture.h"
#include "shim/record.h"

#define NO_STREAM 0

static bool copies_watched(void)
{
	return __builtin_expect((load_relaxed(&captures_active) |
				 load_relaxed(&ledger_undefined_count) |
				 load_relaxed(&born_watched)) != 0,
				0);
}

/* Is the call a node? Then it has written nothing yet. */
static bool is_node(uint64_t stream)
{
	return stream != NO_STREAM && load_relaxed(&captures_active) != 0 && capture_note(stream);
}

static __attribute__((cold, noinline)) void wrote(uint64_t dst, uint64_t bytes, uint64_t stream)
{
	int saved = errno;

	if (!is_node(stream) && dst != 0)
		ledger_written_extent(dst, bytes);
	errno = saved;
}

/* A value came from elsewhere. */
static void brought(uint64_t dst, uint64_t bytes)
{
	ledger_written_extent(dst, bytes);
	born_written(dst, bytes, BORN_COPIED);
}

static __attribute__((cold, noinline)) void copied(uint64_t dst, uint64_t bytes, uint64_t stream)
{
	int saved = errno;

	if (!is_node(stream) && dst != 0)
		brought(dst, bytes);
	errno = saved;
}

static __attribute__((cold, noinline)) void
wrote_batch(const CUdeviceptr *dsts, const size_t *sizes, size_t count, uint64_t stream)
{
	int saved = errno;

	if (!is_node(stream))
		for (size_t i = 0; i < count; i++)
			brought(dsts[i], sizes[i]);
	errno = saved;
}

/* From the first byte to behind the last one; what lies between rows counts as well. */
static uint64_t extent(uint64_t rows, uint64_t pitch, uint64_t width)
{
	return rows > 1 ? (rows - 1) * pitch + width : width;
}

static uint64_t extent_of(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	uint64_t row = op->dst.op.ptr.rowLength ? op->dst.op.ptr.rowLength : op->extent.width;
	uint64_t rows = op->dst.op.ptr.layerHeight ? op->dst.op.ptr.layerHeight : op->extent.height;

	return extent(op->extent.depth, rows * row,
		      extent(op->extent.height, row, op->extent.width));
}

static __attribute__((cold, noinline)) void wrote_ops(const CUDA_MEMCPY3D_BATCH_OP *ops,
						      size_t count, uint64_t stream)
{
	int saved = errno;

	if (!is_node(stream))
		for (size_t i = 0; i < count; i++)
			if (ops[i].dst.type == CU_MEMCPY_OPERAND_TYPE_POINTER)
				brought(ops[i].dst.op.ptr.ptr, extent_of(&ops[i]));
	errno = saved;
}

static __attribute__((cold, noinline)) void wrote_words(const CUstreamBatchMemOpParams *ops,
							unsigned count, uint64_t stream)
{
	int saved = errno;

	if (!is_node(stream))
		for (unsigned i = 0; i < count; i++)
			if (ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
			    ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
				ledger_written(ops[i].writeValue.address);
	errno = saved;
}

/* Where a pitched copy begins to write; 0: not at a device address. All generations of the
 * structs have these names. */
#define TO_DEVICE(c) \
	((c)->dstMemoryType == CU_MEMORYTYPE_DEVICE || (c)->dstMemoryType == CU_MEMORYTYPE_UNIFIED)
#define DST_2D(c)                                                                        \
	(TO_DEVICE(c) ? (uint64_t)(c)->dstDevice + (uint64_t)(c)->dstY * (c)->dstPitch + \
				(c)->dstXInBytes                                         \
		      : 0)
#define DST_3D(c) \
	(TO_DEVICE(c) ? DST_2D(c) + (uint64_t)(c)->dstZ * (c)->dstHeight * (c)->dstPitch : 0)

#define BYTES_2D(c)	 extent((c)->Height, (c)->dstPitch, (c)->WidthInBytes)
#define BYTES_3D(c)	 extent((c)->Depth, 1ull * (c)->dstHeight * (c)->dstPitch, BYTES_2D(c))
#define BYTES_FILL(item) extent(Height, dstPitch, item##ull *Width)

/* What a successful call did; S is its stream. */
/* clang-format off */
#define WRITES_cuMemcpy(S)		copied(dst, ByteCount, NO_STREAM)
#define WRITES_cuMemcpyAsync(S)		copied(dst, ByteCount, S(hStream))
#define WRITES_cuMemcpyPeer(S)		copied(dstDevice, ByteCount, NO_STREAM)
#define WRITES_cuMemcpyPeerAsync(S)	copied(dstDevice, ByteCount, S(hStream))
#define WRITES_cuMemcpyHtoD(S)		copied(dstDevice, ByteCount, NO_STREAM)
#define WRITES_cuMemcpyHtoDAsync(S)	copied(dstDevice, ByteCount, S(hStream))
#define WRITES_cuMemcpyDtoD(S)		copied(dstDevice, ByteCount, NO_STREAM)
#define WRITES_cuMemcpyDtoDAsync(S)	copied(dstDevice, ByteCount, S(hStream))
#define WRITES_cuMemcpyDtoHAsync(S)	copied((uint64_t)(uintptr_t)dstHost, ByteCount, S(hStream))
#define WRITES_cuMemcpyAtoD(S)		copied(dstDevice, ByteCount, NO_STREAM)
#define WRITES_cuMemcpy2D(S)		copied(DST_2D(pCopy), BYTES_2D(pCopy), NO_STREAM)
#define WRITES_cuMemcpy2DUnaligned(S)	copied(DST_2D(pCopy), BYTES_2D(pCopy), NO_STREAM)
#define WRITES_cuMemcpy2DAsync(S)	copied(DST_2D(pCopy), BYTES_2D(pCopy), S(hStream))
#define WRITES_cuMemcpy3D(S)		copied(DST_3D(pCopy), BYTES_3D(pCopy), NO_STREAM)
#define WRITES_cuMemcpy3DAsync(S)	copied(DST_3D(pCopy), BYTES_3D(pCopy), S(hStream))
#define WRITES_cuMemcpy3DPeer(S)	copied(DST_3D(pCopy), BYTES_3D(pCopy), NO_STREAM)
#define WRITES_cuMemcpy3DPeerAsync(S)	copied(DST_3D(pCopy), BYTES_3D(pCopy), S(hStream))
#define WRITES_cuMemcpyBatchAsync(S)	wrote_batch(dsts, sizes, count, S(hStream))
#define WRITES_cuMemcpy3DBatchAsync(S)	wrote_ops(opList, numOps, S(hStream))
#define WRITES_cuMemsetD8(S)		wrote(dstDevice, N, NO_STREAM)
#define WRITES_cuMemsetD16(S)		wrote(dstDevice, 2ull * N, NO_STREAM)
#define WRITES_cuMemsetD32(S)		wrote(dstDevice, 4ull * N, NO_STREAM)
#define WRITES_cuMemsetD8Async(S)	wrote(dstDevice, N, S(hStream))
#define WRITES_cuMemsetD16Async(S)	wrote(dstDevice, 2ull * N, S(hStream))
#define WRITES_cuMemsetD32Async(S)	wrote(dstDevice, 4ull * N, S(hStream))
#define WRITES_cuMemsetD2D8(S)		wrote(dstDevice, BYTES_FILL(1), NO_STREAM)
#define WRITES_cuMemsetD2D16(S)		wrote(dstDevice, BYTES_FILL(2), NO_STREAM)
#define WRITES_cuMemsetD2D32(S)		wrote(dstDevice, BYTES_FILL(4), NO_STREAM)
#define WRITES_cuMemsetD2D8Async(S)	wrote(dstDevice, BYTES_FILL(1), S(hStream))
#define WRITES_cuMemsetD2D16Async(S)	wrote(dstDevice, BYTES_FILL(2), S(hStream))
#define WRITES_cuMemsetD2D32Async(S)	wrote(dstDevice, BYTES_FILL(4), S(hStream))
#define WRITES_cuStreamBatchMemOp(S)	wrote_words(paramArray, count, S(stream))
#define WRITES_cuStreamWaitValue32(S)	wrote(0, 0, S(stream))
#define WRITES_cuStreamWaitValue64(S)	wrote(0, 0, S(stream))
#define WRITES_cuStreamWriteValue32(S)	wrote(addr, 4, S(stream))
#define WRITES_cuStreamWriteValue64(S)	wrote(addr, 8, S(stream))
/* clang-format on */

#define STREAM_OF(s)	  STREAM_LEGACY(s)
#define STREAM_OF_ptsz(s) STREAM_PER_THREAD(s)

#define WRAPPER_BODY(base, suffix, stream, params, args)          \
	CUresult CUDAAPI base##suffix##stream params              \
	{                                                         \
		bool on = record_on(base##suffix##stream);        \
		CUresult rc = REAL(base##suffix##stream) args;    \
                                                                  \
		if (on && rc == CUDA_SUCCESS && copies_watched()) \
			WRITES_##base(STREAM_OF##stream);         \
		return rc;                                        \
	}
#define WRAPPER_PASS(base, suffix, stream, params, args)

/* Rows of this family; those of the others expand to nothing. */
#define FAMILY_ROW_COPY(kind, ...) WRAPPER_##kind(__VA_ARGS__)
#define FAMILY_ROW_LOOKUP(...)
#define FAMILY_ROW_MEM(...)
#define FAMILY_ROW_HOST(...)
#define FAMILY_ROW_IPC(...)
#define FAMILY_ROW_POOL(...)
#define FAMILY_ROW_VMM(...)
#define FAMILY_ROW_MODULE(...)
#define FAMILY_ROW_CTX(...)
#define FAMILY_ROW_CAPTURE(...)
#define FAMILY_ROW_GRAPH(...)
#define FAMILY_ROW_LAUNCH(...)
#define FAMILY_ROW_TENSOR(...)
#define FAMILY_ROW_SYNC(...)
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args) \
	FAMILY_ROW_##family(kind, base, suffix, stream, params, args)
#include "shim/hooks.def"
#undef HOOK
