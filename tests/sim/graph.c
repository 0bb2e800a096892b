/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates: nodes and edges, clones, the addresses of alloc nodes. Under sim_lock.
 *
 * An alloc node gets its address when it is created, from address space of its own; the address
 * goes back when the graph is destroyed. Within a graph an address is used again behind its free
 * node (programming guide, "optimized memory reuse": virtual addresses are reused within a graph
 * only).
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory of alloc nodes ---- */

struct graph_block {
	uint64_t base, size;
	char *host;
	unsigned users;			/* nodes with this address */
	struct graph_block *next;
};
static struct graph_block *blocks;

static struct graph_block *block_at(uint64_t base)
{
	struct graph_block *b = blocks;

	while (b && b->base != base)
		b = b->next;
	return b;
}

char *graph_memory(uint64_t addr)
{
	struct graph_block *b = block_at(addr);

	return b ? b->host : NULL;
}

void graph_memory_hold(uint64_t addr)
{
	block_at(addr)->users++;
}

static struct graph_block *block_new(uint64_t size)
{
	struct graph_block *b = malloc(sizeof(*b));

	*b = (struct graph_block){ .size = ROUND_UP(size, GRANULE), .next = blocks };
	b->base = address_take(b->size, 0, 0);
	b->host = b->base ? backing_new(b->size) : NULL;
	if (!b->host) {
		free(b);
		return NULL;
	}
	blocks = b;
	return b;
}

void graph_memory_put(uint64_t base)
{
	struct range *r = range_exact(base);
	struct graph_block *b;

	for (struct graph_block **at = &blocks; (b = *at); at = &b->next) {
		if (b->base != base)
			continue;
		if (--b->users)
			return;
		*at = b->next;
		if (r)		/* never freed: it ends with the graph here */
			range_end(r);
		backing_free(b->host, b->size);
		address_give(b->base, b->size);
		free(b);
		return;
	}
}

/* ---- structure ---- */

struct graph *graph_new(void)
{
	struct graph *g = obj_new(OBJ_GRAPH, sizeof(*g));

	tool_tell((struct sim_tool_data){ .event = SIM_TOOL_GRAPH_CREATED, .graph = g });
	return g;
}

static void node_delete(struct node *n)
{
	tool_tell_node(SIM_TOOL_NODE_DESTROY_STARTING, n);
	if (n->op->p.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		graph_memory_put(n->op->p.alloc.dptr);
	for (unsigned i = 0; i < n->bodies; i++)
		graph_delete(n->body[i]);
	free(n->body);
	op_put(n->op);
	obj_drop(n);
}

void graph_delete(struct graph *g)
{
	struct exec *e;

	tool_tell((struct sim_tool_data){ .event = SIM_TOOL_GRAPH_DESTROY_STARTING, .graph = g });
	OBJ_EACH(e, OBJ_EXEC)
		if (e->graph == g)
			e->graph = NULL;
	for (size_t i = 0; i < g->n; i++)
		node_delete(g->node[i]);
	for (size_t i = 0; i < g->n_users; i++)
		user_release(g->user[i], 1);
	free(g->user);
	free(g->node);
	free(g->edge);
	obj_drop(g);
}

void graph_link(struct graph *g, struct node *from, struct node *to, CUgraphEdgeData data)
{
	if (g->n_edges == g->cap_edges) {
		g->cap_edges = g->cap_edges ? g->cap_edges * 2 : 16;
		g->edge = realloc(g->edge, g->cap_edges * sizeof(*g->edge));
	}
	g->edge[g->n_edges++] = (struct edge){ from, to, data };
	tool_tell((struct sim_tool_data){
		.event = SIM_TOOL_EDGE_CREATED, .graph = g, .node = to, .dependency = from,
	});
}

struct node *graph_append(struct graph *g, struct op *op)
{
	struct node *n = obj_new(OBJ_NODE, sizeof(*n));

	if (g->n == g->cap) {
		g->cap = g->cap ? g->cap * 2 : 16;
		g->node = realloc(g->node, g->cap * sizeof(*g->node));
	}
	n->graph = g;
	n->op = op;
	n->index = g->n;
	g->node[g->n++] = n;
	return n;
}

bool graph_reaches(const struct graph *g, const struct node *from, const struct node *to)
{
	bool *mark = calloc(g->n, 1), changed = true, found;

	mark[to->index] = true;
	while (changed && !mark[from->index]) {
		changed = false;
		for (size_t i = g->n_edges; i-- > 0;) {
			if (!mark[g->edge[i].to->index] || mark[g->edge[i].from->index])
				continue;
			mark[g->edge[i].from->index] = changed = true;
		}
	}
	found = mark[from->index];
	free(mark);
	return found;
}

struct node **graph_order(const struct graph *g)
{
	struct node **order = calloc(g->n + 1, sizeof(*order));
	size_t *first = calloc(g->n + 2, sizeof(*first));	/* edges by their from node */
	size_t *to = calloc(g->n_edges + 1, sizeof(*to));
	size_t *missing = calloc(g->n + 1, sizeof(*missing));
	size_t n = 0;

	for (size_t i = 0; i < g->n_edges; i++) {
		first[g->edge[i].from->index + 2]++;
		missing[g->edge[i].to->index]++;
	}
	for (size_t i = 2; i < g->n + 2; i++)
		first[i] += first[i - 1];
	for (size_t i = 0; i < g->n_edges; i++)
		to[first[g->edge[i].from->index + 1]++] = g->edge[i].to->index;
	for (size_t i = 0; i < g->n; i++)
		if (!missing[i])
			order[n++] = g->node[i];
	for (size_t done = 0; done < n; done++)
		for (size_t k = first[order[done]->index]; k < first[order[done]->index + 1]; k++)
			if (!--missing[to[k]])
				order[n++] = g->node[to[k]];
	free(first);
	free(to);
	free(missing);
	if (n == g->n)
		return order;
	free(order);
	return NULL;
}

/* ---- adding nodes ---- */

static CUresult check_deps(const struct graph *g, const CUgraphNode *deps, size_t n)
{
	struct node *d;

	if (n && !deps)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		d = obj_get(deps[i], OBJ_NODE);
		if (!d || d->graph != g)
			return CUDA_ERROR_INVALID_VALUE;
		for (size_t k = 0; k < i; k++)
			if (deps[k] == deps[i])
				return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* An address whose free node lies before the new node, or a new one. */
static CUresult place_alloc(struct graph *g, struct op *op, const CUgraphNode *deps, size_t n)
{
	struct graph_block *b = NULL;
	struct node *f;

	for (size_t i = 0; i < g->n && !b; i++) {
		f = g->node[i];
		if (f->op->p.type != CU_GRAPH_NODE_TYPE_MEM_FREE || f->reused)
			continue;
		b = block_at(f->op->p.free.dptr);
		if (b && b->size != ROUND_UP(op->p.alloc.bytesize, GRANULE))
			b = NULL;
		for (size_t k = 0; b && k < n; k++) {
			if (!graph_reaches(g, f, (struct node *)deps[k]))
				continue;
			f->reused = true;
			goto found;
		}
		b = NULL;
	}
	b = block_new(op->p.alloc.bytesize);
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
found:
	b->users++;
	op->p.alloc.dptr = b->base;
	g->mem_nodes = true;
	return CUDA_SUCCESS;
}

static CUresult place_free(struct graph *g, const struct op *op)
{
	struct node *a;

	if (!block_at(op->p.free.dptr))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = g->n; i-- > 0;) {
		a = g->node[i];
		if (a->op->p.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
		    a->op->p.alloc.dptr == op->p.free.dptr) {
			if (a->freed)
				return CUDA_ERROR_INVALID_VALUE;	/* freed twice */
			a->freed = true;
			break;
		}
	}
	g->mem_nodes = true;
	return CUDA_SUCCESS;
}

/* "The graph is cloned into the node"; with memory nodes or a conditional it must not be there. */
static CUresult bodies_of_child(struct op *op, struct graph ***body)
{
	struct graph *child = obj_get(op->p.graph.graph, OBJ_GRAPH);

	if (!child)
		return CUDA_ERROR_INVALID_VALUE;
	if (op->p.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
		child->owned = true;
	} else {
		for (size_t i = 0; i < child->n; i++)
			if (child->mem_nodes ||
			    child->node[i]->op->p.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
				return CUDA_ERROR_NOT_SUPPORTED;
		child = graph_clone(child);
		child->owned = true;
	}
	*body = malloc(sizeof(**body));
	**body = child;
	op->p.graph.graph = (CUgraph)child;
	return CUDA_SUCCESS;
}

static CUresult bodies_of_conditional(struct op *op, struct graph ***body)
{
	CUDA_CONDITIONAL_NODE_PARAMS *c = &op->p.conditional;
	unsigned *value, most = c->type == CU_GRAPH_COND_TYPE_IF	? 2
				: c->type == CU_GRAPH_COND_TYPE_SWITCH ? ~0u
								       : 1;

	if (conditional_value(c->handle, &value) || !c->size || c->size > most)
		return CUDA_ERROR_INVALID_VALUE;
	*body = malloc(c->size * sizeof(**body));
	for (unsigned i = 0; i < c->size; i++) {
		(*body)[i] = graph_new();
		(*body)[i]->owned = true;
	}
	c->phGraph_out = (CUgraph *)*body;	/* owned by the node */
	return CUDA_SUCCESS;
}

CUresult graph_add(struct graph *g, struct op *op, const CUgraphNode *deps, size_t n,
		   struct node **out)
{
	CUresult rc = check_deps(g, deps, n);
	struct graph **body = NULL;
	unsigned bodies = 0;
	struct node *node;

	if (!rc && op->p.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
		rc = place_alloc(g, op, deps, n);
	} else if (!rc && op->p.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
		rc = place_free(g, op);
	} else if (!rc && op->p.type == CU_GRAPH_NODE_TYPE_GRAPH) {
		rc = bodies_of_child(op, &body);
		bodies = 1;
	} else if (!rc && op->p.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		rc = bodies_of_conditional(op, &body);
		bodies = op->p.conditional.size;
	}
	if (rc) {
		op_put(op);
		return rc;
	}
	tool_tell((struct sim_tool_data){
		.event = SIM_TOOL_NODE_CREATE_STARTING, .graph = g, .type = op->p.type,
	});
	node = graph_append(g, op);
	node->body = body;
	node->bodies = bodies;
	tool_tell_node(SIM_TOOL_NODE_CREATED, node);
	for (size_t i = 0; i < n; i++)
		graph_link(g, (struct node *)deps[i], node, (CUgraphEdgeData){ 0 });
	*out = node;
	return CUDA_SUCCESS;
}

static void tell_cloned(const struct node *from, const struct node *to)
{
	tool_tell_node(SIM_TOOL_NODE_CREATED, to);
	tool_tell((struct sim_tool_data){
		.event = SIM_TOOL_NODE_CLONED, .graph = to->graph, .node = to,
		.type = to->op->p.type, .original_graph = from->graph, .original_node = from,
	});
}

struct graph *graph_clone(const struct graph *g)
{
	struct graph *clone = graph_new();

	clone->mem_nodes = g->mem_nodes;
	for (size_t i = 0; i < g->n; i++) {
		struct node *from = g->node[i], *to = graph_append(clone, op_copy(from->op));

		to->origin = from->obj.serial;
		to->bodies = from->bodies;
		to->body = from->bodies ? malloc(from->bodies * sizeof(*to->body)) : NULL;
		for (unsigned b = 0; b < from->bodies; b++) {
			to->body[b] = graph_clone(from->body[b]);
			to->body[b]->owned = true;
		}
		if (to->op->p.type == CU_GRAPH_NODE_TYPE_GRAPH)
			to->op->p.graph.graph = (CUgraph)to->body[0];
		else if (to->op->p.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
			to->op->p.conditional.phGraph_out = (CUgraph *)to->body;
		else if (to->op->p.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
			graph_memory_hold(to->op->p.alloc.dptr);
		tell_cloned(from, to);
	}
	for (size_t i = 0; i < g->n_edges; i++)
		graph_link(clone, clone->node[g->edge[i].from->index],
			   clone->node[g->edge[i].to->index], g->edge[i].data);
	tool_tell((struct sim_tool_data){
		.event = SIM_TOOL_GRAPH_CLONED, .graph = clone, .original_graph = g,
	});
	return clone;
}

/* ---- entry points ---- */

CUresult do_cuGraphCreate(CUgraph *out, unsigned int flags)
{
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUgraph)graph_new();
	return CUDA_SUCCESS;
}

CUresult do_cuGraphDestroy(CUgraph h)
{
	struct graph *g = obj_get(h, OBJ_GRAPH);

	if (!g || g->owned)
		return CUDA_ERROR_INVALID_VALUE;
	graph_delete(g);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphClone(CUgraph *out, CUgraph h)
{
	struct graph *g = obj_get(h, OBJ_GRAPH);

	if (!g || !out)
		return CUDA_ERROR_INVALID_VALUE;
	if (g->mem_nodes)
		return CUDA_ERROR_NOT_SUPPORTED;	/* "The graph cannot be cloned." */
	*out = (CUgraph)graph_clone(g);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode original, CUgraph clone)
{
	struct node *n = obj_get(original, OBJ_NODE);
	struct graph *g = obj_get(clone, OBJ_GRAPH);

	for (size_t i = 0; g && n && i < g->n; i++) {
		if (g->node[i]->origin != n->obj.serial)
			continue;
		*out = (CUgraphNode)g->node[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphDestroyNode(CUgraphNode h)
{
	struct node *n = obj_get(h, OBJ_NODE);
	struct graph *g = n ? n->graph : NULL;
	size_t kept = 0;

	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	if (g->mem_nodes)
		return CUDA_ERROR_NOT_SUPPORTED;
	for (size_t i = 0; i < g->n_edges; i++)
		if (g->edge[i].from != n && g->edge[i].to != n)
			g->edge[kept++] = g->edge[i];
	g->n_edges = kept;
	g->n--;
	for (size_t i = n->index; i < g->n; i++) {
		g->node[i] = g->node[i + 1];
		g->node[i]->index = i;
	}
	node_delete(n);
	return CUDA_SUCCESS;
}
