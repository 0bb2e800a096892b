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
 * Blocks of a caching allocator lie inside other ranges and are kept apart (block.h): a RANGE_BLOCK
 * exists only for a block that something refers to.
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
	X(RESERVED, "reserved")                                                               \
	X(BLOCK, "block")

enum range_kind {
#define X(id, name) RANGE_##id,
	RANGE_KINDS(X)
#undef X
	RANGE_KIND_COUNT
};
const char *range_kind_name(enum range_kind kind);

enum range_state {
	RANGE_FREE_OBJECT,	/* in the slab's free list, or about to be live */
	RANGE_LIVE,
	RANGE_CLOSING,		/* the driver is being asked; new refs do not find it, those that
				 * are there are sound until it did */
	RANGE_DEAD,		/* kept only while something holds it */
};

/* What captures have to do with a range (block.h), as bits. */
enum range_pooled {
	POOLED_OWN = 1,		/* a block: captures own it; a segment: captures allocate in it */
	POOLED_WINDOW = 2,	/* a block that was allocated while any thread captured */
};

struct exec;

/* One holder of a range: an exec that refers to it. */
struct holder { struct exec *exec; };

struct unmapped;	/* vmm.c */

/*
 * Two cache lines; what a look-up reads is in the first. Objects are type-stable (slab.h): a
 * reader with a stale pointer reads atomically, and finds out from the generation.
 */
struct range {
	/* Written before the range is entered in an index, constant while generation stands. */
	_Atomic uint64_t base;
	_Atomic uint64_t size_bytes;
	_Atomic uint64_t generation;	/* 0: free object; readers re-check it last */
	struct range *_Atomic owner;	/* self, or the reservation of a mapped range */
	struct range *_Atomic index_next;	/* chain of one granule, owned by index.c */
	_Atomic uint32_t pins;		/* one while not buried, one for each ref and birth */
	_Atomic uint32_t holders_count;	/* see holders; also read without the lock */
	_Atomic uint8_t kind;		/* enum range_kind */
	_Atomic uint8_t state;		/* enum range_state */
	/* Set when mapped again under an old generation, cleared by the first write. */
	_Atomic uint8_t content_undefined;
	_Atomic uint8_t pooled;		/* enum range_pooled; of a block or a segment */
	_Atomic uint32_t inner;		/* blocks in it that have an object of their own */
	union {
		uint64_t context;	/* CUcontext it belongs to, 0: none (survives contexts) */
		uint64_t born;		/* of a block: the capture window in which a thread that
					 * captured allocated it, 0: none */
	};

	/* Module of a global, handle of a mapping, capture window of a block (block.c), else 0. */
	uint64_t scope;
	_Atomic uint32_t stack_open;	/* stacks.h id, 0: none */
	_Atomic uint32_t stack_close;
	_Atomic uint32_t thread_close;	/* who closed it last */
	uint32_t holders_cap;
	struct holder *holders;		/* guarded by the holders lock, as holders_cap */
	struct range *all_next, *all_prev;	/* list of one kind, guarded by range.c's lock */
	union {
		struct unmapped *unmapped;	/* of a reservation: what was mapped before */
		struct range *outer;		/* of a block: its segment's owner; pinned */
	};
	void *slab_link;		/* the slab's, while the object is free */
};
_Static_assert(sizeof(struct range) == 128, "two cache lines");

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

/* If set: called with every range that this thread opens or maps, right after, without locks. */
extern _Thread_local void (*ledger_opened)(const struct range *r)
	__attribute__((tls_model("initial-exec")));

/*
 * @brief Announce that the driver is about to free the range with this base.
 * Marks every exec that holds it (exec.h), as ledger_close_end() does again when the driver did.
 * @return the range, or NULL when the base is unknown (pass the call on, nothing to do).
 */
struct range *ledger_close_begin(uint64_t base, uint32_t stack);
/*
 * @brief The driver did it (@done: freed-while-referenced, if something holds it) or refused it
 * (!@done: as if nothing had happened). @param r may be NULL.
 */
void ledger_close_end(struct range *r, bool done);

/* @brief Close everything of a context that is gone, marking holders but without findings: its
 * graphs are gone as well. @return how many. */
unsigned ledger_close_context(uint64_t context);
/* @brief ledger_scope_begin() and ledger_unmap_end(done) in one step. @return how many. */
unsigned ledger_close_scope(enum range_kind kind, uint64_t scope);

/*
 * @brief An exec that owns the allocation node of @base is about to run: if the memory was freed
 * by a call (not by a node), it is live again, under its old generation.
 */
void ledger_revive_graph(uint64_t base);
/* @brief A launch that frees graph memory of another exec by a node is about to run: closed, and
 * its holders are marked, without a finding: whoever allocates it again revives it. */
void ledger_freed_by_node(uint64_t base);

/*
 * Virtual memory. ledger_map opens a RANGE_MAPPED of the reservation around @d->base (a
 * reservation is made up, and counted, when none is known). ledger_unmap_begin announces the
 * unmapping of whatever lies in [base, base+size): the ranges are linked into *batch.
 */
struct range *ledger_map(const struct range_desc *d);
struct unmap_batch { struct range **ranges; uint32_t count, cap; };
void ledger_unmap_begin(uint64_t base, uint64_t size_bytes, uint32_t stack, struct unmap_batch *b);
void ledger_unmap_end(struct unmap_batch *b, bool done);	/* frees the batch */

/*
 * Everything of one kind and scope at once (globals of a module, aliases of host memory, buffers
 * of an external memory object): announced like an unmapping, settled by ledger_unmap_end().
 */
void ledger_scope_begin(enum range_kind kind, uint64_t scope, uint32_t stack,
			struct unmap_batch *b);

/* @brief Live range that contains @addr. @return false when there is none. Lock-free. */
bool ledger_find(uint64_t addr, struct range_view *out);
/* @brief The same, but a block if something refers to it already: the memory's innermost name.
 * Lock-free. */
bool ledger_find_inner(uint64_t addr, struct range_view *out);
/* @brief Is the range at @base that has this generation there, be it a segment or a block in it? */
bool ledger_lives(uint64_t base, uint64_t generation);
/* @brief The same as ledger_find() for whoever refers to the memory from now on: the live block
 * around @addr gets an object, if there is one. May take locks of block.c, which are leaves. */
bool ledger_refer(uint64_t addr, struct range_view *out);
/* @brief Context of the live range that contains @addr; 0: of none. Lock-free. */
uint64_t ledger_context(uint64_t addr);
/* @brief Stack id of who opened what a look-up found. @return 0: none, or it is gone since.
 * Lock-free, @v need not be pinned. */
uint32_t ledger_stack(const struct range_view *v);
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

/* The holders lock: exec.c adds and removes holders under it; range.c marks them under it. */
void ledger_holders_lock(void);
void ledger_holders_unlock(void);
/* @brief Add/remove @e as holder of @owner. Holders lock held. @return 0 or -ENOMEM. */
int ledger_hold(struct range *owner, struct exec *e);
void ledger_release(struct range *owner, struct exec *e);

/*
 * content-undefined: how many live ranges carry it now; hooks of writes look at this one word
 * first. ledger_written clears it on the range that contains @addr, ledger_written_extent on all
 * that [addr, addr + size_bytes) touches; of 0 bytes the first one counts.
 */
extern _Atomic uint32_t ledger_undefined_count;
void ledger_written(uint64_t addr);
void ledger_written_extent(uint64_t addr, uint64_t size_bytes);
/* @brief The memory behind every live mapping of @scope (a multicast object's handle) changed. */
void ledger_undefine_scope(uint64_t scope);

struct ledger_counters {
	uint64_t opened, closed, live, dropped, overlaps, unknown_frees, refused_frees,
		invented_reservations;
	uint64_t live_by_kind[RANGE_KIND_COUNT];
	uint64_t bytes_by_kind[RANGE_KIND_COUNT];
};
void ledger_read_counters(struct ledger_counters *out);

#endif
