/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executable graphs: instantiation in all generations, update, parameters, launch. Under sim_lock.
 *
 * An exec keeps what the template held at instantiation; changes and the end of the template do not
 * reach it. Nodes are named by the template's handles.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static void tell_starting(const struct graph *g)
{
	tool_tell((struct sim_tool_data){ .event = SIM_TOOL_EXEC_CREATE_STARTING, .graph = g });
}

/* The clone that an exec is made of is real only to a tool; the program is what runs. */
static void tell_created(struct exec *e, const struct graph *g)
{
	if (!tool_listens())
		return;
	tell_starting(g);
	e->clone = graph_clone(g);
	e->clone->owned = true;
	tool_tell((struct sim_tool_data){ .event = SIM_TOOL_EXEC_CREATED, .exec = e, .graph = g });
}

static CUresult instantiate(CUgraphExec *out, CUgraph h, uint64_t flags)
{
	struct graph *g = obj_get(h, OBJ_GRAPH);
	struct program *p;
	struct exec *e;

	if (!g || !out || flags & ~15ull)
		return CUDA_ERROR_INVALID_VALUE;
	/* "Only one instantiation of the graph may exist at any point in time." */
	if (g->mem_nodes && g->execs) {
		tell_starting(g);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	p = program_new(g);
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	e = obj_new(OBJ_EXEC, sizeof(*e));
	e->program = p;
	e->flags = flags;
	e->ctx = context_current();
	e->graph = g;
	g->execs++;
	*out = (CUgraphExec)e;
	tell_created(e, g);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
	return instantiate(out, g, flags);
}

CUresult do_cuGraphInstantiate_v2(CUgraphExec *out, CUgraph g, CUgraphNode *error, char *log,
				  size_t size)
{
	if (error)
		*error = NULL;
	if (log && size)
		*log = 0;
	return instantiate(out, g, 0);
}
SAME_ABI(do_cuGraphInstantiate, do_cuGraphInstantiate_v2);

CUresult do_cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph g,
					 CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	CUresult rc = instantiate(out, g, params->flags);

	params->hErrNode_out = NULL;
	params->result_out = rc ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
	return rc;
}

CUresult do_cuGraphExecDestroy(CUgraphExec h)
{
	struct exec *e = obj_get(h, OBJ_EXEC);

	if (!e)
		return CUDA_ERROR_INVALID_VALUE;
	tool_tell((struct sim_tool_data){ .event = SIM_TOOL_EXEC_DESTROY_STARTING, .exec = e });
	if (e->graph)
		e->graph->execs--;
	if (e->clone)
		graph_delete(e->clone);
	program_put(e->program);
	obj_drop(e);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphExecGetFlags(CUgraphExec h, cuuint64_t *flags)
{
	struct exec *e = obj_get(h, OBJ_EXEC);

	if (!e)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = e->flags;
	return CUDA_SUCCESS;
}

/* ---- launch ---- */

static bool frees(const struct program *p, uint64_t dptr)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->step[i].op->p.type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
		    p->step[i].op->p.free.dptr == dptr)
			return true;
	return false;
}

/*
 * "If any allocations created by the graph remain unfreed, the launch fails", unless the exec frees
 * them itself first.
 */
static CUresult before_launch(struct exec *e, struct stream *s)
{
	struct program *p = e->program;

	for (size_t i = 0; i < p->n; i++) {
		const CUgraphNodeParams *n = &p->step[i].op->p;
		struct range *r;

		if (n->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || frees(p, n->alloc.dptr))
			continue;
		stream_run(s, s->submitted, false);
		r = range_exact(n->alloc.dptr);
		if (r && !(e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* What the launch itself does, ahead of the work: conditionals start over, event nodes wait. */
static void at_launch(const struct program *p, struct stream *s, bool after)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct step *step = &p->step[i];
		const CUgraphNodeParams *n = &step->op->p;
		struct event *e = NULL;

		if (n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && !after)
			conditional_reset(n->conditional.handle);
		if (n->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT && !after)
			e = obj_get(n->eventWait.event, OBJ_EVENT);
		if (e && e->stream_serial && obj_get(e->stream, OBJ_STREAM))
			stream_wait(s, e->stream, e->seq);
		if (n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD && after) {
			e = obj_get(n->eventRecord.event, OBJ_EVENT);
			if (e)
				event_record(e, s);
		}
		for (unsigned b = 0; b < step->bodies; b++)
			at_launch(step->body[b], s, after);
	}
}

/* A template with what the exec runs: where a launch into a capture becomes a child node. */
static struct graph *graph_of(const struct program *p)
{
	struct graph *g = graph_new();

	g->owned = true;
	for (size_t i = 0; i < p->n; i++) {
		const struct step *s = &p->step[i];
		struct node *n = graph_append(g, op_copy(s->op));

		if (s->bodies && s->op->p.type == CU_GRAPH_NODE_TYPE_GRAPH) {
			n->bodies = 1;
			n->body = malloc(sizeof(*n->body));
			n->body[0] = graph_of(s->body[0]);
			n->op->p.graph.graph = (CUgraph)n->body[0];
		}
		tool_tell_node(SIM_TOOL_NODE_CREATED, n);
		for (size_t d = 0; d < s->n_deps; d++)
			graph_link(g, g->node[s->deps[d]], n, (CUgraphEdgeData){ 0 });
	}
	return g;
}

static bool has_special_nodes(const struct program *p)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->step[i].op->p.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
		    p->step[i].op->p.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
		    p->step[i].op->p.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
			return true;
	return false;
}

/* 13.0 refuses it, seen on an H200. */
static CUresult launch_into_capture(struct exec *e, struct stream *s)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	struct op *op;

	if (sim_version < SIM_CAPTURES_GRAPHS)
		return capture_refuse(s);
	if (has_special_nodes(e->program)) {
		s->capture->invalid = true;
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	p.graph.graph = (CUgraph)graph_of(e->program);
	p.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
	op_new(&p, &op);
	return capture_add(s, op, NULL);
}

CUresult do_cuGraphLaunch(CUgraphExec h, CUstream stream)
{
	struct exec *e = obj_get(h, OBJ_EXEC);
	struct stream *s = stream_get(stream);
	CUresult rc;
	int capture;

	if (!e || !s)
		return e ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	capture = capture_check(s);
	if (capture)
		return capture < 0 ? (CUresult)-capture : launch_into_capture(e, s);
	rc = before_launch(e, s);
	if (rc)
		return rc;
	at_launch(e->program, s, false);
	e->program->refs++;
	stream_submit_program(s, e->program);
	at_launch(e->program, s, true);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphUpload(CUgraphExec h, CUstream stream)
{
	if (!obj_get(h, OBJ_EXEC))
		return CUDA_ERROR_INVALID_VALUE;
	return stream_get(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- update ---- */

/* Launches in flight keep what they were launched with. */
static void own(struct exec *e)
{
	struct program *p;

	if (e->program->refs == 1)
		return;
	p = program_clone(e->program);
	program_put(e->program);
	e->program = p;
}

/* The steps keep their names: nodes of the template the exec was instantiated from. */
static void keep_names(const struct program *from, struct program *to)
{
	for (size_t i = 0; i < from->n; i++) {
		to->step[i].node = from->step[i].node;
		to->step[i].enabled = from->step[i].enabled;
		for (unsigned b = 0; b < from->step[i].bodies; b++)
			keep_names(from->step[i].body[b], to->step[i].body[b]);
	}
}

CUresult do_cuGraphExecUpdate_v2(CUgraphExec h, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	struct exec *e = obj_get(h, OBJ_EXEC);
	struct graph *g = obj_get(graph, OBJ_GRAPH);
	const struct step *at = NULL;
	struct program *p;

	if (!e || !g || !info)
		return CUDA_ERROR_INVALID_VALUE;
	memset(info, 0, sizeof(*info));
	p = program_new(g);
	info->result = p ? program_compare(e->program, p, &at) : CU_GRAPH_EXEC_UPDATE_ERROR;
	if (info->result) {
		info->errorNode = at ? at->handle : NULL;
		program_put(p);
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	}
	keep_names(e->program, p);
	program_put(e->program);
	e->program = p;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphExecUpdate(CUgraphExec e, CUgraph g, CUgraphNode *error,
			      CUgraphExecUpdateResult *result)
{
	CUgraphExecUpdateResultInfo info = { 0 };
	CUresult rc = do_cuGraphExecUpdate_v2(e, g, &info);

	if (error)
		*error = info.errorNode;
	if (result)
		*result = info.result;
	return rc;
}

static struct step *step_of(CUgraphExec h, CUgraphNode node, struct exec **exec)
{
	struct node *n = obj_get(node, OBJ_NODE);
	struct exec *e = obj_get(h, OBJ_EXEC);

	if (!e || !n)
		return NULL;
	*exec = e;
	own(e);
	return program_find(e->program, n->obj.serial);
}

static CUresult set(CUgraphExec h, CUgraphNode node, const CUgraphNodeParams *p)
{
	struct exec *e;
	struct step *s = step_of(h, node, &e);
	struct op *op;
	CUresult rc;

	if (!s || s->op->p.type != p->type)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || p->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
	    p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return CUDA_ERROR_NOT_SUPPORTED;
	rc = op_new(p, &op);
	if (rc)
		return rc;
	op_put(s->op);
	s->op = op;
	tool_tell((struct sim_tool_data){
		.event = SIM_TOOL_NODE_SET_PARAMS,
		.exec = e,
		.node = node,
		.type = p->type,
	});
	return CUDA_SUCCESS;
}

CUresult do_cuGraphExecChildGraphNodeSetParams(CUgraphExec h, CUgraphNode node, CUgraph child)
{
	struct graph *g = obj_get(child, OBJ_GRAPH);
	const struct step *at;
	struct program *p;
	struct exec *e;
	struct step *s = step_of(h, node, &e);

	if (!s || !g || s->op->p.type != CU_GRAPH_NODE_TYPE_GRAPH)
		return CUDA_ERROR_INVALID_VALUE;
	p = program_new(g);
	if (!p || program_compare(s->body[0], p, &at)) {
		program_put(p);
		return CUDA_ERROR_INVALID_VALUE;
	}
	keep_names(s->body[0], p);
	program_put(s->body[0]);
	s->body[0] = p;
	tool_tell((struct sim_tool_data){
		.event = SIM_TOOL_NODE_SET_PARAMS,
		.exec = e,
		.node = node,
		.type = CU_GRAPH_NODE_TYPE_GRAPH,
	});
	return CUDA_SUCCESS;
}

CUresult do_cuGraphExecNodeSetParams(CUgraphExec h, CUgraphNode node, CUgraphNodeParams *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->type == CU_GRAPH_NODE_TYPE_GRAPH)
		return do_cuGraphExecChildGraphNodeSetParams(h, node, p->graph.graph);
	return set(h, node, p);
}

#define SET_PARAMS(Name, KIND, member, params_t)                                               \
	CUresult do_cuGraphExec##Name(CUgraphExec h, CUgraphNode node, const params_t *params) \
	{                                                                                      \
		CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_##KIND };                   \
                                                                                               \
		memcpy(&p.member, params, sizeof(*params));                                    \
		return set(h, node, &p);                                                       \
	}
SET_PARAMS(KernelNodeSetParams_v2, KERNEL, kernel, CUDA_KERNEL_NODE_PARAMS)
SET_PARAMS(KernelNodeSetParams, KERNEL, kernel, CUDA_KERNEL_NODE_PARAMS_v1)
SET_PARAMS(HostNodeSetParams, HOST, host, CUDA_HOST_NODE_PARAMS)
SET_PARAMS(BatchMemOpNodeSetParams, BATCH_MEM_OP, memOp, CUDA_BATCH_MEM_OP_NODE_PARAMS)
SET_PARAMS(ExternalSemaphoresSignalNodeSetParams, EXT_SEMAS_SIGNAL, extSemSignal,
	   CUDA_EXT_SEM_SIGNAL_NODE_PARAMS)
SET_PARAMS(ExternalSemaphoresWaitNodeSetParams, EXT_SEMAS_WAIT, extSemWait,
	   CUDA_EXT_SEM_WAIT_NODE_PARAMS)

CUresult do_cuGraphExecMemcpyNodeSetParams(CUgraphExec h, CUgraphNode node, const CUDA_MEMCPY3D *c,
					   CUcontext ctx)
{
	CUgraphNodeParams p;

	params_memcpy(&p, c, ctx);
	return set(h, node, &p);
}

CUresult do_cuGraphExecMemsetNodeSetParams(CUgraphExec h, CUgraphNode node,
					   const CUDA_MEMSET_NODE_PARAMS *m, CUcontext ctx)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_MEMSET };

	memcpy(&p.memset, m, sizeof(*m));
	p.memset.ctx = ctx;
	return set(h, node, &p);
}

CUresult do_cuGraphExecEventRecordNodeSetEvent(CUgraphExec h, CUgraphNode node, CUevent event)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = { event } };

	return set(h, node, &p);
}

CUresult do_cuGraphExecEventWaitNodeSetEvent(CUgraphExec h, CUgraphNode node, CUevent event)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = { event } };

	return set(h, node, &p);
}

/* "Currently only kernel, memset and memcpy nodes are supported." */
static bool can_disable(const struct step *s)
{
	return s && (s->op->p.type == CU_GRAPH_NODE_TYPE_KERNEL ||
		     s->op->p.type == CU_GRAPH_NODE_TYPE_MEMSET ||
		     s->op->p.type == CU_GRAPH_NODE_TYPE_MEMCPY);
}

CUresult do_cuGraphNodeSetEnabled(CUgraphExec h, CUgraphNode node, unsigned int enabled)
{
	struct exec *e;
	struct step *s = step_of(h, node, &e);

	if (!can_disable(s))
		return CUDA_ERROR_INVALID_VALUE;
	s->enabled = enabled;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphNodeGetEnabled(CUgraphExec h, CUgraphNode node, unsigned int *enabled)
{
	struct exec *e;
	struct step *s = step_of(h, node, &e);

	if (!can_disable(s))
		return CUDA_ERROR_INVALID_VALUE;
	*enabled = s->enabled;
	return CUDA_SUCCESS;
}
