/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is an address in the parameters of each kind of node. Numbering of the words: a copy has its
 * source at 0 and its destination at 1, a memset its destination at 0, a batch the index of the
 * operation, a kernel the index of the parameter.
 *
 * Any thread; no state.
 */
#include "shim/words.h"

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

static void read_copy(struct params *out, const CUDA_MEMCPY3D_v2 *c)
{
	uint64_t src = c->srcXInBytes + (c->srcZ * c->srcHeight + c->srcY) * c->srcPitch;
	uint64_t dst = c->dstXInBytes + (c->dstZ * c->dstHeight + c->dstY) * c->dstPitch;

	if (c->WidthInBytes == 0)
		return;
	add_exact(out, 0, copy_address(c->srcMemoryType, c->srcHost, c->srcDevice, src));
	add_exact(out, 1, copy_address(c->dstMemoryType, c->dstHost, c->dstDevice, dst));
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
		add_exact(out, 0, node->memset.dst);
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		read_batch(out, &node->memOp);
		break;
	default:
		break;
	}
	return PARAMS_READ;
}

bool words_none(CUgraphNodeType type)
{
	return type == CU_GRAPH_NODE_TYPE_EMPTY || type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ||
	       type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
}
