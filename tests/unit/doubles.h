/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doubles of what the ledger calls in exec.c and guard.c: they note what they were told. Included
 * by one .c of a test, which then links without the real ones.
 */
#ifndef TESTS_UNIT_DOUBLES_H
#define TESTS_UNIT_DOUBLES_H

#include "arena/device.h"
#include "arena/event.h"
#include "arena/exec.h"
#include "arena/suspect.h"

struct device_ops device;

static struct {
	_Atomic unsigned marks;	    /* calls of exec_mark_holders() */
	_Atomic unsigned freed;	    /* calls of guard_freed() */
	_Atomic unsigned unmapped;  /* calls of guard_unmapped() */
	struct range *_Atomic last; /* of the newest mark or free */
	_Atomic uint32_t stack, count;
} told;

void exec_mark_holders(struct range *owner)
{
	/* The holders lock is held: what is listed is complete. */
	for (uint32_t i = 0; i < owner->holders_count; i++)
		store_release(&owner->holders[i].exec->mark, 1);
	add_relaxed(&told.marks, 1);
	store_relaxed(&told.last, owner);
}

void guard_freed(struct range *r, uint32_t stack)
{
	add_relaxed(&told.freed, 1);
	store_relaxed(&told.last, r);
	store_relaxed(&told.stack, stack);
}

void guard_unmapped(struct range *const *ranges, uint32_t count, uint32_t stack)
{
	add_relaxed(&told.unmapped, 1);
	store_relaxed(&told.last, ranges[0]);
	store_relaxed(&told.count, count);
	store_relaxed(&told.stack, stack);
}

bool suspect_points(const struct range *r)
{
	return false;
}

void suspect_freed(const struct range *r, uint32_t stack)
{
}

#endif
