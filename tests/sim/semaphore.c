/* SPDX-License-Identifier: Apache-2.0 */
/*
 * External semaphores, user objects: handles that programs pass around. Under sim_lock.
 *
 * A semaphore is signalled and waited for in stream order without anybody at the other end. A user
 * object counts its references; the last one calls its destructor.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>

struct semaphore {
	struct obj obj;
};

CUresult do_cuImportExternalSemaphore(CUexternalSemaphore *out,
				      const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc)
{
	if (!out || !desc)
		return CUDA_ERROR_INVALID_VALUE;
	*out = obj_new(OBJ_SEMAPHORE, sizeof(struct semaphore));
	return CUDA_SUCCESS;
}

CUresult do_cuDestroyExternalSemaphore(CUexternalSemaphore h)
{
	struct semaphore *s = obj_get(h, OBJ_SEMAPHORE);

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	obj_drop(s);
	return CUDA_SUCCESS;
}

CUresult do_cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *list,
					    const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
					    unsigned int n, CUstream stream)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL };

	p.extSemSignal.extSemArray = (CUexternalSemaphore *)list;
	p.extSemSignal.paramsArray = params;
	p.extSemSignal.numExtSems = n;
	return stream_launch(stream, &p);
}

CUresult do_cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *list,
					  const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
					  unsigned int n, CUstream stream)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT };

	p.extSemWait.extSemArray = (CUexternalSemaphore *)list;
	p.extSemWait.paramsArray = params;
	p.extSemWait.numExtSems = n;
	return stream_launch(stream, &p);
}

/* ---- user objects ---- */

struct user {
	struct obj obj;
	void *data;
	CUhostFn destroy;
	unsigned refs;
};

void user_release(struct user *u, unsigned n)
{
	u->refs -= MIN(n, u->refs);
	if (u->refs)
		return;
	tls.in_callback = true;
	u->destroy(u->data);
	tls.in_callback = false;
	obj_drop(u);
}

CUresult do_cuUserObjectCreate(CUuserObject *out, void *data, CUhostFn destroy,
			       unsigned int refs, unsigned int flags)
{
	struct user *u;

	if (!out || !destroy || !refs || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	u = obj_new(OBJ_USER, sizeof(*u));
	u->data = data;
	u->destroy = destroy;
	u->refs = refs;
	*out = (CUuserObject)u;
	return CUDA_SUCCESS;
}

CUresult do_cuUserObjectRetain(CUuserObject h, unsigned int n)
{
	struct user *u = obj_get(h, OBJ_USER);

	if (!u || !n)
		return CUDA_ERROR_INVALID_VALUE;
	u->refs += n;
	return CUDA_SUCCESS;
}

CUresult do_cuUserObjectRelease(CUuserObject h, unsigned int n)
{
	struct user *u = obj_get(h, OBJ_USER);

	if (!u || !n || n > u->refs)
		return CUDA_ERROR_INVALID_VALUE;
	user_release(u, n);
	return CUDA_SUCCESS;
}

/* "CU_GRAPH_USER_OBJECT_MOVE: the caller's references pass to the graph." */
CUresult do_cuGraphRetainUserObject(CUgraph graph, CUuserObject h, unsigned int n,
				    unsigned int flags)
{
	struct graph *g = obj_get(graph, OBJ_GRAPH);
	struct user *u = obj_get(h, OBJ_USER);

	if (!g || !u || !n || flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
		u->refs += n;
	g->user = realloc(g->user, (g->n_users + n) * sizeof(*g->user));
	for (unsigned i = 0; i < n; i++)
		g->user[g->n_users++] = u;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphReleaseUserObject(CUgraph graph, CUuserObject h, unsigned int n)
{
	struct graph *g = obj_get(graph, OBJ_GRAPH);
	struct user *u = obj_get(h, OBJ_USER);
	unsigned held = 0;

	for (size_t i = 0; g && u && i < g->n_users; i++)
		held += g->user[i] == u;
	if (!n || n > held)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = g->n_users, left = n; left; i--) {
		if (g->user[i - 1] != u)
			continue;
		g->user[i - 1] = g->user[--g->n_users];
		left--;
	}
	user_release(u, n);
	return CUDA_SUCCESS;
}
