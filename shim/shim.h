/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of the shim in this process. shim_ready() is the first thing a wrapper with a body asks:
 * it starts the shim when CUDA is first used (before the constructor ran, if need be) and is
 * false when the shim is off (ARENA_GATE=off), broke, is not the first copy in the process, or the
 * process is a forked child that has not initialised CUDA itself: then the wrapper only forwards.
 */
#ifndef SHIM_SHIM_H
#define SHIM_SHIM_H

#include "arena/atomics.h"
#include "arena/launcher.h"

enum shim_state {
	SHIM_UNSTARTED,
	SHIM_STARTING,
	SHIM_ON,
	SHIM_OFF,
	SHIM_CHILD,	/* a fork of a process that was on; cuInit() starts anew */
};
extern _Atomic int shim_state;

/* @brief Cold part of shim_ready(). Waits (not for ever) while another thread starts the shim, so
 * that no call slips by unrecorded; false when the start itself reached a wrapper. Keeps errno. */
bool shim_start(void);

static inline bool shim_ready(void)
{
	/* Pairs with the release store at the end of shim_start(). */
	int s = load_acquire(&shim_state);

	return __builtin_expect(s == SHIM_ON, 1) || (s < SHIM_ON && shim_start());
}

/* @brief Our own failure: say @why (a constant string) once, forward from now on, verdict
 * unproven. */
void shim_off(const char *why);

/* The call stack of the current thread is inside a call that the shim itself made into the
 * driver: wrappers that are reached from there only forward. */
#define shim_inside quick_thread.inside

/* Streams that capture now, in the process; 0 keeps launches on the short path. */
extern _Atomic uint32_t captures_active;

#endif
