/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured words without what differs between runs: the thousand nodes of a graph that hold a word
 * of the same memory at the same parameter of the same kernel are one. One thread.
 */
#ifndef CTL_SHAPE_H
#define CTL_SHAPE_H

#include "model.h"

/* @brief Keep the first ref of each shape, in place. @return how many stay; all, without memory. */
size_t shape_unique(struct report_ref *refs, size_t count);

#endif
