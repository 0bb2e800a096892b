/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call stacks, each stored once. A stack is known by the addresses in it; the look-up takes no
 * lock and is all that happens when a stack comes again. A new one is resolved to module + offset
 * at once (its modules may be unloaded later), then entered under a lock that never calls out.
 *
 * What is taken, by ARENA_STACKS:
 *	findings (default)  driver-level allocations and frees in full, because each of them may be
 *			    named by a finding later and none is frequent; stream-ordered ones by
 *			    frame pointers only; the call that led to a finding in full
 *	all		    everything in full
 *	off		    nothing
 *
 * Any thread. Nothing is freed while the process lives; at the limits a stack is left out (its id
 * is 0) and counted.
 */
#include "shim/stacks.h"

#include <errno.h>
#include <string.h>

#include "arena/atomics.h"
#include "arena/slab.h"
#include "shim/coverage.h"
#include "shim/modules.h"
#include "shim/options.h"
#include "shim/unwind.h"

/* Frames of the shim itself that may lie on top. */
#define OWN_DEPTH_MAX	16
/* Twice as many slots as stacks: probe chains stay short. */
#define SLOT_COUNT	(2 * STACK_COUNT_MAX)
/* An average of 24 frames; 16 bytes each, 12 MiB when full. */
#define FRAME_COUNT_MAX	(24 * STACK_COUNT_MAX)

/* Constant once its id is in a slot. */
struct stack {
	uint64_t hash;
	uint32_t first, count;	/* in frames_pc and frames_at */
};

/* module << 48 | offset: user space addresses have 47 bits, modules 12. */
typedef uint64_t packed_frame;

static struct tables {
	_Atomic uint32_t slots[SLOT_COUNT];	/* stack id, 0: empty */
	struct stack stacks[STACK_COUNT_MAX];
	uintptr_t pcs[FRAME_COUNT_MAX];
	packed_frame frames[FRAME_COUNT_MAX];
} *_Atomic tables;

/* Guards the two below and every write into the tables. */
static struct spinlock lock = SPINLOCK_INIT;
static uint32_t stacks_used = 1, frames_used;

static uint64_t hash_pcs(const uintptr_t *pcs, size_t count)
{
	uint64_t h = count;

	for (size_t i = 0; i < count; i++) {
		h = (h ^ pcs[i]) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 29;
	}
	return h;
}

/* @return the id, 0 when it is not stored; *slot is then where it belongs. */
static uint32_t find(struct tables *t, uint64_t hash, const uintptr_t *pcs, size_t count,
		     uint32_t *slot)
{
	for (uint32_t i = (uint32_t)(hash % SLOT_COUNT);; i = (i + 1) % SLOT_COUNT) {
		/* Pairs with the release store in enter(): the stack behind the id is whole. */
		uint32_t id = load_acquire(&t->slots[i]);
		const struct stack *s = &t->stacks[id];

		*slot = i;
		if (id == 0)
			return 0;
		if (s->hash == hash && s->count == count &&
		    memcmp(&t->pcs[s->first], pcs, count * sizeof(*pcs)) == 0)
			return id;
	}
}

static packed_frame pack(uintptr_t pc)
{
	struct stack_frame f = modules_frame(pc);

	return (uint64_t)f.module << 48 | (f.offset & ((UINT64_C(1) << 48) - 1));
}

/* @return the id, or 0 when a limit is reached. */
static uint32_t enter(struct tables *t, const uintptr_t *pcs, const packed_frame *frames,
		      size_t count)
{
	uint64_t hash = hash_pcs(pcs, count);
	uint32_t slot, id;

	spin_lock(&lock);
	id = find(t, hash, pcs, count, &slot);
	if (id == 0 && stacks_used < STACK_COUNT_MAX && count <= FRAME_COUNT_MAX - frames_used) {
		id = stacks_used++;
		t->stacks[id] = (struct stack){ hash, frames_used, (uint32_t)count };
		memcpy(&t->pcs[frames_used], pcs, count * sizeof(*pcs));
		memcpy(&t->frames[frames_used], frames, count * sizeof(*frames));
		frames_used += (uint32_t)count;
		/* Pairs with the acquire load in find(). */
		store_release(&t->slots[slot], id);
	}
	spin_unlock(&lock);
	return id;
}

/* The tables, made at the first stack; NULL when the system has no memory. */
static struct tables *get_tables(void)
{
	/* Pairs with the exchange below. */
	struct tables *t = load_acquire(&tables), *expected = NULL;

	if (t)
		return t;
	t = pages_get(sizeof(*t));
	if (!t || cas_acq_rel(&tables, &expected, t))
		return t;
	pages_put(t, sizeof(*t));
	return expected;
}

static __attribute__((cold, noinline)) uint32_t insert_slow(struct tables *t, const uintptr_t *pcs,
							      size_t count)
{
	packed_frame frames[STACK_DEPTH_MAX];
	uint32_t id;

	for (size_t i = 0; i < count; i++)
		frames[i] = pack(pcs[i]);
	id = enter(t, pcs, frames, count);
	if (id == 0)
		coverage_count(STACKS_LEFT_OUT);
	return id;
}

/*
 * A walk by frame pointers ends in whatever a register held. Past the first address that lies in
 * no module there is nothing to tell, and it would make every stack look new.
 */
static size_t take_fast(uintptr_t *pcs, size_t max)
{
	size_t count = unwind_fast(pcs, max), sound = 0;

	while (sound < count && modules_cover(pcs[sound]))
		sound++;
	return sound;
}

__attribute__((noinline)) uint32_t stack_here(enum stack_use use)
{
	uint64_t mode = option_value(OPTION_STACKS);
	uintptr_t pcs[STACK_DEPTH_MAX + OWN_DEPTH_MAX];
	size_t count, own = 0;
	struct tables *t;
	uint32_t slot, id;

	if (mode == STACKS_OFF)
		return 0;
	t = get_tables();
	if (!t)
		return 0;
	if (use == STACK_FREQUENT && mode != STACKS_ALL)
		count = take_fast(pcs, STACK_DEPTH_MAX + OWN_DEPTH_MAX);
	else
		count = unwind_full(pcs, STACK_DEPTH_MAX + OWN_DEPTH_MAX);
	while (own < count && modules_own(pcs[own]))
		own++;
	count -= own;
	if (count > STACK_DEPTH_MAX)
		count = STACK_DEPTH_MAX;
	if (count == 0)
		return 0;
	id = find(t, hash_pcs(pcs + own, count), pcs + own, count, &slot);
	return id ? id : insert_slow(t, pcs + own, count);
}

size_t stack_frames(uint32_t id, struct stack_frame *out, size_t max)
{
	/* Pairs with the exchange in get_tables(). */
	const struct tables *t = load_acquire(&tables);
	const struct stack *s;
	size_t count;

	if (!t || id == 0 || id >= STACK_COUNT_MAX)
		return 0;
	s = &t->stacks[id];
	count = s->count < max ? s->count : max;
	for (size_t i = 0; i < count; i++) {
		packed_frame f = t->frames[s->first + i];

		out[i].module = (uint32_t)(f >> 48);
		out[i].offset = f & ((UINT64_C(1) << 48) - 1);
	}
	return count;
}

const struct stack_module *stack_module(uint32_t number)
{
	return modules_get(number);
}

const char *stack_unwinder(void)
{
	return unwind_name();
}

void stacks_forget(void)
{
	lock = (struct spinlock)SPINLOCK_INIT;
	modules_forget();
}
