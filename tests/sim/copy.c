/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills: every form becomes one CUDA_MEMCPY3D or one memset node. Under sim_lock.
 *
 * Host memory that was never registered (pageable) is read and written as it is; an asynchronous
 * copy from or to it is done before the call returns, as the driver stages it. Freed pinned memory
 * is an illegal access.
 */
#include "tests/sim/sim.h"

#include <string.h>

/* ---- execution ---- */

static bool pageable(uint64_t addr)
{
	return !range_at(addr) && !address_is_ours(addr);
}

static void *piece(uint64_t addr, CUmemorytype type, size_t *len, bool write)
{
	if (type != CU_MEMORYTYPE_DEVICE && pageable(addr))
		return (void *)(uintptr_t)addr;
	return access_at(addr, len, write);
}

static uint64_t source_of(const CUDA_MEMCPY3D *c)
{
	return c->srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)c->srcHost : c->srcDevice;
}

static uint64_t target_of(const CUDA_MEMCPY3D *c)
{
	return c->dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)c->dstHost : c->dstDevice;
}

static bool copy_row(const CUDA_MEMCPY3D *c, uint64_t dst, uint64_t src)
{
	size_t left = c->WidthInBytes;

	while (left) {
		size_t len = left;
		void *from = piece(src, c->srcMemoryType, &len, false);
		void *to = from ? piece(dst, c->dstMemoryType, &len, true) : NULL;

		if (!to)
			return false;
		memmove(to, from, len);
		dst += len;
		src += len;
		left -= len;
	}
	return true;
}

bool copy_execute(const CUDA_MEMCPY3D *c)
{
	size_t src_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes;
	size_t dst_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
	size_t src_rows = c->srcHeight ? c->srcHeight : c->Height;
	size_t dst_rows = c->dstHeight ? c->dstHeight : c->Height;

	for (size_t z = 0; z < c->Depth; z++)
		for (size_t y = 0; y < c->Height; y++) {
			uint64_t src = source_of(c) + c->srcXInBytes +
				       ((c->srcZ + z) * src_rows + c->srcY + y) * src_pitch;
			uint64_t dst = target_of(c) + c->dstXInBytes +
				       ((c->dstZ + z) * dst_rows + c->dstY + y) * dst_pitch;

			if (!copy_row(c, dst, src))
				return false;
		}
	return true;
}

CUresult copy_check(const CUDA_MEMCPY3D *c)
{
	if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!c->srcMemoryType || !c->dstMemoryType || !c->WidthInBytes || !c->Height || !c->Depth ||
	    !source_of(c) || !target_of(c))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* ---- parameters ---- */

void params_memcpy(CUgraphNodeParams *p, const CUDA_MEMCPY3D *c, CUcontext ctx)
{
	memset(p, 0, sizeof(*p));
	p->type = CU_GRAPH_NODE_TYPE_MEMCPY;
	p->memcpy.copyCtx = ctx;
	p->memcpy.copyParams = *c;
}

static CUDA_MEMCPY3D copy1d(uint64_t dst, CUmemorytype to, uint64_t src, CUmemorytype from,
			    size_t n)
{
	CUDA_MEMCPY3D c = {
		.srcMemoryType = from, .srcDevice = src, .srcHost = (const void *)(uintptr_t)src,
		.dstMemoryType = to, .dstDevice = dst, .dstHost = (void *)(uintptr_t)dst,
		.WidthInBytes = n, .Height = 1, .Depth = 1,
	};

	if (from == CU_MEMORYTYPE_HOST)
		c.srcDevice = 0;
	else
		c.srcHost = NULL;
	if (to == CU_MEMORYTYPE_HOST)
		c.dstDevice = 0;
	else
		c.dstHost = NULL;
	return c;
}

/* What a plain address means (unified addressing): decided once, at the call. */
static CUmemorytype type_of(uint64_t addr)
{
	const struct range *r = range_at(addr);

	if (!r)
		return address_is_ours(addr) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	return r->kind == RANGE_HOST || r->kind == RANGE_REGISTERED ? CU_MEMORYTYPE_HOST
								    : CU_MEMORYTYPE_DEVICE;
}

static CUresult copy_async(const CUDA_MEMCPY3D *c, CUstream h)
{
	struct stream *s = stream_get(h);
	CUgraphNodeParams p;
	CUresult rc;

	params_memcpy(&p, c, (CUcontext)context_current());
	rc = stream_launch(h, &p);
	if (!rc && !s->capture && (pageable(source_of(c)) || pageable(target_of(c))))
		stream_finish(s);
	return rc;
}

static CUresult copy_sync(const CUDA_MEMCPY3D *c)
{
	CUgraphNodeParams p;

	params_memcpy(&p, c, (CUcontext)context_current());
	return stream_launch_sync(&p);
}

/* ---- one dimension: nothing to copy is success ---- */

#define H	CU_MEMORYTYPE_HOST
#define D	CU_MEMORYTYPE_DEVICE

static CUresult sync1d(uint64_t dst, CUmemorytype to, uint64_t src, CUmemorytype from, size_t n)
{
	CUDA_MEMCPY3D c = copy1d(dst, to, src, from, n);

	return n ? copy_sync(&c) : CUDA_SUCCESS;
}

static CUresult async1d(CUDA_MEMCPY3D c, CUstream s)
{
	return c.WidthInBytes ? copy_async(&c, s) : CUDA_SUCCESS;
}

CUresult do_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	return sync1d(dst, type_of(dst), src, type_of(src), n);
}

CUresult do_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return async1d(copy1d(dst, type_of(dst), src, type_of(src), n), s);
}

CUresult do_cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n)
{
	return sync1d(dst, D, (uintptr_t)src, H, n);
}

CUresult do_cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
	return async1d(copy1d(dst, D, (uintptr_t)src, H, n), s);
}

CUresult do_cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t n)
{
	return sync1d((uintptr_t)dst, H, src, D, n);
}

CUresult do_cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	return async1d(copy1d((uintptr_t)dst, H, src, D, n), s);
}

CUresult do_cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	return sync1d(dst, D, src, D, n);
}

CUresult do_cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return async1d(copy1d(dst, D, src, D, n), s);
}

CUresult do_cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
			 size_t n)
{
	return sync1d(dst, D, src, D, n);
}

CUresult do_cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
			      CUcontext src_ctx, size_t n, CUstream s)
{
	return async1d(copy1d(dst, D, src, D, n), s);
}

/* ---- two and three dimensions ---- */

static CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D *c)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = c->srcXInBytes, .srcY = c->srcY, .srcMemoryType = c->srcMemoryType,
		.srcHost = c->srcHost, .srcDevice = c->srcDevice, .srcPitch = c->srcPitch,
		.dstXInBytes = c->dstXInBytes, .dstY = c->dstY, .dstMemoryType = c->dstMemoryType,
		.dstHost = c->dstHost, .dstDevice = c->dstDevice, .dstPitch = c->dstPitch,
		.WidthInBytes = c->WidthInBytes, .Height = c->Height, .Depth = 1,
	};
}

CUresult do_cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
	CUDA_MEMCPY3D c = from_2d(copy);

	return copy_sync(&c);
}
SAME_ABI(do_cuMemcpy2DUnaligned_v2, do_cuMemcpy2D_v2);

CUresult do_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream s)
{
	CUDA_MEMCPY3D c = from_2d(copy);

	return copy_async(&c, s);
}

CUresult do_cuMemcpy3D_v2(const CUDA_MEMCPY3D *c)
{
	return copy_sync(c);
}

CUresult do_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream s)
{
	return copy_async(c, s);
}

/* The peer form has the contexts where the plain one has reserved fields. */
_Static_assert(sizeof(CUDA_MEMCPY3D_PEER) == sizeof(CUDA_MEMCPY3D), "same layout");

static CUDA_MEMCPY3D from_peer(const CUDA_MEMCPY3D_PEER *peer)
{
	CUDA_MEMCPY3D c;

	memcpy(&c, peer, sizeof(c));
	c.reserved0 = c.reserved1 = NULL;
	return c;
}

CUresult do_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy)
{
	CUDA_MEMCPY3D c = from_peer(copy);

	return copy_sync(&c);
}

CUresult do_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream s)
{
	CUDA_MEMCPY3D c = from_peer(copy);

	return copy_async(&c, s);
}

/* ---- batches ---- */

CUresult do_cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t n,
			       CUmemcpyAttributes *attrs, size_t *indices, size_t n_attrs,
			       size_t *fail, CUstream s)
{
	CUresult rc = n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (size_t i = 0; i < n && !rc; i++) {
		rc = do_cuMemcpyAsync(dsts[i], srcs[i], sizes[i], s);
		if (rc && fail)
			*fail = i;
	}
	return rc;
}

CUresult do_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t n,
				  CUmemcpyAttributes *attrs, size_t *indices, size_t n_attrs,
				  CUstream s)
{
	return do_cuMemcpyBatchAsync(dsts, srcs, sizes, n, attrs, indices, n_attrs, NULL, s);
}

static CUresult copy_3d_op(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream s)
{
	CUDA_MEMCPY3D c;

	if (op->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
	    op->dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
		return CUDA_ERROR_NOT_SUPPORTED;
	c = copy1d(op->dst.op.ptr.ptr, type_of(op->dst.op.ptr.ptr), op->src.op.ptr.ptr,
		   type_of(op->src.op.ptr.ptr), op->extent.width);
	c.Height = op->extent.height;
	c.Depth = op->extent.depth;
	c.srcPitch = op->src.op.ptr.rowLength;
	c.srcHeight = op->src.op.ptr.layerHeight;
	c.dstPitch = op->dst.op.ptr.rowLength;
	c.dstHeight = op->dst.op.ptr.layerHeight;
	return copy_async(&c, s);
}

CUresult do_cuMemcpy3DBatchAsync(size_t n, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *fail,
				 unsigned long long flags, CUstream s)
{
	CUresult rc = n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (size_t i = 0; i < n && !rc; i++) {
		rc = copy_3d_op(&ops[i], s);
		if (rc && fail)
			*fail = i;
	}
	return rc;
}

CUresult do_cuMemcpy3DBatchAsync_v2(size_t n, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags,
				    CUstream s)
{
	return do_cuMemcpy3DBatchAsync(n, ops, NULL, flags, s);
}

/* ---- fills ---- */

static CUgraphNodeParams fill(CUdeviceptr dst, unsigned value, unsigned element, size_t n)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_MEMSET };

	p.memset = (CUDA_MEMSET_NODE_PARAMS_v2){
		.dst = dst, .value = value, .elementSize = element, .width = n, .height = 1,
		.ctx = (CUcontext)context_current(),
	};
	return p;
}

#define FILLS(bits, value_t)                                                                  \
	CUresult do_cuMemsetD##bits##_v2(CUdeviceptr dst, value_t v, size_t n)                \
	{                                                                                     \
		CUgraphNodeParams p = fill(dst, v, bits / 8, n);                              \
                                                                                              \
		return n ? stream_launch_sync(&p) : CUDA_SUCCESS;                             \
	}                                                                                     \
	CUresult do_cuMemsetD##bits##Async(CUdeviceptr dst, value_t v, size_t n, CUstream s)  \
	{                                                                                     \
		CUgraphNodeParams p = fill(dst, v, bits / 8, n);                              \
                                                                                              \
		return n ? stream_launch(s, &p) : CUDA_SUCCESS;                               \
	}                                                                                     \
	CUresult do_cuMemsetD2D##bits##_v2(CUdeviceptr dst, size_t pitch, value_t v,          \
					   size_t width, size_t height)                       \
	{                                                                                     \
		CUgraphNodeParams p = fill(dst, v, bits / 8, width);                          \
                                                                                              \
		p.memset.pitch = pitch;                                                       \
		p.memset.height = height;                                                     \
		return stream_launch_sync(&p);                                                \
	}                                                                                     \
	CUresult do_cuMemsetD2D##bits##Async(CUdeviceptr dst, size_t pitch, value_t v,        \
					     size_t width, size_t height, CUstream s)         \
	{                                                                                     \
		CUgraphNodeParams p = fill(dst, v, bits / 8, width);                          \
                                                                                              \
		p.memset.pitch = pitch;                                                       \
		p.memset.height = height;                                                     \
		return stream_launch(s, &p);                                                  \
	}
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)

/* Hints: accepted, without effect. */
CUresult do_cuMemAdvise(CUdeviceptr p, size_t n, CUmem_advise advice, CUdevice dev)
{
	return range_at(p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemAdvise_v2(CUdeviceptr p, size_t n, CUmem_advise advice, CUmemLocation at)
{
	return range_at(p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemPrefetchAsync(CUdeviceptr p, size_t n, CUdevice dev, CUstream s)
{
	return range_at(p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemPrefetchAsync_v2(CUdeviceptr p, size_t n, CUmemLocation to, unsigned int flags,
				  CUstream s)
{
	return range_at(p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
