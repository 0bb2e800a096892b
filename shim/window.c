/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions of window.h. The caller serialises all calls. */
#include "shim/window.h"

bool window_wanted(const struct window *w)
{
	if (w->mode == WINDOW_OFF || w->is_hopeless)
		return false;
	return w->mode != WINDOW_AUTO || w->is_needed;
}

enum window_answer window_begin(struct window *w, uint32_t captures)
{
	w->replayed = 0;
	if (!window_wanted(w) || w->is_open || captures != 0)
		return WINDOW_STAY;
	return w->guests ? WINDOW_TAKEN : WINDOW_OPEN;
}

void window_phase(struct window *w, bool begins)
{
	w->replayed = 0;
	w->is_needed |= begins;
	if (begins)
		w->phases++;
	else if (w->phases)
		w->phases--;
}

void window_work(struct window *w)
{
	w->replayed = 0;
}

bool window_opened(struct window *w, bool done, bool hopeless)
{
	w->is_open = done && !w->guests;
	w->is_hopeless = hopeless;
	return done && !w->is_open;
}

/* @return whether there is something to detach. */
static bool close(struct window *w)
{
	bool was_open = w->is_open;

	w->is_open = false;
	w->replayed = 0;
	return was_open;
}

bool window_replay(struct window *w, uint64_t nodes, uint32_t captures)
{
	if (!w->is_open || w->mode == WINDOW_ALWAYS)
		return false;
	w->replayed += nodes + WINDOW_LAUNCH_NODES;
	if (captures != 0 || w->phases != 0)
		w->replayed = 0;
	return w->replayed >= WINDOW_GRACE_NODES && close(w);
}

bool window_guest(struct window *w, unsigned guest)
{
	w->guests |= guest;
	return close(w);
}

void window_guest_left(struct window *w, unsigned guest)
{
	w->guests &= ~guest;
}

bool window_finalised(struct window *w)
{
	w->guests = 0;
	return close(w);
}
