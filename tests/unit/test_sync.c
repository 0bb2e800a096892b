/* SPDX-License-Identifier: Apache-2.0 */
/* Unit tests of arena/sync.c: which launches are known to be done. */
#include <criterion/criterion.h>

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
	uint64_t ticket = sync_begin();

	sync_stream_done(stream, ticket);
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

	sync_event_recorded(E);
	after = launch();
	cr_assert_not(sync_proven(S, before), "recorded, not waited for");
	sync_event_done(E);
	cr_assert(sync_proven(S, before));
	cr_assert_not(sync_proven(S, after));
}

Test(sync, an_event_means_its_newest_record)
{
	uint64_t between;

	sync_event_recorded(E);
	between = launch();
	sync_event_recorded(E);
	sync_event_done(E);
	cr_assert(sync_proven(S, between));
}

Test(sync, an_event_never_recorded_proves_nothing)
{
	uint64_t stamp = launch();

	sync_event_done(E);
	cr_assert_not(sync_proven(S, stamp));
	sync_event_recorded(E);
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
		sync_event_recorded(event << 12);
	stamp = launch();
	sync_event_done((uint64_t)200000 << 12);
	cr_assert(sync_proven(S, stamp));
}
