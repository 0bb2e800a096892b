/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs: what an exec runs, built from a template once and never looking back at it. Under
 * sim_lock.
 *
 * A program is shared by its exec and the launches in flight; whoever changes it copies it first.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static bool is_alloc(const struct step *s)
{
	return s->op->p.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
}

static void copy_edges(const struct graph *g, struct program *p)
{
	size_t *place = calloc(g->n + 1, sizeof(*place));

	for (size_t i = 0; i < p->n; i++)
		place[((struct node *)p->step[i].handle)->index] = i;
	for (size_t i = 0; i < g->n_edges; i++) {
		struct step *to = &p->step[place[g->edge[i].to->index]];

		to->deps = realloc(to->deps, (to->n_deps + 1) * sizeof(*to->deps));
		to->deps[to->n_deps++] = place[g->edge[i].from->index];
	}
	free(place);
}

struct program *program_new(const struct graph *g)
{
	struct node **order = graph_order(g);
	struct program *p;

	if (!order)
		return NULL;
	p = calloc(1, sizeof(*p));
	p->refs = 1;
	p->n = g->n;
	p->step = calloc(g->n + 1, sizeof(*p->step));
	for (size_t i = 0; i < g->n; i++) {
		struct step *s = &p->step[i];
		const struct node *n = order[i];

		s->node = n->obj.serial;
		s->handle = (CUgraphNode)n;
		s->op = op_copy(n->op);
		s->enabled = true;
		s->bodies = n->bodies;
		s->body = calloc(n->bodies + 1, sizeof(*s->body));
		for (unsigned b = 0; b < n->bodies; b++)
			s->body[b] = program_new(n->body[b]);
		if (is_alloc(s))
			graph_memory_hold(s->op->p.alloc.dptr);
	}
	copy_edges(g, p);
	free(order);
	return p;
}

struct program *program_clone(const struct program *from)
{
	struct program *p = calloc(1, sizeof(*p));

	p->refs = 1;
	p->n = from->n;
	p->step = calloc(p->n + 1, sizeof(*p->step));
	for (size_t i = 0; i < p->n; i++) {
		struct step *s = &p->step[i];

		*s = from->step[i];
		op_ref(s->op);
		s->deps = malloc((s->n_deps + 1) * sizeof(*s->deps));
		if (s->n_deps)
			memcpy(s->deps, from->step[i].deps, s->n_deps * sizeof(*s->deps));
		s->body = calloc(s->bodies + 1, sizeof(*s->body));
		for (unsigned b = 0; b < s->bodies; b++)
			s->body[b] = program_clone(from->step[i].body[b]);
		if (is_alloc(s))
			graph_memory_hold(s->op->p.alloc.dptr);
	}
	return p;
}

void program_put(struct program *p)
{
	if (!p || --p->refs)
		return;
	for (size_t i = 0; i < p->n; i++) {
		struct step *s = &p->step[i];

		if (is_alloc(s))
			graph_memory_put(s->op->p.alloc.dptr);
		for (unsigned b = 0; b < s->bodies; b++)
			program_put(s->body[b]);
		free(s->body);
		free(s->deps);
		op_put(s->op);
	}
	free(p->step);
	free(p);
}

struct step *program_find(struct program *p, uint64_t node)
{
	struct step *found = NULL;

	for (size_t i = 0; i < p->n && !found; i++) {
		if (p->step[i].node == node)
			return &p->step[i];
		for (unsigned b = 0; b < p->step[i].bodies && !found; b++)
			found = program_find(p->step[i].body[b], node);
	}
	return found;
}

static CUgraphExecUpdateResult compare_step(const struct step *a, const struct step *b,
					    const struct step **at)
{
	CUgraphExecUpdateResult r = CU_GRAPH_EXEC_UPDATE_SUCCESS;

	*at = b;
	if (a->op->p.type != b->op->p.type)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	if (a->n_deps != b->n_deps ||
	    (a->n_deps && memcmp(a->deps, b->deps, a->n_deps * sizeof(*a->deps))))
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	if (a->bodies != b->bodies)
		return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	/* Addresses of memory nodes and handles of conditionals are fixed at instantiation. */
	if (is_alloc(a) && a->op->p.alloc.dptr != b->op->p.alloc.dptr)
		return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	if (a->op->p.type == CU_GRAPH_NODE_TYPE_CONDITIONAL &&
	    a->op->p.conditional.handle != b->op->p.conditional.handle)
		return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	for (unsigned i = 0; i < a->bodies && !r; i++)
		r = program_compare(a->body[i], b->body[i], at);
	return r;
}

CUgraphExecUpdateResult program_compare(const struct program *a, const struct program *b,
					const struct step **at)
{
	CUgraphExecUpdateResult r = CU_GRAPH_EXEC_UPDATE_SUCCESS;

	for (size_t i = 0; i < MIN(a->n, b->n) && !r; i++)
		r = compare_step(&a->step[i], &b->step[i], at);
	if (r)
		return r;
	*at = b->n > a->n ? &b->step[a->n] : NULL;
	return a->n == b->n ? CU_GRAPH_EXEC_UPDATE_SUCCESS
			    : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
}

/* ---- conditional handles ---- */

struct conditional {
	unsigned value, initial;
	bool assign;
};
static struct conditional *conditionals;
static size_t n_conditionals;

CUresult do_cuGraphConditionalHandleCreate(CUgraphConditionalHandle *out, CUgraph h, CUcontext ctx,
					   unsigned int initial, unsigned int flags)
{
	if (!out || !obj_get(h, OBJ_GRAPH) || flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT)
		return CUDA_ERROR_INVALID_VALUE;
	conditionals = realloc(conditionals, (n_conditionals + 1) * sizeof(*conditionals));
	conditionals[n_conditionals] = (struct conditional){
		.initial = initial, .assign = flags & CU_GRAPH_COND_ASSIGN_DEFAULT,
	};
	*out = ++n_conditionals;
	return CUDA_SUCCESS;
}

CUresult conditional_value(uint64_t handle, unsigned **value)
{
	if (!handle || handle > n_conditionals)
		return CUDA_ERROR_INVALID_VALUE;
	*value = &conditionals[handle - 1].value;
	return CUDA_SUCCESS;
}

void conditional_reset(uint64_t handle)
{
	struct conditional *c = &conditionals[handle - 1];

	if (c->assign)
		c->value = c->initial;
}
