/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: tell arena/sync.h what the program knows to be finished. A ticket is taken before the
 * driver is asked to wait, and counts when the driver says that it did; a query that answers
 * "done" is worth the same. What is not proven here can still be asked: sync_stream_busy().
 *
 * Threads: any. Launches do not come by here.
 */
#include <errno.h>

#include "arena/sync.h"
#include "shim/hook_capture.h"
#include "shim/hook_sync.h"
#include "shim/record.h"

#define EVENT(e) ((uint64_t)(uintptr_t)(e))

/*
 * The legacy stream stands for every blocking stream of its context: while anything captures,
 * asking for it may break that capture.
 */
bool sync_must_not_ask(uint64_t stream)
{
	return load_relaxed(&captures_active) != 0 &&
	       (stream == STREAM_LEGACY(NULL) || capture_active_on(stream));
}

/* The handle behind a key (arena/sync.h). @return false: it means nothing in this thread. */
static bool handle_of(uint64_t *stream)
{
	if (!(*stream & SYNC_THREAD_BIT))
		return true;
	if (*stream != sync_thread_key())
		return false;
	*stream = SYNC_PER_THREAD;
	return true;
}

bool sync_stream_busy(uint64_t stream)
{
	int saved = errno;
	struct own_calls own;
	CUresult rc;

	if (!handle_of(&stream) || sync_must_not_ask(stream))
		return false;
	own = own_calls_begin();
	rc = REAL(cuStreamQuery)((CUstream)(uintptr_t)stream);
	own_calls_end(&own);
	errno = saved;
	return rc == CUDA_ERROR_NOT_READY;
}

bool sync_event_is_done(uint64_t event, uint64_t stream)
{
	int saved = errno;
	struct own_calls own;
	CUresult rc;

	if (handle_of(&stream) && sync_must_not_ask(stream))
		return false;
	own = own_calls_begin();
	rc = REAL(cuEventQuery)((CUevent)(uintptr_t)event);
	own_calls_end(&own);
	errno = saved;
	return rc == CUDA_SUCCESS;
}

/* ---- streams ---- */

/* A wait for, or a question about, one stream; success of either proves the same. */
static CUresult stream_wait(bool on, CUresult (*real_wait)(CUstream), CUstream hStream,
			    uint64_t stream)
{
	uint64_t ticket, awaited;
	CUresult rc;
	int saved;

	if (!on)
		return real_wait(hStream);
	awaited = sync_awaited(stream);
	ticket = sync_begin();
	rc = real_wait(hStream);
	saved = errno;
	if (rc == CUDA_SUCCESS) {
		sync_stream_done(stream, ticket);
		sync_others_done(awaited);
	}
	errno = saved;
	return rc;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream hStream)
{
	return stream_wait(record_on(cuStreamSynchronize), REAL(cuStreamSynchronize), hStream,
			   STREAM_LEGACY(hStream));
}

CUresult CUDAAPI cuStreamSynchronize_ptsz(CUstream hStream)
{
	return stream_wait(record_on(cuStreamSynchronize_ptsz), REAL(cuStreamSynchronize_ptsz),
			   hStream, STREAM_PER_THREAD(hStream));
}

CUresult CUDAAPI cuStreamQuery(CUstream hStream)
{
	return stream_wait(record_on(cuStreamQuery), REAL(cuStreamQuery), hStream,
			   STREAM_LEGACY(hStream));
}

CUresult CUDAAPI cuStreamQuery_ptsz(CUstream hStream)
{
	return stream_wait(record_on(cuStreamQuery_ptsz), REAL(cuStreamQuery_ptsz), hStream,
			   STREAM_PER_THREAD(hStream));
}

/* Before the driver: from then on nobody may ask for the handle, and it may come back. */
static void stream_forget(CUstream hStream)
{
	int saved = errno;

	sync_stream_forget(STREAM_LEGACY(hStream));
	capture_stream_gone(STREAM_LEGACY(hStream));
	errno = saved;
}

CUresult CUDAAPI cuStreamDestroy(CUstream hStream)
{
	if (record_on(cuStreamDestroy))
		stream_forget(hStream);
	return REAL(cuStreamDestroy)(hStream);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream hStream)
{
	if (record_on(cuStreamDestroy_v2))
		stream_forget(hStream);
	return REAL(cuStreamDestroy_v2)(hStream);
}

/* ---- contexts ---- */

/* What is done in one context says nothing about another. */
static void context_done(uint64_t ticket)
{
	int saved = errno;

	if (!record_many_contexts())
		sync_all_done(ticket);
	errno = saved;
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
	bool on = record_on(cuCtxSynchronize);
	uint64_t ticket = on ? sync_begin() : 0;
	CUresult rc = REAL(cuCtxSynchronize)();

	if (on && rc == CUDA_SUCCESS)
		context_done(ticket);
	return rc;
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx)
{
	bool on = record_on(cuCtxSynchronize_v2);
	uint64_t ticket = on ? sync_begin() : 0;
	CUresult rc = REAL(cuCtxSynchronize_v2)(ctx);

	if (on && rc == CUDA_SUCCESS)
		context_done(ticket);
	return rc;
}

/* ---- events ---- */

/* Does what is queued on @stream become a part of a graph? */
static bool captures(uint64_t stream)
{
	return load_relaxed(&captures_active) != 0 && capture_active_on(stream);
}

/* While its stream captures, recording an event builds an edge, or a node that records it some
 * day: what the event stood for is gone. */
static void event_recorded(CUevent event, uint64_t stream, uint64_t ticket)
{
	int saved = errno;

	if (captures(stream))
		sync_event_forget(EVENT(event));
	else
		sync_event_recorded(EVENT(event), stream, ticket);
	errno = saved;
}

/* Asked after the driver: a wait for an event of a capture makes the stream a part of it. */
static void event_awaited(CUevent event, uint64_t stream)
{
	int saved = errno;

	if (!captures(stream))
		sync_event_awaited(EVENT(event), stream);
	errno = saved;
}

static void event_done(CUevent event)
{
	int saved = errno;

	sync_event_done(EVENT(event));
	errno = saved;
}

static void event_forget(CUevent event)
{
	int saved = errno;

	sync_event_forget(EVENT(event));
	errno = saved;
}

CUresult CUDAAPI cuEventRecord(CUevent hEvent, CUstream hStream)
{
	bool on = record_on(cuEventRecord);
	uint64_t ticket = on ? sync_begin() : 0;
	CUresult rc = REAL(cuEventRecord)(hEvent, hStream);

	if (on && rc == CUDA_SUCCESS)
		event_recorded(hEvent, STREAM_LEGACY(hStream), ticket);
	return rc;
}

CUresult CUDAAPI cuEventRecord_ptsz(CUevent hEvent, CUstream hStream)
{
	bool on = record_on(cuEventRecord_ptsz);
	uint64_t ticket = on ? sync_begin() : 0;
	CUresult rc = REAL(cuEventRecord_ptsz)(hEvent, hStream);

	if (on && rc == CUDA_SUCCESS)
		event_recorded(hEvent, STREAM_PER_THREAD(hStream), ticket);
	return rc;
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	bool on = record_on(cuEventRecordWithFlags);
	uint64_t ticket = on ? sync_begin() : 0;
	CUresult rc = REAL(cuEventRecordWithFlags)(hEvent, hStream, flags);

	if (on && rc == CUDA_SUCCESS)
		event_recorded(hEvent, STREAM_LEGACY(hStream), ticket);
	return rc;
}

CUresult CUDAAPI cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	bool on = record_on(cuEventRecordWithFlags_ptsz);
	uint64_t ticket = on ? sync_begin() : 0;
	CUresult rc = REAL(cuEventRecordWithFlags_ptsz)(hEvent, hStream, flags);

	if (on && rc == CUDA_SUCCESS)
		event_recorded(hEvent, STREAM_PER_THREAD(hStream), ticket);
	return rc;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int flags)
{
	bool on = record_on(cuStreamWaitEvent);
	CUresult rc = REAL(cuStreamWaitEvent)(hStream, hEvent, flags);

	if (on && rc == CUDA_SUCCESS)
		event_awaited(hEvent, STREAM_LEGACY(hStream));
	return rc;
}

CUresult CUDAAPI cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int flags)
{
	bool on = record_on(cuStreamWaitEvent_ptsz);
	CUresult rc = REAL(cuStreamWaitEvent_ptsz)(hStream, hEvent, flags);

	if (on && rc == CUDA_SUCCESS)
		event_awaited(hEvent, STREAM_PER_THREAD(hStream));
	return rc;
}

CUresult CUDAAPI cuEventQuery(CUevent hEvent)
{
	bool on = record_on(cuEventQuery);
	CUresult rc = REAL(cuEventQuery)(hEvent);

	if (on && rc == CUDA_SUCCESS)
		event_done(hEvent);
	return rc;
}

CUresult CUDAAPI cuEventSynchronize(CUevent hEvent)
{
	bool on = record_on(cuEventSynchronize);
	CUresult rc = REAL(cuEventSynchronize)(hEvent);

	if (on && rc == CUDA_SUCCESS)
		event_done(hEvent);
	return rc;
}

CUresult CUDAAPI cuEventDestroy(CUevent hEvent)
{
	if (record_on(cuEventDestroy))
		event_forget(hEvent);
	return REAL(cuEventDestroy)(hEvent);
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent hEvent)
{
	if (record_on(cuEventDestroy_v2))
		event_forget(hEvent);
	return REAL(cuEventDestroy_v2)(hEvent);
}
