/* SPDX-License-Identifier: Apache-2.0 */
/* Unit tests of arena/sync.c: which launches are known to be done. */
#include <criterion/criterion.h>
#include <pthread.h>

#include "arena/device.h"
#include "arena/exec.h"
#include "arena/sync.h"

#define S ((uint64_t)0x1000)
#define T ((uint64_t)0x2000)
#define E ((uint64_t)0x3000)

/* As guard_launch() stamps a launch. */
static uint64_t launch(void)
{
	return load_relaxed(&sync_now);
}

static void sync_stream(uint64_t stream)
{
	uint64_t awaited = sync_awaited(stream), ticket = sync_begin();

	sync_stream_done(stream, ticket);
	sync_others_done(awaited);
}

static void record(uint64_t event, uint64_t stream)
{
	sync_event_recorded(event, stream, sync_begin());
}

Test(sync, a_launch_is_not_done_by_itself)
{
	cr_assert_not(sync_proven(S, launch()));
	sync_stream(S);
	cr_assert_not(sync_proven(S, launch()), "a synchronisation before the launch");
}

Test(sync, a_stream_proves_its_own_launches)
{
	uint64_t before = launch();

	sync_stream(T);
	cr_assert_not(sync_proven(S, before), "another stream");
	sync_stream(S);
	cr_assert(sync_proven(S, before));
	cr_assert_not(sync_proven(S, launch()));
}

Test(sync, a_launch_while_another_thread_waits_is_not_proven)
{
	uint64_t ticket = sync_begin(), during = launch();

	sync_stream_done(S, ticket);
	cr_assert_not(sync_proven(S, during));
}

Test(sync, an_older_report_takes_nothing_back)
{
	uint64_t old = sync_begin(), stamp = launch(), new = sync_begin();

	sync_stream_done(S, new);
	sync_stream_done(S, old);
	cr_assert(sync_proven(S, stamp));
	sync_all_done(old);
	cr_assert(sync_proven(S, stamp));
}

Test(sync, a_context_proves_all_streams)
{
	uint64_t stamp = launch();

	sync_all_done(sync_begin());
	cr_assert(sync_proven(S, stamp));
	cr_assert(sync_proven(T, stamp));
	cr_assert_not(sync_proven(S, launch()));
}

Test(sync, an_event_proves_what_was_launched_before_its_record)
{
	uint64_t before = launch(), after;

	record(E, S);
	after = launch();
	cr_assert_not(sync_proven(S, before), "recorded, not waited for");
	sync_event_done(E);
	cr_assert(sync_proven(S, before));
	cr_assert_not(sync_proven(S, after));
}

Test(sync, an_event_means_its_newest_record)
{
	uint64_t between;

	record(E, S);
	between = launch();
	record(E, S);
	sync_event_done(E);
	cr_assert(sync_proven(S, between));
}

Test(sync, an_event_never_recorded_proves_nothing)
{
	uint64_t stamp = launch();

	sync_event_done(E);
	cr_assert_not(sync_proven(S, stamp));
	record(E, S);
	sync_event_forget(E);
	sync_event_done(E);
	cr_assert_not(sync_proven(S, stamp), "destroyed, and another one has its handle");
	sync_event_forget(T);
}

Test(sync, a_destroyed_stream_is_done_and_its_handle_may_come_back)
{
	uint64_t stamp = launch();

	sync_stream_forget(S);
	cr_assert(sync_proven(S, stamp));
	cr_assert_not(sync_proven(S, launch()));
}

Test(sync, a_full_table_doubts_for_the_application)
{
	uint64_t stamp = launch();

	for (uint64_t stream = 1; stream < 100000; stream++)
		sync_stream(stream << 12);
	cr_assert(sync_proven((uint64_t)200000 << 12, stamp));
	for (uint64_t event = 1; event < 100000; event++)
		record(event << 12, S);
	stamp = launch();
	sync_event_done((uint64_t)200000 << 12);
	cr_assert(sync_proven(S, stamp));
}

/* ---- from stream to stream ---- */

Test(sync, an_event_of_another_stream_proves_nothing)
{
	uint64_t stamp = launch();

	record(E, T);
	sync_event_done(E);
	cr_assert_not(sync_proven(S, stamp), "T knows nothing of S");
	cr_assert(sync_proven(T, stamp));
}

Test(sync, a_stream_that_waited_for_an_event_proves_what_came_before_it)
{
	uint64_t before = launch(), after;

	record(E, S);
	after = launch();
	sync_stream(T);
	cr_assert_not(sync_proven(S, before), "not waited for");
	sync_event_awaited(E, T);
	cr_assert_not(sync_proven(S, before), "queued, that is all");
	sync_stream(T);
	cr_assert(sync_proven(S, before));
	cr_assert_not(sync_proven(S, after));
}

Test(sync, a_wait_queued_during_a_synchronisation_is_no_part_of_it)
{
	uint64_t stamp = launch(), awaited, ticket;

	record(E, S);
	awaited = sync_awaited(T);
	ticket = sync_begin();
	sync_event_awaited(E, T);
	sync_stream_done(T, ticket);
	sync_others_done(awaited);
	cr_assert_not(sync_proven(S, stamp));
}

Test(sync, what_was_waited_for_goes_on_with_events)
{
	uint64_t stamp = launch(), U = 0x4000;

	record(E, S);
	sync_event_awaited(E, T);
	record(E + 8, T);
	sync_event_awaited(E + 8, U);
	record(E + 16, U);
	cr_assert_not(sync_proven(S, stamp));
	sync_event_done(E + 16);
	cr_assert(sync_proven(S, stamp));
}

Test(sync, an_event_that_its_own_stream_waits_for_says_nothing_of_others)
{
	uint64_t stamp = launch();

	record(E, T);
	sync_event_awaited(E, T);
	sync_stream(T);
	cr_assert_not(sync_proven(S, stamp));
}

Test(sync, a_handle_that_came_back_waited_for_nothing)
{
	uint64_t stamp = launch();

	record(E, S);
	sync_event_awaited(E, T);
	sync_stream_forget(T);
	sync_stream(T);
	cr_assert_not(sync_proven(S, stamp));
}

Test(sync, the_newest_event_after_a_launch_can_be_asked)
{
	uint64_t stamp = launch();

	cr_assert_eq(sync_event_after(S, stamp), 0);
	record(E, S);
	cr_assert_eq(sync_event_after(S, stamp), E);
	cr_assert_eq(sync_event_after(S, launch()), 0, "recorded before the launch");
	cr_assert_eq(sync_event_after(T, stamp), 0);
	record(E + 8, S);
	cr_assert_eq(sync_event_after(S, stamp), E + 8);
	record(E + 8, T);
	cr_assert_eq(sync_event_after(S, stamp), 0, "it stands for another stream now");
	record(E, S);
	sync_event_forget(E);
	cr_assert_eq(sync_event_after(S, stamp), 0, "destroyed: nobody may ask");
	record(E, S);
	sync_stream_forget(S);
	cr_assert_eq(sync_event_after(S, stamp), 0);
}

static void *synchronise_own(void *key)
{
	sync_stream(SYNC_PER_THREAD);
	*(uint64_t *)key = sync_thread_key();
	return NULL;
}

Test(sync, the_default_stream_of_a_thread_is_its_own)
{
	uint64_t stamp = launch(), mine = sync_thread_key(), theirs;
	pthread_t t;

	cr_assert_eq(sync_key(S), S);
	cr_assert_eq(sync_key(SYNC_PER_THREAD), mine);
	pthread_create(&t, NULL, synchronise_own, &theirs);
	pthread_join(t, NULL);
	cr_assert_neq(mine, theirs);
	cr_assert(sync_proven(theirs, stamp));
	cr_assert_not(sync_proven(SYNC_PER_THREAD, stamp));
	sync_stream(SYNC_PER_THREAD);
	cr_assert(sync_proven(mine, stamp));
	cr_assert_eq(sync_certain(mine, stamp), SYNC_GONE, "a fence cannot name it");
}

/* For publications a doubt is a no. */
Test(sync, an_event_is_not_certain)
{
	uint64_t before = launch();

	record(E, S);
	sync_event_done(E);
	cr_assert(sync_proven(S, before));
	cr_assert_eq(sync_certain(S, before), SYNC_QUEUED);
	sync_stream(S);
	cr_assert_eq(sync_certain(S, before), SYNC_DONE);
	cr_assert_eq(sync_certain(S, launch()), SYNC_QUEUED);
}

Test(sync, a_destroyed_stream_is_gone_and_perhaps_not_done)
{
	uint64_t before = launch(), second;

	sync_stream_forget(S);
	cr_assert(sync_proven(S, before));
	cr_assert_eq(sync_certain(S, before), SYNC_GONE);
	cr_assert_eq(sync_certain(S, launch()), SYNC_QUEUED, "its handle came back");
	sync_stream(S);
	cr_assert_eq(sync_certain(S, before), SYNC_GONE, "that was another stream");
	second = launch();
	sync_stream(S);
	sync_stream_forget(S);
	cr_assert_eq(sync_certain(S, second), SYNC_DONE);
	cr_assert_eq(sync_certain(S, before), SYNC_GONE);
	sync_stream(S);
	cr_assert_eq(sync_certain(S, second), SYNC_DONE);
}

Test(sync, a_shared_handle_is_certain_by_its_context_only)
{
	uint64_t before = launch();

	device.shared_streams = 2;
	sync_stream(2);
	cr_assert(sync_proven(2, before));
	cr_assert_eq(sync_certain(2, before), SYNC_GONE);
	sync_all_done(sync_begin());
	cr_assert_eq(sync_certain(2, before), SYNC_DONE);
	device.shared_streams = 0;
}
