/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core needs from the outside world; filled once by shim/ (or by a test) before the
 * first event. No function is called with a lock of the core held.
 */
#ifndef ARENA_DEVICE_H
#define ARENA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

struct finding;
struct event;

struct device_ops {
	/* Is work queued on @stream (CUstream) not finished? False when it cannot be told:
	 * the stream is gone, or asking would disturb a capture. */
	bool (*stream_busy)(uint64_t stream);
	/* A finding was made. Called at most once per finding; may be NULL. */
	void (*finding)(const struct finding *f);
	/* Something happened (event.h); NULL unless events are wanted. */
	void (*event)(const struct event *e);
};

extern struct device_ops device;

#endif
