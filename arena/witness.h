/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second witness: what CUPTI told about templates while a window was open. Independent of
 * births (exec.h), so that the two can be compared (cross.h); it also knows which node was cloned
 * from which, and so where the bodies of conditional nodes are that nobody else can tell.
 *
 * Everything is forgotten when the window closes: what happens afterwards is not told, and handles
 * are used again.
 *
 * Threads: any; one mutex, under which nothing is called but the allocator of the core. So it may
 * be used inside callbacks that come with the driver's locks held.
 */
#ifndef ARENA_WITNESS_H
#define ARENA_WITNESS_H

#include "arena/exec.h"

/* A window is open. Relaxed: a thread that was not told of it has nothing to say. */
extern _Atomic bool witness_on;

/* @brief @graph is new. @param original what it was cloned from, 0: nothing. */
void witness_graph(uint64_t graph, uint64_t original);
/* @brief The graphs that this thread is told of until (!@on) are the application's own, and no
 * bodies of conditional nodes. */
void witness_expect_graph(bool on);
/* @brief A node is new: its words are resolved now. */
void witness_node(const struct node_desc *n);
/* @brief Node @to_node is a clone: it means what its original means. */
void witness_clone(uint64_t from_node, uint64_t to_graph, uint64_t to_node);
/* @brief The application set new parameters of @node. CUPTI tells of that for execs alone: what
 * the witness knows of the node, and of clones that are made from here on, is out of date. */
void witness_changed(uint64_t node);
void witness_forget_node(uint64_t node);
void witness_forget_graph(uint64_t graph);
/* @brief Forget everything. */
void witness_clear(void);

/* @brief Was it cloned into being, and in @graph? */
bool witness_cloned(uint64_t graph, uint64_t node);
/* @brief Was @graph made in this window, so that all of its nodes were told? */
bool witness_complete(uint64_t graph);
/* @brief What @node was cloned from. @return false: nothing. */
bool witness_original(uint64_t node, uint64_t *graph, uint64_t *original);
/* @brief The clone of graph @original that came with the clone @node. @return 0: not told. */
uint64_t witness_clone_beside(uint64_t node, uint64_t original);
/* @brief The @index-th graph that came with the new node @node and that nobody expected, which is
 * a body of it. @return 0: there is none. */
uint64_t witness_body(uint64_t node, uint32_t index);

/*
 * An exec is being made on this thread: what is cloned from now on until witness_exec_end() is
 * what it consists of. @param framed by the call of the application, which lies around what CUPTI
 * tells of it: then that begins and ends nothing.
 */
void witness_exec_begin(bool framed);
/* @return false: nothing ended, as a call of the application frames it. */
bool witness_exec_end(bool framed);
/* @brief The program makes something else: an exec that no call frames was refused, of which
 * nothing more is told. */
void witness_exec_over(void);
/* @brief Is it being made, so that new nodes are the exec's own, which nobody may ask for? */
bool witness_in_exec(void);

/* ---- for cross.c ---- */

struct witness_ref {
	uint64_t value, generation;
};

struct witness {
	uint64_t node, graph, original; /* 0: created */
	uint64_t thread;		/* that was told */
	uint32_t sequence;		/* of what that thread was told */
	uint32_t stamp;			/* of the comparison that met it last */
	uint32_t name;
	bool is_changed; /* since it was told */
	uint32_t refs_count, refs_cap;
	struct witness_ref refs[]; /* exact and struct ones, in the scanner's order */
};

void witness_lock(void);
void witness_unlock(void);
/* Lock held. */
struct witness *witness_get(uint64_t node);
/* @brief Nodes that the exec in hand was cloned from; of this thread, no lock needed. */
const uint64_t *witness_originals(uint32_t *count);
/* @brief Each node of @graph. Lock held. */
void witness_each(uint64_t graph, void (*tell)(void *to, struct witness *w), void *to);

#endif
