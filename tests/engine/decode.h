/* SPDX-License-Identifier: Apache-2.0 */
/* The decode graphs, one a batch size, and greedy decoding with them. One thread. */
#ifndef ENGINE_DECODE_H
#define ENGINE_DECODE_H

#include "tests/engine/engine.h"

#define BATCHES 3 /* sizes that have a graph: 1, 2, BATCH_MAX */

struct decoder {
	CUgraphExec exec[BATCHES];
};

/* @brief Make what is made at the first forward (--lazy). */
void decode_lazily(struct engine *e);

/* @brief A step without a graph, as engines warm up, then one capture a batch size. */
void decode_capture(struct engine *e, struct decoder *d);

/*
 * @brief Serve all batch sizes from an empty cache: greedy tokens, and a hash of every logit's
 * bits, a line each. @return CUDA_SUCCESS; CUDA_ERROR_ILLEGAL_STATE: a launch was refused; else the
 * driver's error, after which the context is lost.
 */
CUresult decode_serve(struct engine *e, const struct decoder *d, int number);

#endif
