/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When CUPTI is attached: the decisions, and nothing else (shim/cupti.c carries them out).
 *
 * An attached CUPTI makes every graph launch slow, by some 1.5 us a node; attaching costs about 12
 * ms, detaching 2. So a window is opened where templates are made, and closed by the launches that
 * pay for it: once they have replayed as many nodes as one more window costs
 * (WINDOW_GRACE_NODES), and nothing was captured meanwhile. Whatever the program does, it never
 * pays more than twice what the best choice would have cost; 50 captures in a row attach once; and
 * where nothing is launched, an open window costs nothing. No clock and no thread is needed.
 *
 * The caller serialises all calls.
 */
#ifndef SHIM_WINDOW_H
#define SHIM_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* 14 ms at 1.5 us, rounded down: measured on an H200 with 256 nodes. */
#define WINDOW_GRACE_NODES 8192
/* What a launch costs on top of its nodes, in nodes. */
#define WINDOW_LAUNCH_NODES 16

/* In the order of the words of ARENA_CUPTI. */
enum window_mode { WINDOW_OFF, WINDOW_AUTO, WINDOW_CAPTURE, WINDOW_ALWAYS, WINDOW_ALONE };

/* Who else uses CUPTI; a set. */
enum { GUEST_SUBSCRIBER = 1, GUEST_ACTIVITY = 2 };

struct window {
	enum window_mode mode;
	bool is_open;
	bool is_needed;	   /* auto: something was met that only CUPTI sees */
	bool is_hopeless;  /* there is no CUPTI that could be used */
	unsigned phases;   /* of captures, that the program says are going on */
	unsigned guests;   /* we are not to be there while they are */
	uint64_t replayed; /* nodes, since a template was last worked on */
};

/* @brief Is a window opened by the next template that begins? Lets callers not ask. */
bool window_wanted(const struct window *w);

enum window_answer {
	WINDOW_STAY,  /* as it is */
	WINDOW_OPEN,  /* attach first, then tell window_opened() */
	WINDOW_TAKEN, /* it would, but for a guest */
};

/*
 * @brief A template is about to be captured, created or cloned.
 * @param captures that are under way: attaching might disturb them.
 */
enum window_answer window_begin(struct window *w, uint32_t captures);
/* @brief The program says that captures are to come (@begins), or that they are done. A window
 * that is open stays open meanwhile; window_begin() opens it. */
void window_phase(struct window *w, bool begins);
/* @brief A template is worked on. */
void window_work(struct window *w);
/* @param hopeless it failed for good. @return true: it is not open, as a guest came meanwhile:
 * detach. */
bool window_opened(struct window *w, bool done, bool hopeless);

/* @brief A graph of @nodes nodes is about to be launched. @return true: detach first; the window
 * is closed from here on. */
bool window_replay(struct window *w, uint64_t nodes, uint32_t captures);

/* @brief Another user of CUPTI (a GUEST_ value) comes. @return as window_replay(). */
bool window_guest(struct window *w, unsigned guest);
void window_guest_left(struct window *w, unsigned guest);
/* @brief Someone else finalised CUPTI: nobody is attached any more.
 * @return whether our window was open until then. */
bool window_finalised(struct window *w);

#endif
