/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger: every range of memory that the driver handed out, with a generation.
 *
 * Order of calls around the driver: a range opens after the driver returned it, and closes
 * before the driver is asked to free it (undone if the driver refuses). The driver can hand an
 * address out again only after the free began, so two live owners of one address never appear.
 *
 * Virtual memory: a reservation is a range of its own (RANGE_RESERVED, kept in a second index);
 * what is mapped into it is a RANGE_MAPPED whose owner is the reservation. Refs of graphs hang on
 * the owner: unmapping and mapping again at the same address keeps the generation (design rule 3).
 * Every other range is its own owner.
 *
 * Threads: any function from any thread; look-ups take no lock. No function calls the driver.
 */
#ifndef ARENA_LEDGER_H
#define ARENA_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "atomics.h"

/* name in reports */
#define RANGE_KINDS(X)                                                                        \
	X(DEVICE, "device")                                                                   \
	X(MANAGED, "managed")                                                                 \
	X(HOST, "host")                                                                       \
	X(MAPPED, "mapped")                                                                   \
	X(POOL, "pool")                                                                       \
	X(GRAPH, "graph")                                                                     \
	X(IPC, "ipc")                                                                         \
	X(GLOBAL, "global")                                                                   \
	X(RESERVED, "reserved")

enum range_kind {
#define X(id, name) RANGE_##id,
	RANGE_KINDS(X)
#undef X
	RANGE_KIND_COUNT
};
const char *range_kind_name(enum range_kind kind);

enum range_state {
	RANGE_FREE_OBJECT,	/* in the slab's free list */
	RANGE_LIVE,
	RANGE_CLOSING,		/* the driver is being asked; counts as dead for new refs */
	RANGE_DEAD,		/* kept only while something holds it */
};

struct exec;

/* One holder of a range: an exec that refers to it. */
struct holder { struct exec *exec; };

struct range {
	/* Written before the range is entered in an index, constant while generation stands. */
	uint64_t base;
	uint64_t size_bytes;
	_Atomic uint64_t generation;	/* 0: free object; readers re-check it last */
	struct range *owner;		/* self, or the reservation of a mapped range */
	uint64_t context;		/* CUcontext it belongs to, 0: none (survives contexts) */
	uint64_t scope;			/* CUmodule/CUlibrary of a global, handle of a mapping, else 0 */
	uint32_t stack_open;		/* stacks.h id, 0: none */
	uint32_t stack_close;
	uint32_t thread_close;		/* who closed it last */
	uint8_t kind;			/* enum range_kind */
	_Atomic uint8_t state;		/* enum range_state */
	/* Set when mapped again under an old generation, cleared by the first write. */
	_Atomic uint8_t content_undefined;
	uint8_t pad;
	struct range *_Atomic index_next;	/* chain of one granule, owned by index.c */
	struct range *all_next, *all_prev;	/* list of one kind, guarded by ledger.c's lock */
	/* Guarded by the holders lock (ledger_holders_lock); the count is also read without it. */
	struct holder *holders;
	uint32_t holders_cap;
	_Atomic uint32_t holders_count;
	_Atomic uint32_t pins;		/* refs of execs and births; object reused at 0 and DEAD */
};

/* What a caller knows of a new range. */
struct range_desc {
	uint64_t base, size_bytes;
	enum range_kind kind;
	uint64_t context, scope;
	uint32_t stack;
};

/* A consistent copy of what a look-up found. */
struct range_view {
	struct range *range, *owner;
	uint64_t base, size_bytes;
	uint64_t generation;		/* of the owner */
	enum range_kind kind;
};

int ledger_init(void);

/*
 * @brief Open a range. A live range of the same index that overlaps is closed first (its free
 * was not seen) and counted in ledger_counters.overlaps.
 * @return the range, or NULL when the system has no memory (counted in .dropped).
 */
struct range *ledger_open(const struct range_desc *d);

/*
 * @brief Announce that the driver is about to free the range with this base.
 * Marks every exec that holds it (exec.h) and emits freed-while-referenced.
 * @return the range, or NULL when the base is unknown (pass the call on, nothing to do).
 */
struct range *ledger_close_begin(uint64_t base, uint32_t stack);
/* @brief The driver did it (@done) or refused it (!@done: as if nothing had happened).
 * @param r may be NULL. */
void ledger_close_end(struct range *r, bool done);

/* @brief Close everything of a context, or of a module/library, without findings for execs of
 * the same context. @return how many. */
unsigned ledger_close_context(uint64_t context);
unsigned ledger_close_scope(enum range_kind kind, uint64_t scope);

/*
 * Virtual memory. ledger_map opens a RANGE_MAPPED of the reservation around @d->base (a
 * reservation is made up, and counted, when none is known). ledger_unmap_begin announces the
 * unmapping of whatever lies in [base, base+size): the ranges are linked into *batch.
 */
struct range *ledger_map(const struct range_desc *d);
struct unmap_batch { struct range **ranges; uint32_t count, cap; };
void ledger_unmap_begin(uint64_t base, uint64_t size_bytes, uint32_t stack, struct unmap_batch *b);
void ledger_unmap_end(struct unmap_batch *b, bool done);	/* frees the batch */

/* @brief Live range that contains @addr. @return false when there is none. Lock-free. */
bool ledger_find(uint64_t addr, struct range_view *out);
/* @brief Live reservation that contains @addr. Lock-free. */
bool ledger_find_reserved(uint64_t addr, struct range_view *out);

/* @brief Keep @v->owner's object (not its memory) until ledger_unpin.
 * @return false when it was reused since the look-up; then it is not pinned. */
bool ledger_pin(const struct range_view *v);
void ledger_unpin(struct range *owner);

/* @brief Is the memory behind (@owner, @generation) at @addr there now?
 * Lock-free; the owner is pinned by the caller. */
enum range_health {
	RANGE_HEALTHY,
	RANGE_IS_FREED,		/* dead, nothing else lives at the address */
	RANGE_IS_UNMAPPED,	/* reservation lives, nothing mapped at the address */
	RANGE_IS_REPLACED,	/* dead, another generation lives at the address */
};
enum range_health ledger_health(struct range *owner, uint64_t generation, uint64_t addr);

/* The holders lock: graph.c adds and removes holders under it; ledger.c walks them under it. */
void ledger_holders_lock(void);
void ledger_holders_unlock(void);
/* @brief Add/remove @e as holder of @owner. Holders lock held. @return 0 or -ENOMEM. */
int ledger_hold(struct range *owner, struct exec *e);
void ledger_release(struct range *owner, struct exec *e);

/*
 * content-undefined: how many live ranges carry it now; hooks of writes look at this one word
 * first. ledger_written clears it on the range that contains @addr.
 */
extern _Atomic uint32_t ledger_undefined_count;
void ledger_written(uint64_t addr);

struct ledger_counters {
	uint64_t opened, closed, live, dropped, overlaps, unknown_frees, refused_frees,
		invented_reservations;
	uint64_t live_by_kind[RANGE_KIND_COUNT];
	uint64_t bytes_by_kind[RANGE_KIND_COUNT];
};
void ledger_read_counters(struct ledger_counters *out);

#endif
