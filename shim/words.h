/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of one graph node -> words. Any thread. */
#ifndef SHIM_WORDS_H
#define SHIM_WORDS_H

#include "shim/hooks.h"
#include "shim/params.h"

/*
 * @brief The words of a node. Only the type and that type's member are looked at; of a kernel only
 * func, kern, kernelParams and extra. With shim_inside raised, as params_read() may ask the driver.
 */
enum params_status words_read(struct params *out, const CUgraphNodeParams *node);

/* @brief Do nodes of this type have words? */
bool words_readable(CUgraphNodeType type);

/* @brief Is it known that nodes of this type hold no address of memory? */
bool words_none(CUgraphNodeType type);

#endif
