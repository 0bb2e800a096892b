/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of publications and launches: a launch of a graph sees all of a publication or
 * nothing of it. A publication is whatever rewrites memory that graphs captured: the commit of a
 * layer, a direct put, zeroed scratch.
 *
 *   order_begin()    marks the execs that hold the memory, waits for launches that are just
 *                    being queued, and lets the publication's stream wait for those in flight
 *   (the caller queues its copies)
 *   order_queued()   puts a fence behind them; order_abandon() when nothing was queued
 *
 * A marked launch waits on the host while a publication of its memory has begun and is not queued,
 * then lets its stream wait for the fence. Once the fence is passed, the marks go.
 *
 * Threads: any. The list of publications is guarded by the holders lock of ledger.h; the device is
 * never called under it.
 */
#ifndef ARENA_ORDER_H
#define ARENA_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "arena/device.h"

struct exec;
struct order;

/* What a publication writes. */
struct order_writes {
	const struct device_copy *copies;
	const struct device_span *zeros;
	uint32_t copies_count, zeros_count;
};

/*
 * @brief Begin to rewrite @w on @stream. No lock held.
 * @return 0 and the publication, or an arena_err with a message; then nothing is marked.
 */
int order_begin(const struct order_writes *w, uint64_t stream, struct order **out);
/* @brief The copies are queued. Launches go on. @return 0 or -errno: nobody knows whether they
 * were executed. The caller keeps @o until order_put(). */
int order_queued(struct order *o);
/* @brief Nothing was queued: as if it had never begun. Consumes @o. */
void order_abandon(struct order *o);

/* @brief Have the copies been executed? Asks the device. */
bool order_done(struct order *o);
/* @brief Let @stream wait for them; waits on the host when the device refuses. */
void order_follow(struct order *o, uint64_t stream);
/* @brief The same for every publication that is queued. */
void order_follow_all(uint64_t stream);
void order_get(struct order *o);
void order_put(struct order *o);

/* @brief A launch that is marked, inside the launcher (launcher.h): wait for its turn. */
void order_launch(struct exec *e, uint64_t stream);

/* @brief What was launched in @context is over; its execs are closed. No lock held. */
void order_context_gone(uint64_t context);

/* ---- for exec.c, holders lock held ---- */

/* @brief New refs of @e: mark it if a publication is under way. */
void order_mark(struct exec *e);
/* @brief @e drops refs, or goes; what it launched last may still run on them. */
void order_departed(const struct exec *e);

#endif
