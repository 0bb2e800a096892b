/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture: a capturing stream holds the nodes that the next one depends on. Under sim_lock.
 *
 * The rules are those of cuStreamBeginCapture(), cuStreamEndCapture() and
 * cuThreadExchangeStreamCaptureMode() in cuda.h; most mistakes also invalidate the capture, which
 * its end then reports.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

struct capture *captures;
static uint64_t last_id;

CUresult do_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode old = tls.capture_mode;

	if (*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	tls.capture_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}

/*
 * "If the local thread has an ongoing capture sequence that was not initiated with MODE_RELAXED ...
 * or if any other thread has a concurrent capture sequence initiated with MODE_GLOBAL, this thread
 * is prohibited from potentially unsafe API calls." The second half only in the thread's mode
 * GLOBAL.
 */
CUresult capture_unsafe(void)
{
	CUresult rc = CUDA_SUCCESS;

	if (tls.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (struct capture *c = captures; c; c = c->next) {
		bool local = pthread_equal(c->thread, pthread_self());

		if (local ? c->mode == CU_STREAM_CAPTURE_MODE_RELAXED
			  : c->mode != CU_STREAM_CAPTURE_MODE_GLOBAL ||
				    tls.capture_mode != CU_STREAM_CAPTURE_MODE_GLOBAL)
			continue;
		c->invalid = true;
		rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return rc;
}

/* The capture that makes the legacy stream of @s unusable; invalidated if so wanted. */
static bool implicit(const struct stream *s, bool invalidate)
{
	struct stream *other;
	bool found = false;

	if (!captures || s != s->ctx->legacy)
		return false;
	OBJ_EACH(other, OBJ_STREAM) {
		if (!other->capture || other->ctx != s->ctx ||
		    other->flags & CU_STREAM_NON_BLOCKING)
			continue;
		found = true;
		other->capture->invalid |= invalidate;
	}
	return found;
}

int capture_check(struct stream *s)
{
	if (s->capture)
		return s->capture->invalid ? -CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : 1;
	return implicit(s, true) ? -CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : 0;
}

CUresult capture_refuse(struct stream *s)
{
	if (s->capture)
		s->capture->invalid = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static void set_deps(struct stream *s, const CUgraphNode *deps, size_t n)
{
	CUgraphNode *copy = n ? malloc(n * sizeof(*copy)) : NULL;

	if (n)
		memcpy(copy, deps, n * sizeof(*copy));
	free(s->deps);
	s->deps = copy;
	s->n_deps = n;
}

static void add_deps(struct stream *s, const CUgraphNode *deps, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		size_t at = 0;

		while (at < s->n_deps && s->deps[at] != deps[i])
			at++;
		if (at < s->n_deps)
			continue;
		s->deps = realloc(s->deps, (s->n_deps + 1) * sizeof(*s->deps));
		s->deps[s->n_deps++] = deps[i];
	}
}

CUresult capture_add(struct stream *s, struct op *op, CUgraphNode *out)
{
	CUgraphNode handle;
	struct node *node;
	CUresult rc = graph_add(s->capture->graph, op, s->deps, s->n_deps, &node);

	if (rc) {
		s->capture->invalid = true;
		return rc;
	}
	handle = (CUgraphNode)node;
	set_deps(s, &handle, 1);
	if (out)
		*out = handle;
	return CUDA_SUCCESS;
}

/* ---- joins through events ---- */

static struct capture *capture_of(const struct event *e)
{
	for (struct capture *c = captures; c; c = c->next)
		if (e->capture_id && c->id == e->capture_id)
			return c;
	return NULL;
}

bool event_captured(const struct event *e)
{
	return capture_of(e);
}

CUresult capture_event_record(struct stream *s, struct event *e)
{
	free(e->deps);
	e->n_deps = s->n_deps;
	e->deps = malloc((s->n_deps + 1) * sizeof(*e->deps));
	for (size_t i = 0; i < s->n_deps; i++)
		e->deps[i] = s->deps[i];
	e->capture_id = s->capture->id;
	return CUDA_SUCCESS;
}

CUresult capture_event_wait(struct stream *s, struct event *e)
{
	struct capture *c = capture_of(e);

	if (!c) {
		if (!e->stream_serial)
			return CUDA_SUCCESS;	/* never recorded: no effect */
		s->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (c->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (s == s->ctx->legacy) {
		c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (s->capture && s->capture != c) {
		c->invalid = s->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	s->capture = c;
	add_deps(s, e->deps, e->n_deps);
	return CUDA_SUCCESS;
}

/* ---- begin and end ---- */

static CUresult begin(CUstream h, struct graph *graph, CUstreamCaptureMode mode)
{
	struct stream *s = stream_get(h);
	struct capture *c;

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (s == s->ctx->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (s->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	c = calloc(1, sizeof(*c));
	*c = (struct capture){
		.id = ++last_id, .mode = mode, .thread = pthread_self(), .origin = s,
		.graph = graph ? graph : graph_new(), .to_graph = graph != NULL, .next = captures,
	};
	captures = c;
	s->capture = c;
	return CUDA_SUCCESS;
}

CUresult do_cuStreamBeginCapture_v2(CUstream h, CUstreamCaptureMode mode)
{
	return begin(h, NULL, mode);
}

CUresult do_cuStreamBeginCapture(CUstream h)
{
	return begin(h, NULL, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult do_cuStreamBeginCaptureToGraph(CUstream h, CUgraph graph, const CUgraphNode *deps,
					const CUgraphEdgeData *data, size_t n,
					CUstreamCaptureMode mode)
{
	struct graph *g = obj_get(graph, OBJ_GRAPH);
	struct node *node;
	CUresult rc;

	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		node = obj_get(deps[i], OBJ_NODE);
		if (!node || node->graph != g)
			return CUDA_ERROR_INVALID_VALUE;
	}
	rc = begin(h, g, mode);
	if (!rc)
		set_deps(stream_get(h), deps, n);
	return rc;
}

/* Did every stream that joined come back to the origin? */
static bool unjoined(const struct capture *c)
{
	const struct stream *origin = c->origin;
	struct stream *s;

	OBJ_EACH(s, OBJ_STREAM) {
		if (s->capture != c || s == origin)
			continue;
		for (size_t i = 0; i < s->n_deps; i++) {
			bool joined = false;

			for (size_t k = 0; k < origin->n_deps && !joined; k++)
				joined = graph_reaches(c->graph, (struct node *)s->deps[i],
						       (struct node *)origin->deps[k]);
			if (!joined)
				return true;
		}
	}
	return false;
}

static void capture_end(struct capture *c)
{
	struct stream *s;

	OBJ_EACH(s, OBJ_STREAM) {
		if (s->capture != c)
			continue;
		s->capture = NULL;
		set_deps(s, NULL, 0);
	}
	for (struct capture **at = &captures; *at; at = &(*at)->next) {
		if (*at != c)
			continue;
		*at = c->next;
		break;
	}
	free(c);
}

CUresult do_cuStreamEndCapture(CUstream h, CUgraph *out)
{
	struct stream *s = stream_get(h);
	struct capture *c = s ? s->capture : NULL;
	CUresult rc = CUDA_SUCCESS;

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!c)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	    !pthread_equal(c->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	if (c->origin != s) {
		c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (c->invalid)
		rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (unjoined(c))
		rc = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	*out = rc ? NULL : (CUgraph)c->graph;
	if (rc && !c->to_graph)
		graph_delete(c->graph);
	capture_end(c);
	return rc;
}

void capture_forget(struct stream *s)
{
	struct capture *c = s->capture;

	if (!c)
		return;
	if (c->origin != s) {
		c->invalid = true;
		s->capture = NULL;
		set_deps(s, NULL, 0);
		return;
	}
	if (!c->to_graph)
		graph_delete(c->graph);
	capture_end(c);
}

/* ---- queries ---- */

CUresult do_cuStreamIsCapturing(CUstream h, CUstreamCaptureStatus *status)
{
	struct stream *s = stream_get(h);

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!s->capture && implicit(s, false))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	*status = !s->capture ? CU_STREAM_CAPTURE_STATUS_NONE
		  : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					: CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCaptureInfo_v2(CUstream h, CUstreamCaptureStatus *status, cuuint64_t *id,
				      CUgraph *graph, const CUgraphNode **deps, size_t *n)
{
	struct stream *s = stream_get(h);
	CUresult rc = do_cuStreamIsCapturing(h, status);

	if (rc || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return rc;
	if (id)
		*id = s->capture->id;
	if (graph)
		*graph = (CUgraph)s->capture->graph;
	if (deps)
		*deps = s->deps;
	if (n)
		*n = s->n_deps;
	return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCaptureInfo(CUstream h, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	return do_cuStreamGetCaptureInfo_v2(h, status, id, NULL, NULL, NULL);
}

CUresult do_cuStreamGetCaptureInfo_v3(CUstream h, CUstreamCaptureStatus *status, cuuint64_t *id,
				      CUgraph *graph, const CUgraphNode **deps,
				      const CUgraphEdgeData **edges, size_t *n)
{
	if (edges)
		*edges = NULL;	/* all edges are full dependencies */
	return do_cuStreamGetCaptureInfo_v2(h, status, id, graph, deps, n);
}

CUresult do_cuStreamUpdateCaptureDependencies(CUstream h, CUgraphNode *deps, size_t n,
					      unsigned int flags)
{
	struct stream *s = stream_get(h);

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!s->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		set_deps(s, deps, n);
	else
		add_deps(s, deps, n);
	return CUDA_SUCCESS;
}

CUresult do_cuStreamUpdateCaptureDependencies_v2(CUstream h, CUgraphNode *deps,
						 const CUgraphEdgeData *data, size_t n,
						 unsigned int flags)
{
	return do_cuStreamUpdateCaptureDependencies(h, deps, n, flags);
}
