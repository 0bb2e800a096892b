/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cross-check: the set of (node, address) of an exec as the walk at instantiate has it, against
 * the set as CUPTI told it (witness.h). They are compared as sets: what only one of them has is
 * listed by reason. Any thread.
 */
#ifndef ARENA_CROSS_H
#define ARENA_CROSS_H

#include "arena/exec.h"

/* id, name in reports */
#define CROSS_REASONS(X)                                                            \
	X(NODE_ONLY_CUPTI, "node-only-cupti") /* it went into the exec, unwalked */ \
	X(NODE_ONLY_WALK, "node-only-walk")   /* CUPTI never told of it */          \
	X(ADDRESS_ONLY_CUPTI, "address-only-cupti")                                 \
	X(ADDRESS_ONLY_WALK, "address-only-walk")                                   \
	X(GENERATION, "generation") /* same address, other memory */

/* clang-format off */
enum cross_reason {
#define X(id, name) CROSS_##id,
	CROSS_REASONS(X)
#undef X
	CROSS_REASON_COUNT
};
/* clang-format on */
const char *cross_reason_name(enum cross_reason reason);

/* Differences that are listed; more are counted. */
#define CROSS_LIST_MAX 16

struct cross_difference {
	enum cross_reason reason;
	uint32_t name;	  /* interned, of the kernel; 0: none */
	uint64_t node;	  /* CUgraphNode */
	uint64_t address; /* 0: the node as a whole */
};

struct cross_result {
	bool compared;		   /* false: the template is older than the window */
	uint32_t nodes, addresses; /* in both */
	uint32_t changed;	   /* nodes left out: the program set new parameters since */
	uint64_t counts[CROSS_REASON_COUNT];
	uint32_t listed;
	struct cross_difference list[CROSS_LIST_MAX];
};

/*
 * @brief Compare what was walked of the template @graph. @param b may be NULL (nothing walked).
 * @param is_exec an exec was made of it on this thread: what CUPTI told of that counts as well.
 * @return whether the two agree, or could not be compared.
 */
bool cross_compare(const struct exec_builder *b, uint64_t graph, bool is_exec,
		   struct cross_result *out);

/* @brief Did both have the same? */
bool cross_agrees(const struct cross_result *r);

/* Sums over all comparisons. */
struct cross_counters {
	uint64_t compared, agreed, skipped, nodes, addresses, changed, counts[CROSS_REASON_COUNT];
};
void cross_read_counters(struct cross_counters *out);

#endif
