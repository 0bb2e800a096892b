/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one exec captured, packed; private to exec.c, birth.c and guard.c.
 *
 * A body that is being built belongs to one thread; one that is published in a struct exec is
 * guarded by the holders lock of ledger.h. Every owner in it is pinned by it.
 *
 *   nodes    24 bytes each, in walk order; birth dates them against the bindings of slots
 *   refs     12 bytes each; those of a node are a slice [first, first + count)
 *   owners   24 bytes for each range that some ref points into, plus 4 to 8 of hash when there
 *            are more than OWNERS_LINEAR
 *
 * A kernel node with 3 to 6 pointers so takes 60 to 96 bytes; owners are shared by all nodes.
 */
#ifndef ARENA_BODY_H
#define ARENA_BODY_H

#include "arena/block.h"
#include "arena/exec.h"
#include "arena/suspect.h"

/* A word that was resolved: what it pointed at when it was written. */
struct ref {
	uint64_t value;
	struct range *owner; /* pinned by whoever keeps it */
	uint64_t generation; /* of the owner */
	uint16_t param, offset;
	uint8_t confidence;
	uint8_t bears; /* word_bears() when it was written */
};

#define OWNERS_LINEAR 8
#define OWNERS_MAX    (1u << 20)   /* width of exec_ref.owner */
#define DISTANCE_MAX  (1ull << 44) /* width of exec_ref.distance */
#define PLACE_MAX     (1u << 15)   /* parameters are at most 32,764 bytes */
#define DEPTH_MAX     (1u << 11)   /* width of exec_node.depth */
#define OWNER_NONE    UINT32_MAX

struct exec_node {
	uint64_t key; /* CUgraphNode of the template */
	uint32_t name;
	uint32_t first; /* its refs */
	uint32_t birth; /* binding_clock when its words were written */
	uint16_t count;
	uint16_t depth : 11;
	uint16_t kind : 4;
	uint16_t disabled : 1;
};

struct exec_ref {
	uint64_t distance : 44; /* of the captured value from the owner's base */
	uint64_t owner : 20;	/* index in owners */
	uint32_t param : 15;
	uint32_t offset : 15;
	uint32_t confidence : 2;
} __attribute__((packed, aligned(4)));

struct exec_owner {
	struct range *range;
	uint64_t generation;
	uint32_t refs; /* 0: dead entry, until the body is packed again */
	uint8_t held;  /* the exec is a holder of it */
	uint8_t own;   /* memory of one of the exec's own allocation nodes */
	uint8_t seen;  /* scratch of guard.c: reasons met in this scan */
	uint8_t bears; /* a ref to it does (struct ref): each replay overwrites it */
};

_Static_assert(NODE_KIND_COUNT <= 16, "width of exec_node.kind");
_Static_assert(sizeof(struct exec_node) == 24, "budget: bytes per graph node");
_Static_assert(sizeof(struct exec_ref) == 12, "budget: bytes per graph node");
_Static_assert(sizeof(struct exec_owner) == 24, "budget: bytes per graph node");

struct exec_body {
	struct exec_node *nodes;
	struct exec_ref *refs;
	struct exec_owner *owners;
	uint32_t *slots; /* hash of owners: index + 1, 0: free */
	uint64_t *owned; /* bases of the exec's own allocation nodes */
	uint64_t *freed; /* bases of its free nodes */
	uint32_t nodes_count, nodes_cap;
	uint32_t refs_count, refs_cap;
	uint32_t owners_count, owners_cap;
	uint32_t slots_cap; /* a power of two, or 0 */
	uint32_t owned_count, owned_cap;
	uint32_t freed_count, freed_cap;
	uint32_t refs_loose; /* refs that no node points to any more */
	uint32_t owners_dead;
	uint32_t suspects; /* words too weak to be refs, only counted */
	uint32_t hint;	   /* node found last; updates come in order */
	uint64_t reported; /* key of the newest stale-launch finding, 0: none */
	struct suspect *found; /* suspect.h: what a scan found behind its parameters */
	bool unborn;	   /* a node's words were resolved without a birth */
	bool told_unsafe;  /* its last launch was refused because the process is unsafe */
};

struct exec_body *body_new(void);
/* @brief Drop the contents and keep the arrays. */
void body_clear(struct exec_body *b);
void body_free(struct exec_body *b);

/* Each returns 0 or -ENOMEM. Refs go to the node that was added last. */
int body_add_node(struct exec_body *b, const struct node_desc *n);
int body_add_owned(struct exec_body *b, uint64_t base);
int body_add_freed(struct exec_body *b, uint64_t base);
/* @brief Allocation and free nodes of @from. */
int body_add_memory(struct exec_body *b, const struct exec_body *from);
/* @brief Base of the @i-th free node whose memory @b does not allocate itself. @return 0: none. */
uint64_t body_frees(const struct exec_body *b, uint32_t i);
/* @return also -ESTALE: the owner was reused since it was looked up, nothing is added. */
int body_add_ref(struct exec_body *b, const struct ref *r);
/* @brief Resolve @w against the ledger as it is now. */
int body_add_word(struct exec_body *b, const struct word *w);
/* @brief Node @i of @from with its refs; its depth grows by @depth. */
int body_add_copy(struct exec_body *b, const struct exec_body *from, uint32_t i, uint32_t depth);

/* @brief An exact copy without loose refs and dead owners. @return NULL: no memory. */
struct exec_body *body_pack(const struct exec_body *from);
/* @brief Give node @i the refs and the name of the only node of @from. @return 0 or -ENOMEM,
 * then node @i has no refs. */
int body_replace(struct exec_body *b, uint32_t i, const struct exec_body *from);

/* @return the index, or nodes_count. */
uint32_t body_node(struct exec_body *b, uint64_t key);
/* @return the index, or OWNER_NONE. */
uint32_t body_owner(const struct exec_body *b, const struct range *r);

static inline uint64_t body_value(const struct exec_body *b, const struct exec_ref *r)
{
	/* Relaxed: constant, the owner is pinned. */
	return load_relaxed(&b->owners[r->owner].range->base) + r->distance;
}

/* @brief Why a launch may not use ref @r of node @n, by the ledger and the bindings of now.
 * @return STALE_REASON_COUNT: it may. Holders lock held. guard.c */
enum stale_reason ref_judge(const struct exec_body *b, const struct exec_node *n,
			    const struct exec_ref *r);

/* @brief What memory @w points into now. What is only counted gives no block an object. */
static inline bool word_find(const struct word *w, struct range_view *out)
{
	return w->confidence == CONFIDENCE_SUSPECT ? ledger_find(w->value, out)
						   : ledger_refer(w->value, out);
}

/* @brief May a node write the block @r at word @param, and did the node's own capture allocate @r?
 * Of a kernel's arguments nobody can tell, so it may. Asked when the word is written. */
static inline bool word_bears(enum node_kind kind, uint16_t param, const struct range *r)
{
	return (kind != NODE_MEMCPY || param != 0) && block_is_newborn(r);
}

/* birth.c: add the words of @n to @to, as they were meant when the node was born. */
int birth_resolve(const struct node_desc *n, struct exec_body *to);
/* @brief Tell every ref of a birth: its word, generation and clock. May be called under the
 * holders lock. */
void birth_each_ref(void (*tell)(uint64_t addr, uint64_t generation, uint32_t clock));

/* ---- exec.c, for exec_edit.c and guard.c; holders lock held unless said otherwise ---- */

/* Bits of exec.mark, set under the lock. MARK_ORDER: a publication may concern it (order.h). */
enum { MARK_JUDGE = 1, MARK_OWNS = 2, MARK_ORDER = 4 };

struct exec_stats {
	counter_t opened, nodes, exact, structs, suspects, kinds[NODE_KIND_COUNT], births, judged,
		stale, refused, dropped;
};
extern struct exec_stats exec_stats;

/* @brief The finished body, or NULL. No lock. */
struct exec_body *exec_builder_take(const struct exec_builder *b);
/* @brief What was built so far. @return NULL: @b is NULL or failed. No lock. */
const struct exec_body *exec_builder_body(const struct exec_builder *b);
/* @brief Make the freshly packed @fresh the body of @e.
 * @return the old one, to be freed without the lock. */
struct exec_body *exec_publish(struct exec *e, struct exec_body *fresh);
/* @brief Become a holder of @o unless @e is one or owns the memory itself. */
void exec_hold(struct exec *e, struct exec_owner *o);
/* @brief Mark @e if a ref of nodes [@first, @first + @count) is not sound. */
void exec_check(struct exec *e, uint32_t first, uint32_t count);
void exec_count_refs(const struct exec_body *b, uint32_t first, uint32_t count);
void exec_count_body(const struct exec_body *b);

#endif
