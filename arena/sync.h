/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host knows to be finished. A ticket dates host-side synchronisations: a launch is
 * stamped with the newest ticket; a synchronisation that takes a newer one proves it done.
 *
 * What was proven is always "launches on S that are older than t". A stream that waited for an
 * event is also behind what the event was behind, and so are events that are recorded on it: of
 * these only the newest ticket is kept, not the stream, and what is older counts as done wherever
 * it ran (the doubt goes to the application: a false alarm is as bad as a miss). An event that
 * another stream recorded and nobody led there proves nothing.
 *
 * Streams are handles of the driver. The per-thread default stream is another one in each thread:
 * it is known by a key, which a caller may pass as well.
 * Any thread; no lock shared by streams.
 */
#ifndef ARENA_SYNC_H
#define ARENA_SYNC_H

#include <stdbool.h>
#include <stdint.h>

/* @brief Take a ticket before the driver is asked to synchronise, or to record an event. */
uint64_t sync_begin(void);
/* @brief The newest ticket that @stream has waited for; to be asked before the driver is. */
uint64_t sync_awaited(uint64_t stream);
/* @brief Everything launched on @stream before @ticket is done. */
void sync_stream_done(uint64_t stream, uint64_t ticket);
/* @brief Everything launched before @awaited is done, wherever: sync_awaited() of a stream that is
 * done. 0: nothing. */
void sync_others_done(uint64_t awaited);
/* @brief Everything launched before @ticket is done (context synchronised). */
void sync_all_done(uint64_t ticket);
/* @brief @event now stands for what was queued on @stream before @ticket. */
void sync_event_recorded(uint64_t event, uint64_t stream, uint64_t ticket);
/* @brief What @stream gets from now on comes after what @event stands for. */
void sync_event_awaited(uint64_t event, uint64_t stream);
void sync_event_done(uint64_t event);
void sync_event_forget(uint64_t event);
void sync_stream_forget(uint64_t stream);
/* @brief The newest event of @stream, if it comes after a launch stamped @ticket: once the driver
 * says that it is done, so is the launch. @return 0: there is none. */
uint64_t sync_event_after(uint64_t stream, uint64_t ticket);

#define SYNC_PER_THREAD	2ull		/* CU_STREAM_PER_THREAD */
#define SYNC_THREAD_BIT	(1ull << 63)	/* in the key of a thread's default stream, in no handle */

/* @brief The key of the calling thread's default stream. Never used for another thread. */
uint64_t sync_thread_key(void);
static inline uint64_t sync_key(uint64_t stream)
{
	return __builtin_expect(stream == SYNC_PER_THREAD, 0) ? sync_thread_key() : stream;
}

/* @brief Is a launch on @stream stamped @ticket known to be done? True if the stream was destroyed
 * since, or is one of too many to be remembered; false if nobody ever synchronised it. */
bool sync_proven(uint64_t stream, uint64_t ticket);

/*
 * The same question for whom a doubt is a "no": publications. Only a synchronisation of the stream
 * itself, or of its context, is a proof, and of a stream with a shared handle (device.h) only the
 * latter.
 */
enum sync_state {
	SYNC_DONE,
	SYNC_QUEUED,	/* perhaps still running, and the stream can be asked */
	SYNC_GONE,	/* perhaps still running, on a stream that was destroyed or has no name */
};
enum sync_state sync_certain(uint64_t stream, uint64_t ticket);

#endif
