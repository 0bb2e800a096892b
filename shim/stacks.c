/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call stacks, each stored once. A stack is known by the addresses in it; the look-up takes no
 * lock and is all that happens when a stack comes again. A new one is resolved to module + offset
 * at once (its modules may be unloaded later), then entered under a lock that never calls out.
 *
 * What is taken, by ARENA_STACKS:
 *	findings (default)  driver-level allocations and frees in full, because each of them may be
 *			    named by a finding later and none is frequent; stream-ordered ones by
 *			    frame pointers only, blocks of a framework so with Python frames; the
 *			    call that led to a finding in full
 *	(in full: unwound with tables where that can be done, and with its Python frames)
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
#include "shim/python.h"
#include "shim/unwind.h"

/* Frames of the shim itself that may lie on top. */
#define OWN_DEPTH_MAX	16
/* Innermost frames that a place of the program is known by. Who calls it differs between a load and
 * a reload; of native code, the first frame is often a helper that all use. */
#define SITE_PYTHON	1
#define SITE_NATIVE	2
/* Twice as many slots as stacks: probe chains stay short. */
#define SLOT_COUNT	(2 * STACK_COUNT_MAX)
/* An average of 24 frames; 16 bytes each, 12 MiB when full. */
#define FRAME_COUNT_MAX	(24 * STACK_COUNT_MAX)

/* Constant once its id is in a slot. */
struct stack {
	uint64_t hash;
	uint32_t first, count;			/* in pcs and frames */
	uint32_t python_first, python_count;	/* in python */
};

/* What was taken, before it has an id. */
struct taken {
	uint64_t hash;
	const uintptr_t *pcs;
	size_t count, python_count;
	struct python_frame python[STACK_PYTHON_MAX];
};

/* module << 48 | offset: user space addresses have 47 bits, modules 12. */
typedef uint64_t packed_frame;

static struct tables {
	_Atomic uint32_t slots[SLOT_COUNT];	/* stack id, 0: empty */
	struct stack stacks[STACK_COUNT_MAX];
	uintptr_t pcs[FRAME_COUNT_MAX];
	packed_frame frames[FRAME_COUNT_MAX];
	struct python_frame python[FRAME_COUNT_MAX];
} *_Atomic tables;

/* Guards the three below and every write into the tables. */
static struct spinlock lock = SPINLOCK_INIT;
static uint32_t stacks_used = 1, frames_used, python_used;

static uint64_t hash_word(uint64_t h, uint64_t word)
{
	h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ h >> 29;
}

static uint64_t hash_of(const struct taken *s)
{
	uint64_t h = s->count;

	for (size_t i = 0; i < s->count; i++)
		h = hash_word(h, s->pcs[i]);
	for (size_t i = 0; i < s->python_count; i++) {
		h = hash_word(h, (uint64_t)s->python[i].file << 32 | s->python[i].function);
		h = hash_word(h, (uint64_t)s->python[i].line);
	}
	return h;
}

static bool same(const struct tables *t, const struct stack *a, const struct taken *b)
{
	return a->hash == b->hash && a->count == b->count && a->python_count == b->python_count &&
	       memcmp(&t->pcs[a->first], b->pcs, b->count * sizeof(*b->pcs)) == 0 &&
	       memcmp(&t->python[a->python_first], b->python,
		      b->python_count * sizeof(*b->python)) == 0;
}

/* @return the id, 0 when it is not stored; *slot is then where it belongs. */
static uint32_t find(struct tables *t, const struct taken *s, uint32_t *slot)
{
	for (uint32_t i = (uint32_t)(s->hash % SLOT_COUNT);; i = (i + 1) % SLOT_COUNT) {
		/* Pairs with the release store in enter(): the stack behind the id is whole. */
		uint32_t id = load_acquire(&t->slots[i]);

		*slot = i;
		if (id == 0 || same(t, &t->stacks[id], s))
			return id;
	}
}

static packed_frame pack(uintptr_t pc)
{
	struct stack_frame f = modules_frame(pc);

	return (uint64_t)f.module << 48 | (f.offset & ((UINT64_C(1) << 48) - 1));
}

static bool has_room(const struct taken *s)
{
	return stacks_used < STACK_COUNT_MAX && s->count <= FRAME_COUNT_MAX - frames_used &&
	       s->python_count <= FRAME_COUNT_MAX - python_used;
}

/* @return the id, or 0 when a limit is reached. */
static uint32_t enter(struct tables *t, const struct taken *s, const packed_frame *frames)
{
	uint32_t slot, id;

	spin_lock(&lock);
	id = find(t, s, &slot);
	if (id == 0 && has_room(s)) {
		id = stacks_used++;
		t->stacks[id] = (struct stack){ s->hash, frames_used, (uint32_t)s->count,
						python_used, (uint32_t)s->python_count };
		memcpy(&t->pcs[frames_used], s->pcs, s->count * sizeof(*s->pcs));
		memcpy(&t->frames[frames_used], frames, s->count * sizeof(*frames));
		memcpy(&t->python[python_used], s->python, s->python_count * sizeof(*s->python));
		frames_used += (uint32_t)s->count;
		python_used += (uint32_t)s->python_count;
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

static __attribute__((cold, noinline)) uint32_t insert_slow(struct tables *t,
							     const struct taken *s)
{
	packed_frame frames[STACK_DEPTH_MAX];
	uint32_t id;

	for (size_t i = 0; i < s->count; i++)
		frames[i] = pack(s->pcs[i]);
	id = enter(t, s, frames);
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

/* Without our own frames, which lie on top. */
static void trim(struct taken *s)
{
	while (s->count > 0 && modules_own(s->pcs[0])) {
		s->pcs++;
		s->count--;
	}
	if (s->count > STACK_DEPTH_MAX)
		s->count = STACK_DEPTH_MAX;
}

__attribute__((noinline)) uint32_t stack_here(enum stack_use use)
{
	uint64_t mode = option_value(OPTION_STACKS);
	bool all = mode == STACKS_ALL, full = all || use == STACK_SEGMENT || use == STACK_FINDING;
	uintptr_t pcs[STACK_DEPTH_MAX + OWN_DEPTH_MAX];
	struct tables *t;
	struct taken s;
	uint32_t slot, id;

	if (mode == STACKS_OFF)
		return 0;
	t = get_tables();
	if (!t)
		return 0;
	s.pcs = pcs;
	s.count = full ? unwind_full(pcs, STACK_DEPTH_MAX + OWN_DEPTH_MAX) :
			 take_fast(pcs, STACK_DEPTH_MAX + OWN_DEPTH_MAX);
	trim(&s);
	s.python_count = 0;
	if (all || use != STACK_FREQUENT)
		s.python_count = python_stack(s.python, STACK_PYTHON_MAX);
	if (s.count + s.python_count == 0)
		return 0;
	s.hash = hash_of(&s);
	id = find(t, &s, &slot);
	return id ? id : insert_slow(t, &s);
}

/* @return NULL for an id that was never given out. */
static const struct stack *stack_at(const struct tables *t, uint32_t id)
{
	return t && id && id < STACK_COUNT_MAX ? &t->stacks[id] : NULL;
}

size_t stack_frames(uint32_t id, struct stack_frame *out, size_t max)
{
	/* Pairs with the exchange in get_tables(). */
	const struct tables *t = load_acquire(&tables);
	const struct stack *s = stack_at(t, id);
	size_t count;

	if (!s)
		return 0;
	count = s->count < max ? s->count : max;
	for (size_t i = 0; i < count; i++) {
		packed_frame f = t->frames[s->first + i];

		out[i].module = (uint32_t)(f >> 48);
		out[i].offset = f & ((UINT64_C(1) << 48) - 1);
	}
	return count;
}

size_t stack_python(uint32_t id, struct python_frame *out, size_t max)
{
	/* Pairs with the exchange in get_tables(). */
	const struct tables *t = load_acquire(&tables);
	const struct stack *s = stack_at(t, id);
	size_t count;

	if (!s)
		return 0;
	count = s->python_count < max ? s->python_count : max;
	memcpy(out, &t->python[s->python_first], count * sizeof(*out));
	return count;
}

uint64_t stack_site(uint32_t id)
{
	/* Pairs with the exchange in get_tables(). */
	const struct tables *t = load_acquire(&tables);
	const struct stack *s = stack_at(t, id);
	struct taken inner = { .hash = 0 };

	if (!s || s->count + s->python_count == 0)
		return 0;
	inner.python_count = s->python_count < SITE_PYTHON ? s->python_count : SITE_PYTHON;
	if (s->python_count == 0)
		inner.count = s->count < SITE_NATIVE ? s->count : SITE_NATIVE;
	inner.pcs = &t->pcs[s->first];
	memcpy(inner.python, &t->python[s->python_first],
	       inner.python_count * sizeof(*inner.python));
	return hash_of(&inner) | 1;
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
	python_forget();
}
