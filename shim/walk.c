/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk: two calls of the driver a node (its type, its parameters), cached layouts, one object
 * that holds the words of the node in hand and the nodes of all levels. The object is reused, so
 * that a walk in steady state takes no memory.
 *
 * Any thread; see walk.h. A walk belongs to one thread.
 */
#include <errno.h>

#include "arena/slab.h"
#include "shim/coverage.h"
#include "shim/cupti.h"
#include "shim/nested.h"
#include "shim/node.h"
#include "shim/params.h"
#include "shim/record.h"
#include "shim/words.h"
#include "shim/walk.h"

/* Child graphs and conditional bodies inside one another; deeper ones are not looked into. */
#define DEPTH_MAX 64

struct walk {
	CUgraphNode *nodes; /* of all levels, innermost last */
	uint32_t nodes_cap, nodes_used;
	struct exec_builder *builder;
	struct exec_replica *replica; /* what the nodes at hand are made of, NULL: nothing */
	int saved_errno;
	struct params params; /* last: a free slab object loses its last bytes */
};

static struct slab walks = SLAB_INIT(struct walk);

static struct walk *walk_begin(void)
{
	int saved_errno = errno;
	struct walk *w = slab_get(&walks);

	if (w == NULL) {
		coverage_count(NO_MEMORY);
		errno = saved_errno;
		return NULL;
	}
	w->saved_errno = saved_errno;
	w->nodes_used = 0;
	w->builder = NULL;
	w->replica = NULL;
	shim_inside++;
	return w;
}

static void walk_end(struct walk *w)
{
	int saved_errno = w->saved_errno;

	shim_inside--;
	slab_put(&walks, w);
	errno = saved_errno;
}

/* ---- one node ---- */

static struct node_desc node_desc_of(const struct walk *w, CUgraph graph, CUgraphNode node,
				     CUgraphNodeType type)
{
	return (struct node_desc){
		.graph = (uint64_t)graph,
		.node = (uint64_t)node,
		.kind = node_kind_of(type),
		.name = w->params.name,
		.words = w->params.words,
		.words_count = w->params.count,
		.hash = w->params.hash,
	};
}

/* What an exec has and could not be read. */
static void count_status(const struct walk *w, enum params_status status)
{
	if (status == PARAMS_UNSIZED)
		coverage_count(PARAMS_UNSIZED);
	else if (status == PARAMS_RAW)
		coverage_count(RAW_BUFFER);
	for (unsigned i = 0; i < w->params.blind; i++)
		coverage_count(NODE_KIND);
}

/* What this thread's CUPTI told of last: the wrapper whose call made it reads it next. */
static _Thread_local CUgraphNode told_last __attribute__((tls_model("initial-exec")));

/* What was not read when the words were written, which is when it counts. */
static void count_unread(const struct walk *w)
{
	if (w->params.forgotten)
		coverage_count(TENSOR_MAP_UNKNOWN);
	if (w->params.cut)
		coverage_count(EXTENT_CUT);
}

/* ---- levels ---- */

/* @brief Push the nodes of @graph. @return their number, -1 when they cannot be had. */
static int64_t push_nodes(struct walk *w, CUgraph graph)
{
	size_t count = 0;

	if (REAL(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS ||
	    count > UINT32_MAX - w->nodes_used)
		return -1;
	if (count == 0)
		return 0;
	if (pages_grow(&w->nodes, &w->nodes_cap, w->nodes_used + (uint32_t)count,
		       sizeof(CUgraphNode)) != 0) {
		coverage_count(NO_MEMORY);
		return -1;
	}
	if (REAL(cuGraphGetNodes)(graph, w->nodes + w->nodes_used, &count) != CUDA_SUCCESS)
		return -1;
	w->nodes_used += (uint32_t)count;
	return (int64_t)count;
}

static void open_alloc(const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *alloc)
{
	record_open_once(RANGE_GRAPH, alloc->dptr, alloc->bytesize, 0);
}

static void build_graph(struct walk *w, CUgraph graph, uint32_t depth);

static uint64_t body_of(CUgraph graph, CUgraphNode node, uint32_t index)
{
	uint64_t body = nested_get((uint64_t)graph, (uint64_t)node, index);

	if (body)
		return body;
	body = cupti_body(node, index);
	/* For later walks, and for the births in it when the template goes. */
	if (body)
		nested_add((uint64_t)graph, (uint64_t)node, body);
	return body;
}

static void build_bodies(struct walk *w, CUgraph graph, CUgraphNode node, uint32_t depth)
{
	uint64_t body;
	uint32_t i;

	for (i = 0; (body = body_of(graph, node, i)) != 0; i++)
		build_graph(w, (CUgraph)body, depth + 1);
	if (i == 0) {
		coverage_count(BODY_UNREACHED);
		cupti_needed();
	}
}

static void build_node(struct walk *w, CUgraph graph, CUgraphNode node, uint32_t depth)
{
	CUgraphNodeParams p;
	struct node_desc n;

	params_reset(&w->params, 0);
	if (node_describe(node, &p) != CUDA_SUCCESS) {
		coverage_count(WALK_FAILED);
		p.type = CU_GRAPH_NODE_TYPE_EMPTY; /* keeps its place in the order */
	}
	count_status(w, words_read(&w->params, &p));
	n = node_desc_of(w, graph, node, p.type);
	n.depth = depth;
	exec_build_node(w->builder, &n);

	if (p.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
		open_alloc(&p.alloc);
		exec_build_owns(w->builder, p.alloc.dptr);
	} else if (p.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
		exec_build_frees(w->builder, p.free.dptr);
	} else if (p.type == CU_GRAPH_NODE_TYPE_GRAPH) {
		build_graph(w, p.graph.graph, depth + 1);
	} else if (p.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		build_bodies(w, graph, node, depth);
	} else if (p.type == CU_GRAPH_NODE_TYPE_HOST) {
		coverage_count(HOST_NODE);
	} else if (!words_none(p.type) && n.kind == NODE_OTHER) {
		coverage_count(NODE_KIND);
	}
}

static void build_graph(struct walk *w, CUgraph graph, uint32_t depth)
{
	uint32_t first = w->nodes_used;
	int64_t count = depth < DEPTH_MAX ? push_nodes(w, graph) : -1;

	if (count < 0)
		coverage_count(WALK_FAILED);
	for (int64_t i = 0; i < count; i++)
		build_node(w, graph, w->nodes[first + i], depth);
	w->nodes_used = first;
}

struct exec_builder *walk_template(CUgraph graph)
{
	struct walk *w = walk_begin();
	struct exec_builder *b;

	if (w == NULL)
		return NULL;
	b = w->builder = exec_build_begin();
	if (b)
		build_graph(w, graph, 0);
	walk_end(w);
	return b;
}

/* ---- births ---- */

static void birth_graph(struct walk *w, CUgraph graph, uint32_t depth);

/* @return whether @n got the birth of what it is made of. */
static bool replicated(struct walk *w, const struct node_desc *n)
{
	if (w->replica == NULL)
		return false;
	if (birth_replicate(w->replica, n))
		return true;
	coverage_count(UPDATE_PAIRING);
	w->replica = NULL;
	return false;
}

static void birth_node(struct walk *w, CUgraph graph, CUgraphNode node, uint32_t depth)
{
	CUgraphNodeParams p;
	struct node_desc n;

	params_reset(&w->params, 0);
	if (node_describe(node, &p) != CUDA_SUCCESS)
		return; /* the walk will count it */
	words_read(&w->params, &p);
	n = node_desc_of(w, graph, node, p.type);
	n.depth = depth;
	if (!replicated(w, &n)) {
		if (node != told_last)
			count_unread(w);
		birth_record(&n);
	}
	told_last = NULL;
	if (n.kind == NODE_ALLOC) {
		open_alloc(&p.alloc);
	} else if (n.kind == NODE_CHILD && graph) {
		if (nested_get((uint64_t)graph, (uint64_t)node, 0) == 0)
			nested_add((uint64_t)graph, (uint64_t)node, (uint64_t)p.graph.graph);
		birth_graph(w, p.graph.graph, depth + 1);
	}
}

static void birth_graph(struct walk *w, CUgraph graph, uint32_t depth)
{
	uint32_t first = w->nodes_used;
	int64_t count = depth < DEPTH_MAX ? push_nodes(w, graph) : 0;

	for (int64_t i = 0; i < count; i++)
		birth_node(w, graph, w->nodes[first + i], depth);
	w->nodes_used = first;
}

void walk_birth(CUgraph graph, CUgraphNode node)
{
	struct walk *w = walk_begin();

	if (w == NULL)
		return;
	birth_node(w, graph, node, 0);
	walk_end(w);
}

void walk_told(CUgraph graph, CUgraphNode node, CUgraphNodeType type)
{
	struct walk *w = walk_begin();
	/* Who else hears of an allocation node hears it before its memory is used. */
	bool ask =
		words_readable(type) || (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && cupti_is_alone());
	CUgraphNodeParams p = { .type = type };
	struct node_desc n;

	if (w == NULL)
		return;
	params_reset(&w->params, 0);
	if (!ask || node_describe(node, &p) == CUDA_SUCCESS) {
		if (ask)
			words_read(&w->params, &p);
		if (ask && type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
			open_alloc(&p.alloc);
		n = node_desc_of(w, graph, node, type);
		count_unread(w);
		told_last = node;
		birth_record(&n);
		witness_node(&n);
	}
	walk_end(w);
}

void walk_missing_births(CUgraph graph)
{
	struct walk *w = walk_begin();
	bool unseen = false;
	int64_t count;

	if (w == NULL)
		return;
	count = push_nodes(w, graph);
	for (int64_t i = 0; i < count; i++)
		if (!birth_known((uint64_t)graph, (uint64_t)w->nodes[i])) {
			birth_node(w, graph, w->nodes[i], 0);
			unseen |= w->params.count != 0;
		}
	walk_end(w);
	if (unseen)
		cupti_needed();
}

void walk_launch_births(CUgraph graph, CUgraphNode node, CUgraphExec exec)
{
	struct walk *w = walk_begin();
	struct exec_replica replica;
	struct node_desc n;
	CUgraph inner;

	if (w == NULL)
		return;
	if (REAL(cuGraphChildGraphNodeGetGraph)(node, &inner) != CUDA_SUCCESS) {
		birth_node(w, graph, node, 0);
	} else if (!exec_replicate((uint64_t)exec, &replica)) {
		coverage_count(UNKNOWN_EXEC);
		birth_node(w, graph, node, 0);
	} else {
		params_reset(&w->params, 0);
		n = node_desc_of(w, graph, node, CU_GRAPH_NODE_TYPE_GRAPH);
		birth_record(&n);
		nested_add((uint64_t)graph, (uint64_t)node, (uint64_t)inner);
		w->replica = &replica;
		birth_graph(w, inner, 0);
		exec_replica_free(&replica);
	}
	walk_end(w);
}

/* ---- copies ---- */

static void copy_graph(struct walk *w, CUgraph from, CUgraph to, bool clone);

static void copy_node(struct walk *w, CUgraph from, CUgraphNode a, CUgraph to, CUgraphNode b)
{
	CUgraphNodeType type;
	CUgraph from_inner, to_inner;

	birth_copy((uint64_t)from, (uint64_t)a, (uint64_t)to, (uint64_t)b);
	if (REAL(cuGraphNodeGetType)(a, &type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_GRAPH)
		return;
	if (REAL(cuGraphChildGraphNodeGetGraph)(a, &from_inner) != CUDA_SUCCESS ||
	    REAL(cuGraphChildGraphNodeGetGraph)(b, &to_inner) != CUDA_SUCCESS)
		return;
	nested_add((uint64_t)to, (uint64_t)b, (uint64_t)to_inner);
	copy_graph(w, from_inner, to_inner, false);
}

static void copy_graph(struct walk *w, CUgraph from, CUgraph to, bool clone)
{
	uint32_t first = w->nodes_used;
	int64_t count = push_nodes(w, from);
	int64_t copies = clone ? count : push_nodes(w, to);

	for (int64_t i = 0; i < count && count == copies; i++) {
		CUgraphNode a = w->nodes[first + i], b;

		if (!clone)
			b = w->nodes[first + count + i];
		else if (REAL(cuGraphNodeFindInClone)(&b, a, to) != CUDA_SUCCESS)
			continue;
		copy_node(w, from, a, to, b);
	}
	w->nodes_used = first;
}

void walk_copy_births(CUgraph from, CUgraph to, bool clone)
{
	struct walk *w = walk_begin();

	if (w == NULL)
		return;
	copy_graph(w, from, to, clone);
	walk_end(w);
}

void walk_child_births(CUgraph graph, CUgraphNode node, CUgraph child)
{
	struct walk *w = walk_begin();
	struct node_desc n;
	CUgraph inner;

	if (w == NULL)
		return;
	if (REAL(cuGraphChildGraphNodeGetGraph)(node, &inner) == CUDA_SUCCESS) {
		params_reset(&w->params, 0);
		n = node_desc_of(w, graph, node, CU_GRAPH_NODE_TYPE_GRAPH);
		birth_record(&n);
		nested_add((uint64_t)graph, (uint64_t)node, (uint64_t)inner);
		if (inner != child) /* else it was moved, births and all */
			copy_graph(w, child, inner, false);
	}
	walk_end(w);
}

/* ---- execs and launches ---- */

void walk_exec_node(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params)
{
	struct walk *w;
	struct node_desc n;

	if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		exec_set_child((uint64_t)exec, (uint64_t)node, walk_template(params->graph.graph));
		return;
	}
	w = walk_begin();
	if (w == NULL)
		return;
	params_reset(&w->params, 0);
	count_status(w, words_read(&w->params, params));
	count_unread(w);
	n = node_desc_of(w, NULL, node, params->type);
	exec_set_node((uint64_t)exec, &n);
	walk_end(w);
}

void walk_written(CUfunction function, void *const *kernel_params, void *const *extra)
{
	struct walk *w = walk_begin();

	if (w == NULL)
		return;
	params_read(&w->params, (uint64_t)function, kernel_params, extra);
	for (uint32_t i = 0; i < w->params.count; i++)
		ledger_written(w->params.words[i].value);
	walk_end(w);
}
