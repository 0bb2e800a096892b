/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver tells about one node of a template. Any thread. */
#ifndef SHIM_NODE_H
#define SHIM_NODE_H

#include "arena/exec.h"
#include "shim/hooks.h"

/* @brief Our word for the driver's kind of node. */
enum node_kind node_kind_of(CUgraphNodeType type);

/*
 * @brief Ask the driver for the type of @node and, of that type's member, what words.c and the
 * walk look at; the rest of @out stays as it was. Pointers in @out are the driver's, good until
 * the node changes. With shim_inside raised.
 */
CUresult node_describe(CUgraphNode node, CUgraphNodeParams *out);

#endif
