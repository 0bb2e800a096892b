/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which graph lives inside which node: embedded graphs of child-graph nodes, bodies of conditional
 * nodes (the driver has no getter for those). Known from the moment the node was made, needed when
 * a template is walked or destroyed.
 *
 * Any thread. Never asks the driver.
 */
#ifndef SHIM_NESTED_H
#define SHIM_NESTED_H

#include <stdbool.h>
#include <stdint.h>

/* @brief Node @node of @graph holds @inner. */
void nested_add(uint64_t graph, uint64_t node, uint64_t inner);

/* @brief The @index-th graph that was added for @node of @graph. @return 0 when there is none. */
uint64_t nested_get(uint64_t graph, uint64_t node, uint32_t index);

/* @brief @graph is no more: forget its births and those of all that it holds. */
void nested_forget_graph(uint64_t graph);

/*
 * @brief The driver is about to be asked to destroy @graph, or one node (of a graph that the caller
 * is not told): take out the births of it and of all that it holds. nested_settle() follows: the
 * driver did it, or (!@done) refused it, and it is as if nothing had happened.
 */
struct nested_gone {
	struct record *records;
	struct birth *births;
};
void nested_detach_graph(uint64_t graph, struct nested_gone *out);
void nested_detach_node(uint64_t node, struct nested_gone *out);
void nested_settle(struct nested_gone *gone, bool done);

#endif
