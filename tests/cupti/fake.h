/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake libcupti.so.13: what a test finds in it besides CUPTI's own functions. By environment:
 *
 *   FAKE_CUPTI_VERSION=N		what cuptiGetVersion says (default: the header's)
 *   FAKE_CUPTI_OTHER=NAME		somebody subscribed before the program started
 *   FAKE_CUPTI_FAIL=FUNCTION=CODE	each call of it answers the code and does nothing
 *   FAKE_CUPTI_ALLOCATES=1	attaching takes memory from the driver, finalising gives it back
 *   FAKE_CUPTI_SLOW=1		subscribing takes a while more than it seems to
 *   FAKE_CUPTI_DROP=CBID:N		the Nth callback of this id of the resource domain is lost
 *   FAKE_CUPTI_ADD=CBID:N		behind the Nth one the same is told of another node
 *   FAKE_CUPTI_COUNTS=FILE		the counters, a "name value" a line, written at exit
 *
 * The callbacks come from the simulated driver (tests/sim/tool.h) while one is loaded, and from
 * fake_cupti_fire().
 */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H

#include <cuda.h>
#include <cupti_version.h>
#include <cupti_callbacks.h>
#include <cupti_activity.h>
#include <cupti_driver_cbid.h>
#include <stdint.h>

/* "attached" is what makes replays slow: from a subscription (or an enabled activity) until
 * cuptiFinalize, as measured; unsubscribing alone does not end it. */
#define FAKE_COUNTERS(X)    \
	X(subscribes)       \
	X(refused)          \
	X(unsubscribes)     \
	X(finalizes)        \
	X(finalizes_inside) \
	X(enabled)          \
	X(callbacks)        \
	X(activities)       \
	X(replays)          \
	X(replays_attached) \
	X(attached)         \
	X(subscribed)

struct fake_cupti_counters {
#define X(name) uint64_t name;
	FAKE_COUNTERS(X)
#undef X
};

/* @brief What happened so far. Any thread. */
void fake_cupti_counters(struct fake_cupti_counters *out);
/* @brief Call the last subscriber as CUPTI would; also when it has gone, as a late callback comes.
 * @param data NULL, or what the domain calls for. @return whether there was ever one. */
int fake_cupti_fire(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *data);
/* @brief The same for a graph callback, wrapped as CUPTI wraps it. */
int fake_cupti_fire_graph(CUpti_CallbackId cbid, const CUpti_GraphData *data);
/* @brief Is this callback enabled for the subscriber? */
int fake_cupti_is_enabled(CUpti_CallbackDomain domain, CUpti_CallbackId cbid);

#endif
