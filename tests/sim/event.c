/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events: a point in a stream, (stream, sequence number). In a capture an event stands for the
 * nodes the stream depends on. Under sim_lock.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <time.h>

CUresult do_cuEventCreate(CUevent *out, unsigned int flags)
{
	struct event *e;

	if (!out || flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	e = obj_new(OBJ_EVENT, sizeof(*e));
	e->flags = flags;
	*out = (CUevent)e;
	return CUDA_SUCCESS;
}

CUresult do_cuEventDestroy_v2(CUevent h)
{
	struct event *e = obj_get(h, OBJ_EVENT);

	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	free(e->deps);
	obj_drop(e);
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuEventDestroy, do_cuEventDestroy_v2);

void event_record(struct event *e, struct stream *s)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	e->stream = s;
	e->stream_serial = s->obj.serial;
	e->seq = s->submitted;
	e->when_ms = (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
	e->capture_id = 0;
}

/* Patient or not, is the point reached? A stream that is gone finished its work. */
static bool reached(struct event *e, bool patient)
{
	struct stream *s = obj_get(e->stream, OBJ_STREAM);

	if (!e->stream_serial || !s || s->obj.serial != e->stream_serial)
		return true;
	return stream_run(s, e->seq, patient);
}

CUresult do_cuEventRecordWithFlags(CUevent h, CUstream stream, unsigned int flags)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = { h } };
	struct event *e = obj_get(h, OBJ_EVENT);
	struct stream *s = stream_get(stream);
	int capture;

	if (!e || !s)
		return CUDA_ERROR_INVALID_HANDLE;
	capture = capture_check(s);
	if (capture < 0)
		return (CUresult)-capture;
	if (capture && flags & CU_EVENT_RECORD_EXTERNAL)
		return stream_launch(stream, &p);
	if (capture)
		return capture_event_record(s, e);
	event_record(e, s);
	return CUDA_SUCCESS;
}

CUresult do_cuEventRecord(CUevent h, CUstream stream)
{
	return do_cuEventRecordWithFlags(h, stream, 0);
}

CUresult do_cuStreamWaitEvent(CUstream stream, CUevent h, unsigned int flags)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = { h } };
	struct event *e = obj_get(h, OBJ_EVENT);
	struct stream *s = stream_get(stream), *other;

	if (!e || !s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (s->capture && flags & CU_EVENT_WAIT_EXTERNAL)
		return stream_launch(stream, &p);
	if (s->capture || event_captured(e))
		return capture_event_wait(s, e);
	other = obj_get(e->stream, OBJ_STREAM);
	if (e->stream_serial && other && other->obj.serial == e->stream_serial)
		stream_wait(s, other, e->seq);
	return CUDA_SUCCESS;
}

CUresult do_cuEventQuery(CUevent h)
{
	struct event *e = obj_get(h, OBJ_EVENT);

	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	if (event_captured(e))
		return CUDA_ERROR_CAPTURED_EVENT;
	return reached(e, false) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult do_cuEventSynchronize(CUevent h)
{
	struct event *e = obj_get(h, OBJ_EVENT);

	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	if (event_captured(e))
		return CUDA_ERROR_CAPTURED_EVENT;
	reached(e, true);
	return CUDA_SUCCESS;
}

CUresult do_cuEventElapsedTime_v2(float *ms, CUevent begin, CUevent end)
{
	struct event *a = obj_get(begin, OBJ_EVENT), *b = obj_get(end, OBJ_EVENT);

	if (!a || !b || !a->stream_serial || !b->stream_serial)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!reached(a, false) || !reached(b, false))
		return CUDA_ERROR_NOT_READY;
	*ms = (float)(b->when_ms - a->when_ms);
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuEventElapsedTime, do_cuEventElapsedTime_v2);
