/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host knows to be finished. A ticket dates host-side synchronisations: a launch is
 * stamped with the newest ticket; a synchronisation that takes a newer one proves it done.
 * An event that was recorded after the launch, on any stream, counts as proof once it is
 * waited for (the doubt goes to the application: a false alarm is as bad as a miss).
 * Any thread; no lock shared by streams.
 */
#ifndef ARENA_SYNC_H
#define ARENA_SYNC_H

#include <stdbool.h>
#include <stdint.h>

/* @brief Take a ticket before the driver is asked to synchronise. */
uint64_t sync_begin(void);
void sync_stream_done(uint64_t stream, uint64_t ticket);
/* @brief Everything launched before @ticket is done (context synchronised). */
void sync_all_done(uint64_t ticket);
void sync_event_recorded(uint64_t event);
void sync_event_done(uint64_t event);
void sync_event_forget(uint64_t event);
void sync_stream_forget(uint64_t stream);
/* @brief Is a launch on @stream stamped @ticket known to be done? True if the stream was destroyed
 * since, or is one of too many to be remembered; false if nobody ever synchronised it. */
bool sync_proven(uint64_t stream, uint64_t ticket);

#endif
