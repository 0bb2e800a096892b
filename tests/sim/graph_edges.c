/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes and edges of a template: queries, adding and removing dependencies. Under sim_lock. */
#include "tests/sim/sim.h"

#include <string.h>

/* The common form of the list queries: NULL asks for the count; room that is left is cleared. */
static void list(CUgraphNode *out, size_t *n, struct node *node, size_t *found)
{
	if (out && *found < *n)
		out[*found] = (CUgraphNode)node;
	++*found;
}

static void list_end(CUgraphNode *out, size_t *n, size_t found)
{
	for (size_t i = found; out && i < *n; i++)
		out[i] = NULL;
	*n = out ? MIN(*n, found) : found;
}

CUresult do_cuGraphGetNodes(CUgraph h, CUgraphNode *nodes, size_t *n)
{
	struct graph *g = obj_get(h, OBJ_GRAPH);
	size_t found = 0;

	if (!g || !n)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < g->n; i++)
		list(nodes, n, g->node[i], &found);
	list_end(nodes, n, found);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphGetRootNodes(CUgraph h, CUgraphNode *nodes, size_t *n)
{
	struct graph *g = obj_get(h, OBJ_GRAPH);
	size_t found = 0;

	if (!g || !n)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < g->n; i++) {
		bool root = true;

		for (size_t k = 0; k < g->n_edges && root; k++)
			root = g->edge[k].to != g->node[i];
		if (root)
			list(nodes, n, g->node[i], &found);
	}
	list_end(nodes, n, found);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphGetEdges_v2(CUgraph h, CUgraphNode *from, CUgraphNode *to,
			       CUgraphEdgeData *data, size_t *n)
{
	struct graph *g = obj_get(h, OBJ_GRAPH);

	if (!g || !n || !from != !to)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; from && i < MIN(*n, g->n_edges); i++) {
		from[i] = (CUgraphNode)g->edge[i].from;
		to[i] = (CUgraphNode)g->edge[i].to;
		if (data)
			data[i] = g->edge[i].data;
	}
	*n = from ? MIN(*n, g->n_edges) : g->n_edges;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphGetEdges(CUgraph h, CUgraphNode *from, CUgraphNode *to, size_t *n)
{
	return do_cuGraphGetEdges_v2(h, from, to, NULL, n);
}

static CUresult neighbours(CUgraphNode h, CUgraphNode *nodes, size_t *n, bool before)
{
	struct node *node = obj_get(h, OBJ_NODE);
	size_t found = 0;

	if (!node || !n)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < node->graph->n_edges; i++) {
		const struct edge *e = &node->graph->edge[i];

		if ((before ? e->to : e->from) == node)
			list(nodes, n, before ? e->from : e->to, &found);
	}
	list_end(nodes, n, found);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphNodeGetDependencies(CUgraphNode h, CUgraphNode *nodes, size_t *n)
{
	return neighbours(h, nodes, n, true);
}

CUresult do_cuGraphNodeGetDependencies_v2(CUgraphNode h, CUgraphNode *nodes, CUgraphEdgeData *data,
					  size_t *n)
{
	if (data && n)
		memset(data, 0, *n * sizeof(*data));
	return neighbours(h, nodes, n, true);
}

CUresult do_cuGraphNodeGetDependentNodes(CUgraphNode h, CUgraphNode *nodes, size_t *n)
{
	return neighbours(h, nodes, n, false);
}

CUresult do_cuGraphNodeGetDependentNodes_v2(CUgraphNode h, CUgraphNode *nodes,
					    CUgraphEdgeData *data, size_t *n)
{
	if (data && n)
		memset(data, 0, *n * sizeof(*data));
	return neighbours(h, nodes, n, false);
}

CUresult do_cuGraphAddDependencies_v2(CUgraph h, const CUgraphNode *from, const CUgraphNode *to,
				      const CUgraphEdgeData *data, size_t n)
{
	struct graph *g = obj_get(h, OBJ_GRAPH);

	if (!g || (n && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		struct node *a = obj_get(from[i], OBJ_NODE), *b = obj_get(to[i], OBJ_NODE);

		if (!a || !b || a == b || a->graph != g || b->graph != g)
			return CUDA_ERROR_INVALID_VALUE;
		graph_link(g, a, b, data ? data[i] : (CUgraphEdgeData){ 0 });
	}
	return CUDA_SUCCESS;
}

CUresult do_cuGraphAddDependencies(CUgraph h, const CUgraphNode *from, const CUgraphNode *to,
				   size_t n)
{
	return do_cuGraphAddDependencies_v2(h, from, to, NULL, n);
}

CUresult do_cuGraphRemoveDependencies(CUgraph h, const CUgraphNode *from, const CUgraphNode *to,
				      size_t n)
{
	struct graph *g = obj_get(h, OBJ_GRAPH);
	size_t kept = 0;

	if (!g || g->mem_nodes)
		return g ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < g->n_edges; i++) {
		bool drop = false;

		for (size_t k = 0; k < n && !drop; k++)
			drop = (CUgraphNode)g->edge[i].from == from[k] &&
			       (CUgraphNode)g->edge[i].to == to[k];
		if (drop)
			tool_tell((struct sim_tool_data){
				.event = SIM_TOOL_EDGE_DESTROY_STARTING, .graph = g,
				.node = g->edge[i].to, .dependency = g->edge[i].from,
			});
		else
			g->edge[kept++] = g->edge[i];
	}
	g->n_edges = kept;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphRemoveDependencies_v2(CUgraph h, const CUgraphNode *from, const CUgraphNode *to,
					 const CUgraphEdgeData *data, size_t n)
{
	return do_cuGraphRemoveDependencies(h, from, to, n);
}
