/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations: one description serves a launch into a stream, a node of a template and a step of an
 * exec. An operation never changes after op_new(); setting parameters means another operation.
 * Under sim_lock.
 *
 * Everything is copied in at once: the caller's arrays may be gone after the call (cuda.h: "the
 * parameters are copied").
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* The packed arguments of kernelParams or of extra; the twin says how they lie. */
static CUresult kernel_args(struct op *op)
{
	CUDA_KERNEL_NODE_PARAMS_v3 *k = &op->p.kernel;
	const void *buffer = NULL;
	size_t size = 0;
	void **params;

	op->bytes = op->twin->bytes;
	op->blob = aligned_alloc(128, ROUND_UP(MAX(op->bytes, 1), 128));
	if (k->kernelParams || !op->twin->n_params) {
		if (k->extra && k->kernelParams)
			return CUDA_ERROR_INVALID_VALUE;
		params = op->own[0] = calloc(op->twin->n_params + 1, sizeof(void *));
		for (unsigned i = 0; i < op->twin->n_params; i++) {
			params[i] = op->blob + op->twin->param[i].offset;
			memcpy(params[i], k->kernelParams[i], op->twin->param[i].size);
		}
		k->kernelParams = params;
		k->extra = NULL;
		return CUDA_SUCCESS;
	}
	for (void **e = k->extra; e && *e != CU_LAUNCH_PARAM_END; e += 2) {
		if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = e[1];
		else if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(size_t *)e[1];
	}
	if (!buffer || size < op->bytes)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(op->blob, buffer, op->bytes);
	/* Handed out as it came: kernelParams stays NULL (measured with cuBLAS nodes). */
	params = op->own[0] = calloc(6, sizeof(void *));
	params[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	params[1] = op->blob;
	params[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	params[3] = &params[5];
	params[4] = CU_LAUNCH_PARAM_END;
	params[5] = (void *)op->bytes;
	k->extra = params;
	return CUDA_SUCCESS;
}

static CUresult fill_kernel(struct op *op)
{
	CUDA_KERNEL_NODE_PARAMS_v3 *k = &op->p.kernel;
	struct function *f = function_any(k->func ? (void *)k->func : (void *)k->kern);

	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!k->gridDimX || !k->gridDimY || !k->gridDimZ || !k->blockDimX || !k->blockDimY ||
	    !k->blockDimZ || k->blockDimX * k->blockDimY * k->blockDimZ > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	op->twin = f->twin;
	if (!k->ctx)
		k->ctx = (CUcontext)context_current();
	return kernel_args(op);
}

static CUresult fill_batch(struct op *op)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *b = &op->p.memOp;
	size_t bytes = b->count * sizeof(*b->paramArray);

	if (!b->count || b->count > 256 || !b->paramArray)
		return CUDA_ERROR_INVALID_VALUE;
	op->own[0] = malloc(bytes);
	b->paramArray = memcpy(op->own[0], b->paramArray, bytes);
	return CUDA_SUCCESS;
}

static CUresult fill_alloc(struct op *op)
{
	CUDA_MEM_ALLOC_NODE_PARAMS_v2 *a = &op->p.alloc;
	size_t bytes = a->accessDescCount * sizeof(*a->accessDescs);

	if (!a->bytesize || a->poolProps.handleTypes)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes) {
		op->own[0] = malloc(bytes);
		a->accessDescs = memcpy(op->own[0], a->accessDescs, bytes);
	}
	return CUDA_SUCCESS;
}

/* Signal and wait differ in the type of paramsArray only; its elements are not looked at. */
static CUresult fill_semaphores(struct op *op)
{
	CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2 *s = &op->p.extSemSignal;
	size_t element = op->p.type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
				 ? sizeof(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS)
				 : sizeof(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS);

	if (!s->numExtSems || s->numExtSems > 256)
		return CUDA_ERROR_INVALID_VALUE;
	op->own[0] = malloc(s->numExtSems * sizeof(*s->extSemArray));
	op->own[1] = malloc(s->numExtSems * element);
	s->extSemArray =
		memcpy(op->own[0], s->extSemArray, s->numExtSems * sizeof(*s->extSemArray));
	s->paramsArray = memcpy(op->own[1], s->paramsArray, s->numExtSems * element);
	return CUDA_SUCCESS;
}

static CUresult fill(struct op *op)
{
	const CUDA_MEMSET_NODE_PARAMS_v2 *m = &op->p.memset;

	switch (op->p.type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return fill_kernel(op);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return copy_check(&op->p.memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		if ((m->elementSize != 1 && m->elementSize != 2 && m->elementSize != 4) ||
		    !m->width || !m->height)
			return CUDA_ERROR_INVALID_VALUE;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_HOST:
		return op->p.host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return obj_get(op->p.eventWait.event, OBJ_EVENT) ? CUDA_SUCCESS
								 : CUDA_ERROR_INVALID_HANDLE;
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return fill_semaphores(op);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return fill_alloc(op);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return fill_batch(op);
	case CU_GRAPH_NODE_TYPE_GRAPH:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult op_new(const CUgraphNodeParams *p, struct op **out)
{
	struct op *op = calloc(1, sizeof(*op));
	CUresult rc;

	op->refs = 1;
	op->p = *p;
	rc = fill(op);
	if (rc)
		op_put(op);
	else
		*out = op;
	return rc;
}

/* The handles of @op may be stale by now, so nothing is looked up again. */
struct op *op_copy(const struct op *op)
{
	struct op *copy = calloc(1, sizeof(*copy));

	copy->refs = 1;
	copy->p = op->p;
	copy->twin = op->twin;
	if (op->twin)
		kernel_args(copy);
	else if (op->own[0])
		fill(copy);
	return copy;
}

struct op *op_ref(struct op *op)
{
	op->refs++;
	return op;
}

void op_put(struct op *op)
{
	if (!op || --op->refs)
		return;
	free(op->blob);
	free(op->own[0]);
	free(op->own[1]);
	free(op);
}

unsigned op_stall(const struct op *op)
{
	long long cycles;

	if (op->twin != twin_spin)
		return 0;
	memcpy(&cycles, op->blob + op->twin->param[1].offset, sizeof(cycles));
	return (unsigned)MAX(1, MIN(cycles / 1000000, 1000));
}

/* Twice as much each time: a sanitizer checks a copy at once, and a loop byte by byte. */
static void repeat(char *to, size_t len, const unsigned char *value, size_t size, size_t phase)
{
	size_t have = MIN(len, size);

	for (size_t i = 0; i < have; i++)
		to[i] = (char)value[(phase + i) % size];
	for (size_t n; have < len; have += n) {
		n = MIN(have, len - have);
		memcpy(to + have, to, n);
	}
}

static void execute_memset(const CUDA_MEMSET_NODE_PARAMS_v2 *m)
{
	size_t n = m->width * m->elementSize, len;
	unsigned char value[4];
	char *to;

	memcpy(value, &m->value, 4);
	for (size_t row = 0; row < m->height; row++) {
		uint64_t addr = m->dst + row * m->pitch;

		for (size_t done = 0; done < n; done += len) {
			len = n - done;
			to = access_at(addr + done, &len, true);
			if (!to)
				return;
			repeat(to, len, value, m->elementSize, done);
		}
	}
}

/* Waits are taken as satisfied: whoever would write the word is not simulated. */
static void execute_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *b)
{
	for (unsigned i = 0; i < b->count; i++) {
		const CUstreamBatchMemOpParams *o = &b->paramArray[i];
		bool wide = o->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ||
			    o->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
		bool write = o->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ||
			     o->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32;
		size_t len = wide ? 8 : 4;
		void *at;

		if (!write && !wide && o->operation != CU_STREAM_MEM_OP_WAIT_VALUE_32)
			continue;	/* a barrier */
		at = access_at(o->writeValue.address, &len, write);
		if (!at)
			return;
		if (write)
			memcpy(at, &o->writeValue.value64, len);
	}
}

/* The address is fixed at node creation; the memory exists from here to the free. */
static void execute_alloc(const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *a)
{
	struct range *r = range_exact(a->dptr);

	if (r && r->kind == RANGE_GRAPH)
		return;		/* launched again with AUTO_FREE_ON_LAUNCH */
	range_new(a->dptr, a->bytesize, graph_memory(a->dptr), RANGE_GRAPH);
}

void op_execute(struct op *op)
{
	struct range *r;

	switch (op->p.type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		op->twin->run(op->blob);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		copy_execute(&op->p.memcpy.copyParams);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		execute_memset(&op->p.memset);
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		execute_batch(&op->p.memOp);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		execute_alloc(&op->p.alloc);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		r = range_exact(op->p.free.dptr);
		if (r && r->kind == RANGE_GRAPH)
			range_end(r);
		else if (r && r->freeing)
			pool_free_block(r);
		break;
	default:	/* events, semaphores and empty nodes order work; hosts are the stream's */
		break;
	}
}
