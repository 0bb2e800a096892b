/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: templates with the births of their nodes, execs with the refs they captured, and the
 * guard that judges a launch.
 *
 * A word of a node's parameters becomes a ref only if it lay in a live range when the node was
 * born (created, captured, or given new parameters); shim/walk.c reads the words, this layer
 * resolves them. Nothing here calls the driver.
 *
 * Threads: any function from any thread. guard_launch() takes no lock unless the exec is marked.
 */
#ifndef ARENA_EXEC_H
#define ARENA_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "atomics.h"
#include "event.h"
#include "finding.h"
#include "launcher.h"
#include "ledger.h"
#include "sync.h"

/* id, name in reports */
#define NODE_KINDS(X)                                                                         \
	X(KERNEL, "kernel")                                                                   \
	X(MEMCPY, "memcpy")                                                                   \
	X(MEMSET, "memset")                                                                   \
	X(HOST, "host")                                                                       \
	X(CHILD, "child-graph")                                                               \
	X(ALLOC, "mem-alloc")                                                                 \
	X(FREE, "mem-free")                                                                   \
	X(BATCH, "batch-mem-op")                                                              \
	X(CONDITIONAL, "conditional")                                                         \
	X(OTHER, "other")

enum node_kind {
#define X(id, name) NODE_##id,
	NODE_KINDS(X)
#undef X
	NODE_KIND_COUNT
};
const char *node_kind_name(enum node_kind kind);

/* A candidate word: param/offset are for kernels; memcpy has 0 source, 1 destination; memset 0;
 * batch mem-ops the index of the operation. */
struct word {
	uint64_t value;
	uint16_t param, offset;
	uint8_t confidence;		/* enum confidence */
};

struct node_desc {
	uint64_t graph, node;		/* CUgraph, CUgraphNode */
	enum node_kind kind;
	uint32_t name;			/* interned kernel name */
	uint32_t depth;			/* 0 top level, +1 in each child or conditional body */
	const struct word *words;
	uint32_t words_count;
	uint64_t hash;			/* of the bytes that the words were read from, 0: none */
};

/* ---- births: what the words of a template's nodes meant when they were written ----
 * Node handles are unique while their nodes live, and NodeSetParams and DestroyNode name only the
 * node: graph 0 means "not told" there, and a birth then keeps the graph it was recorded with. */

/* @brief Record (or overwrite) the birth of a node: resolve its words now. */
void birth_record(const struct node_desc *n);
/* @brief Node @to means what node @from meant. */
void birth_copy(uint64_t from_graph, uint64_t from_node, uint64_t to_graph, uint64_t to_node);
/* @brief Was a birth of @node recorded, and not in another graph? */
bool birth_known(uint64_t graph, uint64_t node);
void birth_forget_node(uint64_t graph, uint64_t node);
void birth_forget_graph(uint64_t graph);

/*
 * Before the driver is asked to destroy: take births out and put them in front of @list (NULL:
 * none). Then either they are attached again, as the driver refused, or dropped.
 */
struct birth;
struct birth *birth_detach_node(uint64_t node, struct birth *list);
struct birth *birth_detach_graph(uint64_t graph, struct birth *list);
void birth_attach(struct birth *list);
void birth_drop(struct birth *list);

/*
 * A launch that was captured is a child node, whose nodes mean what the exec's nodes mean, not
 * what their words read now. exec_replicate() keeps what the exec has (false: it is not known, or
 * no memory); birth_replicate() gives it to the nodes of the child, which come in walk order.
 */
struct exec_replica {
	struct exec_body *body;
	uint32_t next;
};
bool exec_replicate(uint64_t handle, struct exec_replica *out);
/* @return false: @n is not what the exec has at this place; nothing is recorded. */
bool birth_replicate(struct exec_replica *r, const struct node_desc *n);
void exec_replica_free(struct exec_replica *r);

/* ---- execs ---- */

/*
 * The mirror of one CUgraphExec. Objects are type-stable (slab.h): a stale pointer shows handle 0
 * or another handle. One cache line; what an exec captured costs, apart from this:
 *
 *   24 bytes a node                    key, name, slice of refs, kind, depth, enabled
 *   12 bytes a ref                     owner index, distance from its base, param, offset
 *   24 (+ 4 to 8 of hash) an owner     shared by all nodes of the exec
 *
 * so a kernel node with 3 to 6 pointers takes 60 to 96 bytes (body.h; exec_read_counters() tells
 * the true figure as bytes / nodes_live).
 */
struct exec {
	/* Read by guard_launch() without a lock. */
	_Atomic uint64_t handle;	/* CUgraphExec; 0: free object */
	_Atomic uint32_t mark;		/* != 0: judge before the next launch */
	_Atomic uint32_t nodes_count;	/* for events */
	_Atomic uint64_t last_stream;	/* key of the newest launch's, stored + 1; 0: none */
	_Atomic uint64_t last_ticket;	/* sync.h */
	struct exec *_Atomic next;	/* chain of one bucket, owned by exec.c */
	uint64_t serial;		/* never used twice */
	/* The rest is guarded by the holders lock of ledger.h and private to exec.c, guard.c. */
	uint64_t context;
	struct exec_body *body;	/* last: the slab's link lies here while the object is free */
};
_Static_assert(sizeof(struct exec) == 64, "one cache line");

/* Most memory for bodies and births, 0: no limit. Beyond it nothing is mirrored, but counted. */
extern uint64_t exec_limit_bytes;

/* @brief Collects the nodes of one walk. NULL fields on no memory; errors are sticky and end in
 * a coverage count, never in a failure of the application's call. */
struct exec_builder;
struct exec_builder *exec_build_begin(void);
/* @brief Add a node in walk order (depth first); its words are resolved against its birth, else
 * against the ledger now. */
void exec_build_node(struct exec_builder *b, const struct node_desc *n);
/* @brief Note that the exec has @base as memory of one of its own allocation nodes. */
void exec_build_owns(struct exec_builder *b, uint64_t base);
/* @brief Note that one of its nodes frees the graph memory at @base. */
void exec_build_frees(struct exec_builder *b, uint64_t base);
/* @brief Has it a node with words of which no birth was recorded? @param b may be NULL. */
bool exec_build_unborn(const struct exec_builder *b);
/* @param b may be NULL. */
void exec_build_discard(struct exec_builder *b);

/* @brief Publish as the mirror of @handle (an older exec with this handle is dropped first).
 * Consumes @b, which may be NULL (then nothing is mirrored, and it is counted). */
void exec_open(uint64_t handle, uint64_t context, struct exec_builder *b);
void exec_close(uint64_t handle);
void exec_close_context(uint64_t context);
/* @brief A successful cuGraphExecUpdate: take over @b's parameters, node by node in walk order;
 * node keys and enabled states stay. Consumes @b.
 * @return false: the driver may have paired the nodes in another way. */
bool exec_update(uint64_t handle, struct exec_builder *b);
/* @brief New parameters of the node with key @n->node; its words are resolved now. */
void exec_set_node(uint64_t handle, const struct node_desc *n);
/* @brief New parameters of everything below child node @node. Consumes @b (depths relative). */
void exec_set_child(uint64_t handle, uint64_t node, struct exec_builder *b);
void exec_set_enabled(uint64_t handle, uint64_t node, bool enabled);

/* @brief Mark every holder of @owner, so that its next launch is judged. Holders lock held. */
void exec_mark_holders(struct range *owner);

/* A piece of one range, and when the nodes were born (binding.h) whose refs to it count. */
struct exec_extent {
	const struct slot *slot;	/* that they must mean; NULL: any */
	struct range *owner;
	uint64_t generation, base, end;
	uint32_t since, before;		/* births in [since, before) */
	const struct arena_spec *again;	/* with binding_each_again(); NULL: alone */
};
/* A question: how many execs have a ref of an enabled node to @old, and how many to @now but not to
 * @old? An extent without an owner is not asked for. */
struct exec_query {
	struct exec_extent old, now;
	uint32_t old_execs, now_execs;	/* the answers */
	uint64_t old_seen, now_seen;	/* serial of the exec that was counted last */
};
/* @brief Answer all questions in one pass over all execs. Holders lock held.
 * @return 0 or -ENOMEM, then no answers. */
int exec_answer(struct exec_query *queries, uint32_t count);

/* ---- guard ---- */

/* How the process wants stale launches treated; set once at start. */
extern bool guard_refuses;
/* A reload failed half way (reload.h): with guard_refuses, no graph is launched. */
extern _Atomic bool guard_unsafe;
/* @brief Set it and mark every exec, or clear it. Takes the holders lock. */
void guard_set_unsafe(bool is_unsafe);

bool guard_launch_slow(struct exec *e, uint64_t stream, uint32_t stack);
/* @brief The same for a launch without a mirror: only an unsafe process refuses it. */
bool guard_launch_unknown(uint64_t handle);
/* @brief Have every exec judged before its next launch. Holders lock held. */
void exec_mark_all(void);
/* @brief Look up the mirror of a handle. Lock-free. @return NULL when unknown. */
struct exec *exec_find(uint64_t handle);
/* @brief Newest ticket of sync.h, for stamping a launch. */
extern _Atomic uint64_t sync_now;

/* It is launched now, on @stream. */
static inline void launch_stamp(struct exec *e, uint64_t stream)
{
	store_relaxed(&e->last_stream, sync_key(stream) + 1);
	store_relaxed(&e->last_ticket, load_relaxed(&sync_now));
}

/*
 * @brief Judge a launch before the driver sees it. guard_launched() follows on the driver's call.
 * @return false when it must be refused (only if guard_refuses).
 */
static inline bool guard_launch(uint64_t handle, uint64_t stream)
{
	struct exec *e = exec_find(handle);

	if (__builtin_expect(e == NULL, 0))
		return guard_launch_unknown(handle);
	launcher_enter(e);
	/* Pairs with the release in exec_mark_holders(): a free that began earlier is seen. */
	if (__builtin_expect(load_acquire(&e->mark) != 0, 0) && !guard_launch_slow(e, stream, 0)) {
		launcher_leave();
		return false;
	}
	launch_stamp(e, stream);
	launcher_know(e, handle);
	event_emit(.kind = EVENT_LAUNCH, .serial = e->serial,
		   .size_bytes = load_relaxed(&e->nodes_count), .what = "");
	return true;
}

/* @brief The driver has the launch, or refused it. @return false: it has no mirror. */
static inline bool guard_launched(void)
{
	struct launcher *self = launcher_self;
	struct exec *e = self != NULL ? load_relaxed(&self->exec) : NULL;

	if (e == NULL)
		return false;
	/* A synchronisation that began while the driver was called proves nothing. */
	store_relaxed(&e->last_ticket, load_relaxed(&sync_now));
	launcher_leave();
	return true;
}

/*
 * @brief The same pair for what this thread launched last, if there is nothing to judge: most
 * replays. Of the thread, its launcher and the exec a line each.
 * @return its mirror, for guard_launched_quick(); NULL: nothing happened, guard_launch() does it.
 */
static inline struct exec *guard_launch_quick(uint64_t handle, uint64_t stream)
{
	struct launcher *self = launcher_self;
	struct exec *e = quick_thread.exec;

	if (SELDOM(e == NULL) || SELDOM(quick_thread.handle != handle) ||
	    SELDOM(event_sink != NULL))
		return NULL;
	/* As in launcher_enter() and guard_launch(). */
	store_relaxed(&self->exec, e);
	fence_compiler();
	/* Acquire as in table_find(): it is the mirror still, or again. */
	if (SELDOM(load_acquire(&e->handle) != handle) || SELDOM(load_acquire(&e->mark) != 0)) {
		launcher_leave();
		return NULL;
	}
	launch_stamp(e, stream);
	return e;
}

/* @param self launcher_self, read before the driver's call. */
static inline void guard_launched_quick(struct exec *e, struct launcher *self)
{
	/* As in guard_launched() and launcher_leave(). */
	store_relaxed(&e->last_ticket, load_relaxed(&sync_now));
	store_release(&self->exec, NULL);
}

/* @brief A freed-while-referenced finding for @r. Called by ledger.c without locks. */
void guard_freed(struct range *r, uint32_t stack);
/* @brief An in-flight finding for each holder of the unmapped ranges that still runs. */
void guard_unmapped(struct range *const *ranges, uint32_t count, uint32_t stack);

/*
 * nodes*, refs* and births count what was recorded since the start. Suspects in parameters are
 * counted but never kept, as they may not block; those of scans are kept apart (suspect.h). bytes
 * is what bodies and births take now, dropped how many of them were not recorded or had to be given
 * up.
 */
struct exec_counters {
	uint64_t execs_opened, execs_live, nodes, nodes_live, refs, refs_exact, refs_struct,
		refs_suspect, nodes_by_kind[NODE_KIND_COUNT], births, launches_judged,
		launches_stale, launches_refused, dropped, bytes;
};
void exec_read_counters(struct exec_counters *out);

#endif
