/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread's scope: the arena it works for, and the tag that routes its allocations.
 *
 * Under a tag, device allocations of the thread are served from the slots "tag#0", "tag#1", ... of
 * the arena in whose scope the tag was pushed, in call order. The first pass makes the slots, with
 * the sizes that are asked for; each later one is measured against it:
 *
 *   scratch  is served the live slot, also while an older user still holds it. Its address is for
 *            ever; the user's free is absorbed.
 *   value    inside a reload it is served fresh, zeroed memory - the slot's shadow - which the
 *            layer's commit publishes into the slot. The user may hold it longer than that: then
 *            it goes back to the device with his free. The first pass, and any outside of a
 *            reload, is served the live slot, as a put writes there at once (arena.h).
 *
 * A call that does not fit - one too many, another size or device - goes to the driver, and is a
 * misfit; so is a pass that ends early. A size fits only if it is the same to the byte. A pass
 * without any call is no pass (its wrapper was kept, or allocates later). Misfits are findings
 * (tag-sequence) against every snapshot that is older than they are, so of the reload in which they
 * happened and of no later one; a pass that fits does not take back what one before it left.
 *
 * How long a pass is, is known from the next snapshot on (a reload takes one when it begins), as
 * slots are (design rule 6); but a reload that failed teaches nothing, unless it has committed the
 * tag's layer. Until then a longer pass makes the sequence longer, so that a first pass that was
 * cut short can be made good. What is not taught has no slots either: those that such a reload made
 * are tentative. Unless a graph reads them nobody misses their values, and a pass with other sizes
 * makes them anew, until a put takes them, also one that fails then.
 *
 * A pass of values belongs to the reload of its first call, wherever the tag was pushed; a call on
 * the other side of a begin or an end is a misfit. While a reload is ending nothing is staged any
 * more: a value's allocation goes to the driver, and is no misfit. A layer is not committed while a
 * value tag of it is open, as half a pass would be published.
 *
 * Served memory is a part of a larger driver allocation: cuMemGetAddressRange() and
 * CU_POINTER_ATTRIBUTE_RANGE_START_ADDR tell the base of that one, and so do IPC handles.
 *
 * To hand work to another thread, enter the same arena there; scopes and tags are the thread's
 * own. A tag whose thread has ended is popped by whoever finds it, and its pass is a misfit.
 *
 * Locks: the registry lock, then the lock of the leases, then the holders lock of ledger.h; no call
 * of the device under any.
 */
#ifndef ARENA_TAG_H
#define ARENA_TAG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "arena/registry.h"
#include "arena/snapshot.h"

#define SCOPE_DEPTH 32

/* ---- scopes: arenas of this thread, the newest is current ---- */

int scope_enter(struct arena *a);	/* 0, ARENA_E_BUSY when deeper than SCOPE_DEPTH */
/* @return ARENA_E_BUSY when not inside one, or when a tag that was pushed in it is still open. */
int scope_leave(void);
struct arena *scope_current(void);	/* NULL outside */

/* ---- tags ---- */

/*
 * @brief Open the tag @name of the current arena: ARENA_SCRATCH or ARENA_VALUE.
 * @return 0, or ARENA_E_INVALID (name, kind), ARENA_E_BUSY (no scope, too deep, the tag is open
 * already, in whatever thread, or it is a value's and the layer is being committed), ARENA_E_SPEC
 * (it was of the other kind), ARENA_E_NOMEM.
 */
int tag_push(const char *name, enum arena_kind kind);
int tag_pop(void);			/* ARENA_E_BUSY when there is none */

/* Tags that the thread is under. The one thing an allocation wrapper asks. Initial-exec, as
 * shim_inside of shim.h. */
extern _Thread_local unsigned tag_depth __attribute__((tls_model("initial-exec")));

struct tag_request {
	uint64_t bytes;
	uint64_t align;			/* a power of two */
	uint64_t stream;		/* of the allocation, for zeroing what is served again */
	int32_t device;
};

/*
 * @brief Serve an allocation of the thread, which is under a tag. No lock held; may ask the device.
 * @return true: *addr is the slot's memory, the driver is not to be asked; false: it is.
 */
bool tag_serve(const struct tag_request *want, uint64_t *addr);

/* @brief The thread's next call is one that no slot can serve, because of @why. */
void tag_decline(uint64_t bytes, const char *why);

/* What becomes of a free. */
enum tag_free {
	TAG_FOREIGN,	/* not ours: ask the driver */
	TAG_ABSORBED,	/* done: success */
	TAG_REFUSED,	/* ours, but nobody holds it: an error, as for what was never allocated */
};
/* @brief @addr is about to be freed, and storage_bytes() is not 0: one relaxed load for all frees
 * of a process without slots. No lock held; may ask the device. */
enum tag_free tag_absorb(uint64_t addr);

/*
 * @brief stage.c is about to give the shadow @addr back: is it a tagged user's, who still holds
 * it? Then it is his from now on, and goes back with his free. Registry lock may be held.
 */
bool tag_keeps_shadow(uint64_t addr);

/* @brief May a put write @s? Registry lock held. @return 0; ARENA_E_BUSY: a value tag has served
 * its shadow, or in a reload's first pass its live memory, and the application fills that. */
int tag_check_put(const struct slot *s);

/* @brief The driver has destroyed @context and the memory in it: what was served there is not ours
 * any more, whoever frees it. Takes the registry lock. */
void tag_context_gone(uint64_t context);

/* @brief The layer @a is about to be committed: until tag_commit_end() no value tag of it is open.
 * Registry lock not held. @return 0; ARENA_E_BUSY: one is, the message says in which thread. */
int tag_commit_begin(struct arena *a);
/* @param published the commit was successful: what its passes have taught stays. */
void tag_commit_end(struct arena *a, bool published);

/* @brief A snapshot is being taken: what passes have taught is known from now on. Registry lock
 * held. @return the number of misfits so far. */
uint64_t tag_snapshot(void);
/*
 * @brief Append the tag-sequence findings of @a (NULL: of all arenas) since @before was taken
 * (NULL: ever). Severity: error for values (what was not staged stays old), warn for scratch (the
 * graph's own memory is still there). Registry lock not held. @return 0 or ARENA_E_NOMEM.
 */
int tag_verify(const struct arena_snapshot *before, const struct arena *a,
	       struct slot_findings *out);

/* ---- for keep.c: virtual memory under a tag ---- */

/* What a call counts as in its sequence. */
enum tag_call { TAG_ALLOC, TAG_RESERVE, TAG_CREATE, TAG_CALLS };

/* The calls under one tag of one arena. Never freed. Guarded by the registry lock; but the thread
 * that has it open may read what does not change meanwhile. */
struct tag_misfit {
	uint32_t name, detail;		/* interned: slot or tag; why */
	const struct slot *slot;	/* NULL: there is none */
	uint64_t bytes;			/* that were asked for */
	uint64_t number;		/* among the misfits of the process, from 1 */
};
struct tag_sequence {
	struct arena *arena;		/* these three never change */
	uint32_t name;			/* interned */
	enum arena_kind kind;
	uint32_t thread;		/* that has it open, 0: nobody */
	pthread_mutex_t life;		/* robust, and that thread has it: the kernel tells when the
					 * thread has ended, whoever has its number by then */
	uint64_t reload;		/* of the newest pass's first call, 0: in none */
	uint64_t taught;		/* reload that the length is from, 0: none, or it has
					 * committed the layer since */
	uint32_t length[TAG_CALLS];	/* of the longest pass */
	uint32_t next[TAG_CALLS];	/* calls of the newest pass */
	bool known;			/* length grows no more */
	struct tag_misfit *misfits;	/* no two alike, the newest of each */
	uint32_t misfits_count, misfits_cap;
	uint64_t forgotten;		/* number of the newest that is not listed, 0: none */
	struct tag_sequence *all_next;
};

/* The rest with the registry lock held, by a thread that is under a tag. */
struct tag_sequence *tag_current(void);
/* @brief Count a call of the pass. @return its number. */
uint32_t tag_count(struct tag_sequence *q, enum tag_call call);
/* @brief Did the pass of values begin outside of the reload that is open now, or in one that is
 * not? */
bool tag_strays(const struct tag_sequence *q);
/* @brief Is call @number one that the passes of this sequence have? */
bool tag_fits(const struct tag_sequence *q, enum tag_call call, uint32_t number);
/* @brief "tag#@number". */
void tag_slot_name(const struct tag_sequence *q, uint32_t number, char *buf, size_t buf_bytes);
/* @brief A new slot for @q, or the one that has the name already. NULL: no memory. */
struct slot *tag_slot_new(struct tag_sequence *q, const char *name, uint64_t bytes,
			  int32_t device_ordinal);
/* @brief Is @s of a reload that failed, so that a pass may make it anew? */
bool tag_slot_in_vain(const struct slot *s);
/* @brief If it is, let it be a new one of that size. The caller binds it before he unlocks: a slot
 * that had storage always has some. @return was it so? */
bool tag_slot_renew(struct slot *s, uint64_t bytes, int32_t device_ordinal);
/* @brief The pass does not fit: what of it (a slot's name), and why (printf). */
void tag_misfit(struct tag_sequence *q, const struct tag_misfit *what, const char *why, ...)
	__attribute__((format(printf, 3, 4)));

#endif
