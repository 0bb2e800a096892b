/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tool is told: the simulated driver's side of CUPTI (tests/cupti is the other). Numbered
 * as the callbacks of CUPTI's resource domain, so that the tool need not translate.
 *
 * A tool is told under sim_lock, in the middle of a call: it may read what the event names through
 * the driver's exports, as a callback of CUPTI may, and must not wait for a thread in a call.
 *
 * Order: a graph or node can be read when its creation is told and until its destruction was; a
 * node comes before its edges. An instantiation tells EXEC_CREATE_STARTING, a clone of the
 * template that belongs to the exec (each node CREATED, then CLONED), EXEC_CREATED: twice the
 * callbacks for the nodes of a template, as measured on an H200. One that is refused, as the graph
 * has an exec already, tells the first of these only (a guess). New parameters are told of nodes
 * of execs (SET_PARAMS), but neither of a template's nodes nor by the update of an exec.
 */
#ifndef SIM_TOOL_H
#define SIM_TOOL_H

#include <cuda.h>

enum sim_tool_event {
	SIM_TOOL_GRAPH_CREATED = 9,
	SIM_TOOL_GRAPH_DESTROY_STARTING,
	SIM_TOOL_GRAPH_CLONED,
	SIM_TOOL_NODE_CREATE_STARTING,
	SIM_TOOL_NODE_CREATED,
	SIM_TOOL_NODE_DESTROY_STARTING,
	SIM_TOOL_EDGE_CREATED,
	SIM_TOOL_EDGE_DESTROY_STARTING,
	SIM_TOOL_EXEC_CREATE_STARTING,
	SIM_TOOL_EXEC_CREATED,
	SIM_TOOL_EXEC_DESTROY_STARTING,
	SIM_TOOL_NODE_CLONED,
	SIM_TOOL_NODE_SET_PARAMS = 23,
	SIM_TOOL_ENTER = 100, /* an exported function: symbol */
	SIM_TOOL_EXIT,	      /* symbol, result */
};

/* Handles; NULL where the event does not name one. */
struct sim_tool_data {
	enum sim_tool_event event;
	const void *graph, *original_graph;
	const void *node, *original_node, *dependency;
	const void *exec;
	CUgraphNodeType type;
	const char *symbol;
	CUresult result;
};

typedef void (*sim_tool_fn)(const struct sim_tool_data *data);

/* @brief Exported: tell @fn from now on, NULL: nobody. Any thread; when it returns, no event of the
 * one before is under way on another thread. */
__attribute__((visibility("default"))) void sim_tool_set(sim_tool_fn fn);

/* @brief Exported: a way to @symbol that no look-up of the driver's shows, as others have through
 * cuGetExportTable(). @return NULL: no such row. Any thread. */
__attribute__((visibility("default"))) void *sim_entry(const char *symbol);

#endif
