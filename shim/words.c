/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is an address in the parameters of each kind of node. Numbering of the words: a copy has its
 * source at 0 and its destination at 1, a memset its destination at 0, a batch the index of the
 * operation, a kernel the index of the parameter.
 *
 * Copies and fills have a word for every range or block that they touch, each at its first byte:
 * the memory of one tensor may be of many mappings. The offset of such a word is its number. They
 * are hashed, because what they touch now need not be what they touched when they were written.
 *
 * Any thread; no state.
 */
#include "shim/words.h"

#define PIECES_MAX 64
#define STEPS_MAX  256 /* rows of unknown memory (pageable) are passed over one by one */

/* Slices of rows of bytes; the distances are at least what they step over, and not 0. */
struct extent {
	uint64_t start, width, pitch, rows, slice, slices;
};

/* What the node says is an address, however it is aligned. */
static void add_exact(struct params *out, uint16_t index, uint64_t value)
{
	if (value && out->count < PARAMS_WORDS_MAX)
		out->words[out->count++] = (struct word){
			.value = value,
			.param = index,
			.confidence = CONFIDENCE_EXACT,
		};
}

static uint64_t at_least(uint64_t value, uint64_t least)
{
	return value < least ? least : value;
}

static struct extent extent_of(uint64_t start, uint64_t width, uint64_t pitch, uint64_t rows)
{
	struct extent x = { .start = start, .width = width, .rows = at_least(rows, 1) };

	x.pitch = at_least(pitch, width);
	x.slice = x.rows * x.pitch;
	x.slices = 1;
	return x;
}

/* @return the distance of the first byte of @x at or behind @at; UINT64_MAX: there is none. */
static uint64_t touched_from(const struct extent *x, uint64_t at)
{
	uint64_t z = at / x->slice, y = at % x->slice / x->pitch, col = at % x->slice % x->pitch;

	if (col >= x->width) {
		col = 0;
		y++;
	}
	if (y >= x->rows) {
		col = y = 0;
		z++;
	}
	return z < x->slices ? z * x->slice + y * x->pitch + col : UINT64_MAX;
}

/* Where the memory at @addr ends, which lies in @v: a block may be of several mappings, a mapping
 * of several blocks. Up to a place where no block lives, it goes block by block. */
static uint64_t piece_end(uint64_t addr, const struct range_view *v)
{
	uint64_t end = v->base + v->size_bytes;
	struct range_view block;

	/* What was freed and carved again meanwhile may lie elsewhere. */
	if (ledger_refer(addr, &block) && block.kind == RANGE_BLOCK &&
	    addr - block.base < block.size_bytes && block.base + block.size_bytes < end)
		end = block.base + block.size_bytes;
	return end;
}

static void add_extent(struct params *out, uint16_t index, const struct extent *x)
{
	uint16_t piece = 0;
	uint64_t at = 0;

	params_mix(out, x->start);
	params_mix(out, x->width ^ x->pitch << 32);
	params_mix(out, x->rows ^ x->slices << 32);
	params_mix(out, x->slice);
	for (int i = 0; i < STEPS_MAX && at != UINT64_MAX; i++) {
		struct range_view v;
		bool found = ledger_find(x->start + at, &v);

		if (found && piece == PIECES_MAX) {
			out->cut = true;
			return;
		}
		if ((found || i == 0) && out->count < PARAMS_WORDS_MAX)
			out->words[out->count++] = (struct word){
				.value = x->start + at,
				.param = index,
				.offset = piece++,
				.confidence = CONFIDENCE_EXACT,
			};
		if (found)
			at = touched_from(x, piece_end(x->start + at, &v) - x->start);
		else
			at = touched_from(x, at - at % x->slice % x->pitch + x->pitch);
	}
}

/* @return the first byte that a copy touches on one side; 0 for arrays. */
static uint64_t copy_address(CUmemorytype type, const void *host, CUdeviceptr on_device,
			     uint64_t offset)
{
	if (type == CU_MEMORYTYPE_HOST)
		return (uint64_t)host + offset;
	if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED)
		return on_device + offset;
	return 0;
}

static void add_side(struct params *out, uint16_t index, const CUDA_MEMCPY3D_v2 *c, uint64_t start)
{
	struct extent x =
		extent_of(start, c->WidthInBytes, index ? c->dstPitch : c->srcPitch, c->Height);

	out->blind += (index ? c->dstMemoryType : c->srcMemoryType) == CU_MEMORYTYPE_ARRAY;
	if (start == 0)
		return;
	x.slice = at_least(x.pitch * (index ? c->dstHeight : c->srcHeight), x.slice);
	x.slices = at_least(c->Depth, 1);
	add_extent(out, index, &x);
}

static void read_copy(struct params *out, const CUDA_MEMCPY3D_v2 *c)
{
	uint64_t src = c->srcXInBytes + (c->srcZ * c->srcHeight + c->srcY) * c->srcPitch;
	uint64_t dst = c->dstXInBytes + (c->dstZ * c->dstHeight + c->dstY) * c->dstPitch;

	if (c->WidthInBytes == 0)
		return;
	add_side(out, 0, c, copy_address(c->srcMemoryType, c->srcHost, c->srcDevice, src));
	add_side(out, 1, c, copy_address(c->dstMemoryType, c->dstHost, c->dstDevice, dst));
}

static void read_fill(struct params *out, const CUDA_MEMSET_NODE_PARAMS_v2 *f)
{
	struct extent x = extent_of(f->dst, at_least(f->width * f->elementSize, 1),
				    f->height > 1 ? f->pitch : 0, f->height);

	if (f->dst)
		add_extent(out, 0, &x);
}

static void read_batch(struct params *out, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *b)
{
	for (unsigned i = 0; b->paramArray && i < b->count && i <= UINT16_MAX; i++) {
		const CUstreamBatchMemOpParams *op = &b->paramArray[i];

		switch (op->operation) {
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			add_exact(out, (uint16_t)i, op->waitValue.address);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			add_exact(out, (uint16_t)i, op->writeValue.address);
			break;
		default: /* barriers and flushes */
			break;
		}
	}
}

enum params_status words_read(struct params *out, const CUgraphNodeParams *node)
{
	const CUDA_KERNEL_NODE_PARAMS_v3 *k = &node->kernel;

	params_reset(out, 0);
	switch (node->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return params_read(out, k->func ? (uint64_t)k->func : (uint64_t)k->kern,
				   k->kernelParams, k->extra);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		read_copy(out, &node->memcpy.copyParams);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		read_fill(out, &node->memset);
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		read_batch(out, &node->memOp);
		break;
	default:
		break;
	}
	return PARAMS_READ;
}

bool words_readable(CUgraphNodeType type)
{
	return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
	       type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
}

bool words_none(CUgraphNodeType type)
{
	return type == CU_GRAPH_NODE_TYPE_EMPTY || type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ||
	       type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
}
