/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: queues that are worked off lazily, in order, by whoever waits for them. Under sim_lock,
 * except while a host function runs.
 *
 * A launch only queues. Synchronising runs the queue; a query runs it up to work that "still runs"
 * (a k_spin), which ends after so many queries or when somebody waits. Streams wait for one another
 * by (stream, sequence number); the legacy stream and the blocking streams wait for each other.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define QUEUE_MAX	1024	/* as the real driver: a launch into a full queue waits */

struct frame {
	struct program *program;
	size_t at;
};

struct work {
	struct work *next;
	uint64_t seq;
	struct op *op;			/* one of three: an operation, */
	struct program *program;	/* a graph with its position, */
	struct frame frame[8];
	unsigned depth;
	struct stream *wait;		/* or another stream's progress */
	uint64_t wait_serial, wait_seq;
};

static pthread_cond_t host_function_done = PTHREAD_COND_INITIALIZER;
extern pthread_mutex_t sim_lock;

/* ---- running ---- */

static void run_host(struct stream *s, const CUDA_HOST_NODE_PARAMS_v2 *h)
{
	CUDA_HOST_NODE_PARAMS_v2 host = *h;
	bool per_thread = tls.per_thread;

	s->running = true;
	tls.in_callback = true;
	pthread_mutex_unlock(&sim_lock);
	host.fn(host.userData);
	pthread_mutex_lock(&sim_lock);
	tls.in_callback = false;
	tls.per_thread = per_thread;
	s->running = false;
	pthread_cond_broadcast(&host_function_done);
}

/* False: the operation still runs. */
static bool run_op(struct stream *s, struct op *op, bool patient)
{
	if (!s->stalled) {
		s->stall = op_stall(op);
		s->stalled = true;
	}
	if (!patient && s->stall) {
		s->stall--;
		return false;
	}
	s->stalled = false;
	if (op->p.type == CU_GRAPH_NODE_TYPE_HOST)
		run_host(s, &op->p.host);
	else
		op_execute(op);
	return true;
}

/* The branch of a conditional that runs now; NULL: none. */
static struct program *branch(const struct step *step)
{
	const CUDA_CONDITIONAL_NODE_PARAMS *c = &step->op->p.conditional;
	unsigned *value;

	if (conditional_value(c->handle, &value))
		return NULL;
	if (c->type == CU_GRAPH_COND_TYPE_SWITCH)
		return *value < step->bodies ? step->body[*value] : NULL;
	if (*value)
		return step->body[0];
	return c->type == CU_GRAPH_COND_TYPE_IF && step->bodies > 1 ? step->body[1] : NULL;
}

static bool is_while(const struct step *step)
{
	return step->op->p.type == CU_GRAPH_NODE_TYPE_CONDITIONAL &&
	       step->op->p.conditional.type == CU_GRAPH_COND_TYPE_WHILE;
}

static void push(struct work *w, struct program *p)
{
	if (w->depth < ARRAY_SIZE(w->frame))
		w->frame[w->depth++] = (struct frame){ p, 0 };
}

/* A body ended: the step that holds it is done, except a loop, which asks its condition again. */
static void pop(struct work *w)
{
	struct frame *f;

	if (!--w->depth)
		return;
	f = &w->frame[w->depth - 1];
	if (!is_while(&f->program->step[f->at]))
		f->at++;
}

static bool run_program(struct stream *s, struct work *w, bool patient)
{
	struct program *body;
	struct frame *f;
	struct step *step;

	while (w->depth && !sim_sticky) {
		f = &w->frame[w->depth - 1];
		if (f->at == f->program->n) {
			pop(w);
			continue;
		}
		step = &f->program->step[f->at];
		body = NULL;
		if (!step->enabled)
			;
		else if (step->op->p.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
			body = branch(step);
		else if (step->op->p.type == CU_GRAPH_NODE_TYPE_GRAPH)
			body = step->body[0];
		else if (!run_op(s, step->op, patient))
			return false;
		if (body)
			push(w, body);
		else
			f->at++;
	}
	return true;
}

static void work_free(struct work *w)
{
	op_put(w->op);
	program_put(w->program);
	free(w);
}

static bool run_work(struct stream *s, struct work *w, bool patient)
{
	struct stream *other;

	if (w->op)
		return run_op(s, w->op, patient);
	if (w->program)
		return run_program(s, w, patient);
	other = obj_get(w->wait, OBJ_STREAM);
	return !other || other->obj.serial != w->wait_serial ||
	       stream_run(other, w->wait_seq, patient);
}

bool stream_run(struct stream *s, uint64_t seq, bool patient)
{
	struct work *w;

	while (s->completed < seq && s->head) {
		if (s->running) {	/* another thread is in a host function of this stream */
			if (!patient)
				return false;
			pthread_cond_wait(&host_function_done, &sim_lock);
			continue;
		}
		w = s->head;
		if (!sim_sticky && !run_work(s, w, patient))
			return false;
		s->head = w->next;
		if (!s->head)
			s->tail = &s->head;
		s->completed = w->seq;
		work_free(w);
	}
	return true;
}

void stream_finish(struct stream *s)
{
	stream_run(s, s->submitted, true);
}

void stream_finish_all(void)
{
	struct stream *s;

	OBJ_EACH(s, OBJ_STREAM)
		stream_finish(s);
}

/* ---- queueing ---- */

static void append(struct stream *s, struct work *w)
{
	w->seq = ++s->submitted;
	*s->tail = w;
	s->tail = &w->next;
	if (s->submitted - s->completed > QUEUE_MAX)
		stream_run(s, s->submitted - QUEUE_MAX / 2, true);
}

void stream_wait(struct stream *s, struct stream *other, uint64_t seq)
{
	struct work *w;

	if (s == other || other->completed >= seq)
		return;
	w = calloc(1, sizeof(*w));
	w->wait = other;
	w->wait_serial = other->obj.serial;
	w->wait_seq = seq;
	append(s, w);
}

/* "The legacy default stream ... synchronizes with all other blocking streams." */
static void implicit_waits(struct stream *s)
{
	struct stream *legacy = s->ctx->legacy, *other;

	if (s->flags & CU_STREAM_NON_BLOCKING)
		return;
	if (s != legacy) {
		stream_wait(s, legacy, legacy->submitted);
		return;
	}
	OBJ_EACH(other, OBJ_STREAM)
		if (other->ctx == s->ctx && !(other->flags & CU_STREAM_NON_BLOCKING))
			stream_wait(s, other, other->submitted);
}

/* Takes the reference. */
static void stream_submit(struct stream *s, struct op *op)
{
	struct work *w = calloc(1, sizeof(*w));

	implicit_waits(s);
	w->op = op;
	append(s, w);
}

void stream_submit_program(struct stream *s, struct program *p)
{
	struct work *w = calloc(1, sizeof(*w));

	implicit_waits(s);
	w->program = p;
	push(w, p);
	append(s, w);
}

CUresult stream_launch(CUstream h, const CUgraphNodeParams *p)
{
	struct stream *s = stream_get(h);
	struct op *op;
	CUresult rc;
	int capture;

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	capture = capture_check(s);
	if (capture < 0)
		return (CUresult)-capture;
	rc = op_new(p, &op);
	if (rc)
		return rc;
	if (capture)
		return capture_add(s, op, NULL);
	stream_submit(s, op);
	return CUDA_SUCCESS;
}

CUresult stream_launch_sync(const CUgraphNodeParams *p)
{
	struct stream *s = stream_get(NULL);
	int capture = capture_check(s);
	struct op *op;
	CUresult rc;

	if (capture)
		return capture < 0 ? (CUresult)-capture : capture_refuse(s);
	rc = capture_unsafe();
	if (!rc)
		rc = op_new(p, &op);
	if (rc)
		return rc;
	stream_submit(s, op);
	stream_finish(s);
	return sim_sticky;
}

/* ---- handles ---- */

static struct stream *per_thread_stream(struct context *ctx)
{
	if (!tls.stream || tls.stream_ctx != ctx->obj.serial) {
		tls.stream = stream_new(ctx, 0, true);
		tls.stream_ctx = ctx->obj.serial;
	}
	return tls.stream;
}

struct stream *stream_get(CUstream h)
{
	struct context *ctx = context_current();

	if (h != NULL && h != CU_STREAM_LEGACY && h != CU_STREAM_PER_THREAD)
		return obj_get(h, OBJ_STREAM);
	if (!ctx)
		return NULL;
	if (h == CU_STREAM_PER_THREAD || (h == NULL && tls.per_thread))
		return per_thread_stream(ctx);
	return ctx->legacy;
}

struct stream *stream_new(struct context *ctx, unsigned flags, bool special)
{
	struct stream *s = obj_new(OBJ_STREAM, sizeof(*s));

	s->ctx = ctx;
	s->flags = flags;
	s->special = special;
	s->tail = &s->head;
	return s;
}

/* "The work completes": a program sees no difference to finishing it here. */
void stream_delete(struct stream *s)
{
	capture_forget(s);
	stream_finish(s);
	obj_drop(s);
}

CUresult do_cuStreamCreate(CUstream *out, unsigned int flags)
{
	if (!out || flags & ~CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUstream)stream_new(context_current(), flags, false);
	return CUDA_SUCCESS;
}

CUresult do_cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	CUresult rc = do_cuStreamCreate(out, flags);

	if (!rc)
		((struct stream *)*out)->priority = priority;
	return rc;
}

CUresult do_cuStreamDestroy_v2(CUstream h)
{
	struct stream *s = obj_get(h, OBJ_STREAM);

	if (!s || s->special)
		return CUDA_ERROR_INVALID_HANDLE;
	stream_delete(s);
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuStreamDestroy, do_cuStreamDestroy_v2);

CUresult do_cuStreamQuery(CUstream h)
{
	struct stream *s = stream_get(h);
	CUresult rc;

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (s->capture)
		return capture_refuse(s);
	rc = capture_unsafe();
	if (rc)
		return rc;
	return stream_run(s, s->submitted, false) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult do_cuStreamSynchronize(CUstream h)
{
	struct stream *s = stream_get(h);
	CUresult rc;

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (s->capture)
		return capture_refuse(s);
	rc = capture_unsafe();
	if (!rc)
		stream_finish(s);
	return rc;
}

CUresult do_cuStreamGetFlags(CUstream h, unsigned int *flags)
{
	struct stream *s = stream_get(h);

	*flags = s ? s->flags : 0;
	return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuStreamGetPriority(CUstream h, int *priority)
{
	struct stream *s = stream_get(h);

	*priority = s ? s->priority : 0;
	return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuStreamGetId(CUstream h, unsigned long long *id)
{
	struct stream *s = stream_get(h);

	*id = s ? s->obj.serial : 0;
	return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuStreamGetDevice(CUstream h, CUdevice *dev)
{
	struct stream *s = stream_get(h);

	*dev = s ? s->ctx->device : 0;
	return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuStreamGetCtx(CUstream h, CUcontext *ctx)
{
	struct stream *s = stream_get(h);

	*ctx = s ? (CUcontext)s->ctx : NULL;
	return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuStreamGetCtx_v2(CUstream h, CUcontext *ctx, CUgreenCtx *green)
{
	*green = NULL;
	return do_cuStreamGetCtx(h, ctx);
}

CUresult do_cuStreamGetAttribute(CUstream h, CUstreamAttrID id, CUstreamAttrValue *value)
{
	memset(value, 0, sizeof(*value));
	return stream_get(h) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuStreamSetAttribute(CUstream h, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	return stream_get(h) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- host functions and memory operations ---- */

CUresult do_cuLaunchHostFunc(CUstream h, CUhostFn fn, void *data)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_HOST, .host = { fn, data } };

	return stream_launch(h, &p);
}

struct callback {
	CUstreamCallback fn;
	CUstream stream;
	void *data;
};

static void run_callback(void *data)
{
	struct callback *c = data;

	c->fn(c->stream, CUDA_SUCCESS, c->data);
	free(c);
}

CUresult do_cuStreamAddCallback(CUstream h, CUstreamCallback fn, void *data, unsigned int flags)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_HOST };
	struct stream *s = stream_get(h);
	struct callback *c;

	if (!s || !fn || flags)
		return s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	if (s->capture)
		return capture_refuse(s);
	c = malloc(sizeof(*c));
	*c = (struct callback){ fn, h, data };
	p.host.fn = run_callback;
	p.host.userData = c;
	return stream_launch(h, &p);
}

CUresult do_cuStreamBatchMemOp_v2(CUstream h, unsigned int n, CUstreamBatchMemOpParams *ops,
				  unsigned int flags)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };

	p.memOp.ctx = (CUcontext)context_current();
	p.memOp.count = n;
	p.memOp.paramArray = ops;
	p.memOp.flags = flags;
	return stream_launch(h, &p);
}
SAME_ABI(do_cuStreamBatchMemOp, do_cuStreamBatchMemOp_v2);

static CUresult mem_op(CUstream h, CUstreamBatchMemOpType type, CUdeviceptr addr, uint64_t value)
{
	CUstreamBatchMemOpParams op = { .writeValue = { .operation = type, .address = addr } };

	op.writeValue.value64 = value;
	return do_cuStreamBatchMemOp_v2(h, 1, &op, 0);
}

CUresult do_cuStreamWriteValue32_v2(CUstream h, CUdeviceptr addr, cuuint32_t v, unsigned int flags)
{
	return mem_op(h, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, v);
}
SAME_ABI(do_cuStreamWriteValue32, do_cuStreamWriteValue32_v2);

CUresult do_cuStreamWriteValue64_v2(CUstream h, CUdeviceptr addr, cuuint64_t v, unsigned int flags)
{
	return mem_op(h, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, v);
}
SAME_ABI(do_cuStreamWriteValue64, do_cuStreamWriteValue64_v2);

CUresult do_cuStreamWaitValue32_v2(CUstream h, CUdeviceptr addr, cuuint32_t v, unsigned int flags)
{
	return mem_op(h, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, v);
}
SAME_ABI(do_cuStreamWaitValue32, do_cuStreamWaitValue32_v2);

CUresult do_cuStreamWaitValue64_v2(CUstream h, CUdeviceptr addr, cuuint64_t v, unsigned int flags)
{
	return mem_op(h, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, v);
}
SAME_ABI(do_cuStreamWaitValue64, do_cuStreamWaitValue64_v2);
