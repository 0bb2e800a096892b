/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public C API, third part: what a client knows that the library cannot. arena.h has the
 * conventions.
 *
 * A client that binds what it finds - by a walk over a model, say - knows whether it found
 * everything. Where it did not, nothing may be wrong, but nothing is proven either. It may know
 * what kernels wrote, which the library does not see. And it may know that the process is about to
 * end in a way that runs no destructors.
 */
#ifndef ARENA_CLIENT_H
#define ARENA_CLIENT_H

#include "arena.h"

#ifdef __cplusplus
extern "C" {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

/**
 * @brief **arena_reload_doubt()** says that the open reload proves nothing.
 *
 * Its verdict is unproven, unless it fails: in the report, in what arena_reload_end() returns, in
 * arena_status(), and at the exit of the process if no later reload passes. It is counted in the
 * report's coverage (reload-doubted), with the reason. Of several reasons of one reload the first
 * one is its verdict's.
 *
 * @param why one line for a human; it is copied, and cut after 255 bytes.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_BUSY (no reload is open).
 *
 * Any thread.
 */
ARENA_FN(arena_reload_doubt, (const char *why), (why))

/**
 * @brief **arena_reload_wrote()** says that the open reload wrote device memory.
 *
 * Copies of the driver are seen without it. Kernels are not, and a client may know what they wrote:
 * by tensor versions, say. It matters for bound slots that a capture allocated: the next replay
 * overwrites what was written there, and the reload gets the finding born-in-capture, a warning, as
 * it may have been the clearing of an output: one for each allocation, and none where a copy was
 * seen. Nothing is found if something was captured while the reload was open, nor for scratch.
 *
 * @param ptr device memory; it is not read.
 * @param bytes how much of it; 0 is nothing.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_BUSY (no reload is open).
 *
 * Any thread.
 */
ARENA_FN(arena_reload_wrote, (const void *ptr, uint64_t bytes), (ptr, bytes))

/**
 * @brief **arena_finish()** writes the exit line of the report now.
 *
 * For processes that end by _exit(2), as workers do that Python's multiprocessing has forked: no
 * destructor runs in them, and their reports would have no verdict. What comes after it is neither
 * in the report nor in its verdict; the guard goes on. The second call does nothing.
 *
 * @return 0, ARENA_E_ABSENT (also where CUDA was not used: there is no report).
 *
 * Any thread, but no signal handler.
 */
ARENA_FN(arena_finish, (void), ())

#ifdef __cplusplus
#pragma GCC diagnostic pop
}
#endif

#endif
