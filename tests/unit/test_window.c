/* SPDX-License-Identifier: Apache-2.0 */
/* When CUPTI is attached: stories of captures, launches and guests. */
#include <criterion/criterion.h>

#include "shim/window.h"

static struct window w;
static unsigned attached, detached;

/* A template begins; CUPTI attaches if it is to. */
static void begin(void)
{
	if (window_begin(&w, 0) == WINDOW_OPEN) {
		attached++;
		window_opened(&w, true, false);
	}
}

/* @return launches until the window closed, @most if it did not. */
static unsigned replay(uint64_t nodes, unsigned most)
{
	for (unsigned i = 0; i < most; i++)
		if (window_replay(&w, nodes, 0)) {
			detached++;
			return i + 1;
		}
	return most;
}

Test(window, fifty_captures_in_a_row_attach_once)
{
	w.mode = WINDOW_CAPTURE;
	for (int i = 0; i < 50; i++) {
		begin();
		replay(256, 3); /* engines warm a graph up */
	}
	cr_assert_eq(attached, 1);
	cr_assert_eq(detached, 0);
	cr_assert(w.is_open);
}

Test(window, closes_after_as_many_nodes_as_another_window_costs)
{
	w.mode = WINDOW_CAPTURE;
	begin();
	cr_assert_eq(replay(256, 1000), 1 + WINDOW_GRACE_NODES / (256 + WINDOW_LAUNCH_NODES));
	cr_assert_not(w.is_open);
	cr_assert_eq(replay(256, 1000), 1000); /* nothing is left to close */
	begin();
	cr_assert_eq(attached, 2);
	/* A graph of one node, or one that is not known, ends it too. */
	cr_assert_lt(replay(0, 1000), 1000);
}

Test(window, a_capture_on_another_thread_keeps_it_open)
{
	w.mode = WINDOW_CAPTURE;
	begin();
	for (int i = 0; i < 1000; i++)
		cr_assert_not(window_replay(&w, 256, 1));
	cr_assert(w.is_open);
	cr_assert_gt(replay(256, 1000), 1); /* and the grace begins when it has ended */
}

Test(window, a_phase_keeps_it_open_and_is_a_need)
{
	w.mode = WINDOW_AUTO;
	window_phase(&w, true);
	cr_assert(window_wanted(&w));
	begin();
	cr_assert_eq(attached, 1);
	window_phase(&w, true);
	window_phase(&w, false);
	for (int i = 0; i < 1000; i++)
		cr_assert_not(window_replay(&w, 256, 0));
	window_phase(&w, false);
	cr_assert_gt(replay(256, 1000), 1); /* the grace begins when it has ended */
	cr_assert_not(w.is_open);
	window_phase(&w, false); /* begun before a fork */
	begin();
	cr_assert_lt(replay(256, 1000), 1000);
}

Test(window, work_on_a_template_keeps_it_open)
{
	w.mode = WINDOW_CAPTURE;
	window_work(&w);
	cr_assert_not(w.is_open);
	begin();
	for (int i = 0; i < 1000; i++) {
		cr_assert_not(window_replay(&w, 256, 0));
		window_work(&w);
	}
	cr_assert(w.is_open);
}

Test(window, does_not_attach_while_something_captures)
{
	w.mode = WINDOW_CAPTURE;
	cr_assert_eq(window_begin(&w, 1), WINDOW_STAY);
	cr_assert_eq(window_begin(&w, 0), WINDOW_OPEN);
}

Test(window, off_never_always_for_ever)
{
	w.mode = WINDOW_OFF;
	cr_assert_not(window_wanted(&w));
	begin();
	cr_assert_eq(attached, 0);
	w.mode = WINDOW_ALWAYS;
	begin();
	cr_assert_eq(replay(1 << 20, 1000), 1000);
	begin();
	cr_assert_eq(attached, 1);
}

Test(window, auto_waits_for_a_need)
{
	w.mode = WINDOW_AUTO;
	cr_assert_not(window_wanted(&w));
	begin();
	cr_assert_eq(attached, 0);
	w.is_needed = true;
	cr_assert(window_wanted(&w));
	begin();
	cr_assert_eq(attached, 1);
}

Test(window, without_a_usable_cupti_it_is_not_tried_again)
{
	w.mode = WINDOW_CAPTURE;
	cr_assert_eq(window_begin(&w, 0), WINDOW_OPEN);
	window_opened(&w, false, true);
	cr_assert_not(window_wanted(&w));
	cr_assert_eq(window_begin(&w, 0), WINDOW_STAY);
}

Test(window, a_subscriber_that_is_there_first_may_leave)
{
	w.mode = WINDOW_CAPTURE;
	cr_assert_eq(window_begin(&w, 0), WINDOW_OPEN);
	window_opened(&w, false, false);
	cr_assert_not(w.is_open);
	cr_assert_eq(window_begin(&w, 0), WINDOW_OPEN);
}

Test(window, a_guest_that_comes_while_it_attaches_has_it_detached)
{
	w.mode = WINDOW_CAPTURE;
	cr_assert_eq(window_begin(&w, 0), WINDOW_OPEN);
	cr_assert_not(window_guest(&w, GUEST_ACTIVITY));
	cr_assert(window_opened(&w, true, false));
	cr_assert_not(w.is_open);
	window_guest_left(&w, GUEST_ACTIVITY);
	cr_assert_eq(window_begin(&w, 0), WINDOW_OPEN);
	cr_assert_not(window_opened(&w, true, false));
	cr_assert(w.is_open);
}

Test(window, makes_room_for_a_guest_until_it_left)
{
	w.mode = WINDOW_ALWAYS;
	begin();
	cr_assert(window_guest(&w, GUEST_SUBSCRIBER));
	cr_assert_not(window_guest(&w, GUEST_ACTIVITY)); /* closed already */
	cr_assert_eq(window_begin(&w, 0), WINDOW_TAKEN);
	begin();
	cr_assert_eq(attached, 1);
	window_guest_left(&w, GUEST_SUBSCRIBER);
	begin();
	cr_assert_eq(attached, 1, "our finalise would take its activities away");
	cr_assert_not(window_finalised(&w));
	begin();
	cr_assert_eq(attached, 2);
}

Test(window, a_finalise_of_another_is_noticed)
{
	w.mode = WINDOW_CAPTURE;
	begin();
	cr_assert(window_finalised(&w));
	cr_assert_not(w.is_open);
	cr_assert_eq(replay(256, 1000), 1000);
	begin();
	cr_assert_eq(attached, 2);
}
