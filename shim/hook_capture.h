/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture, as the wrappers of other families see it. Any thread. Ask only while
 * captures_active (shim.h) is not 0: that one load keeps everything here off the short path.
 * Streams are normalised (STREAM_LEGACY, STREAM_PER_THREAD of hooks.h). errno is kept.
 */
#ifndef SHIM_HOOK_CAPTURE_H
#define SHIM_HOOK_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/hooks.h"
#include "shim/shim.h"

/* @brief Has this thread begun a capture that is not ended, on @ordinal, or nobody knows where?
 * @param ordinal -1: any. Takes a lock while any stream captures, else one load. */
bool capture_here_slow(int ordinal);
static inline bool capture_here(int ordinal)
{
	return __builtin_expect(load_relaxed(&captures_active) != 0, 0) &&
	       capture_here_slow(ordinal);
}

/* @brief Does @stream capture now? Asks the driver; never disturbs a capture. */
bool capture_active_on(uint64_t stream);

/* @brief A call that succeeded may have added nodes to what @stream captures: record their
 * births now. @return false, and nothing happened, when @stream does not capture. */
bool capture_note(uint64_t stream);

/* @brief The same for a launch of @exec, which becomes a child node. */
bool capture_note_launch(uint64_t stream, CUgraphExec exec);

/* @brief The same for an allocation node, which handed out [base, base + size_bytes): opens it
 * as RANGE_GRAPH of the graph that @stream captures into. */
void capture_note_alloc(uint64_t stream, uint64_t base, uint64_t size_bytes);

/* @brief @stream is about to be destroyed, and what it captures with it. */
void capture_stream_gone(uint64_t stream);

#endif
