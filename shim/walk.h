/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the driver's graphs to the core: what the nodes of a template hold.
 *
 * Parameters that a getter returns belong to the driver; they are copied into words at once. A
 * node that the driver refuses to describe is counted in coverage, never a failure.
 *
 * Any thread. Functions here ask the driver: shim_inside is raised meanwhile, errno is kept, no
 * lock of the core is held. All of it is allowed while a stream captures.
 */
#ifndef SHIM_WALK_H
#define SHIM_WALK_H

#include <errno.h>

#include "arena/exec.h"
#include "shim/hooks.h"

/* Statement @call of ours leaves no trace in the application's errno. */
#define ERRNO_KEPT(call)            \
	do {                        \
		int saved_ = errno; \
		call;               \
		errno = saved_;     \
	} while (0)

/* @brief Walk a template, depth first. @return what exec_open(), exec_update() and
 * exec_set_child() consume, or NULL when there is no memory. */
struct exec_builder *walk_template(CUgraph graph);

/* @brief Node @node was added to @graph or got new parameters (then @graph may be NULL). */
void walk_birth(CUgraph graph, CUgraphNode node);

/* @brief CUPTI told that @node of @graph is new: its birth, and what it holds for the second
 * witness. Inside the driver: nodes with addresses are asked for those, no more. */
void walk_told(CUgraph graph, CUgraphNode node, CUgraphNodeType type);

/* @brief Node @node of @graph is a launch of @exec that was captured: its nodes mean what those of
 * the exec mean. */
void walk_launch_births(CUgraph graph, CUgraphNode node, CUgraphExec exec);

/* @brief What no wrapper saw of a graph that was captured (calls of a newer driver): nodes without
 * a birth get it now. */
void walk_missing_births(CUgraph graph);

/* @brief @to was copied from @from: each node means what its original meant. @param clone made by
 * cuGraphClone, so that the driver can tell which is which; else they pair in order. */
void walk_copy_births(CUgraph from, CUgraph to, bool clone);

/* @brief Node @node of @graph was made from the template @child: @child's births go over to the
 * graph inside the node. */
void walk_child_births(CUgraph graph, CUgraphNode node, CUgraph child);

/* @brief New parameters for node @node of an exec; @params as the generic call has them, only
 * type and that type's member are looked at. */
void walk_exec_node(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params);

/* @brief Parameters of a launch that was not captured: memory that it may write is no longer
 * undefined. */
void walk_written(CUfunction function, void *const *kernel_params, void *const *extra);

#endif
