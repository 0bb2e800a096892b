/* SPDX-License-Identifier: Apache-2.0 */
/* The open reload, and how it came out; private to reload.c, commit.c and outcome.c. */
#ifndef ARENA_OUTCOME_H
#define ARENA_OUTCOME_H

#include "arena/reload.h"

/* What the commits of one layer came to. */
struct layer_commit {
	struct arena *arena;
	struct slot_findings found;	/* by its newest commit */
	bool busy;			/* a thread is at it */
	struct layer_commit *next;
};

struct reload {
	uint64_t id, begin_ns, published_bytes;
	struct arena_scope *scope;
	struct arena_snapshot *before;
	struct layer_commit *layers;	/* those whose commit was tried */
};

/* How deep a reload went into a layer, committed or not. */
enum touched {
	TOUCHED_NOT,
	TOUCHED_VALUE,		/* a value was put at once, or published */
	TOUCHED_STAGED,		/* a value waits for a commit */
};
/* Registry lock held. */
enum touched reload_touched(const struct arena *a);

/* @brief The arena after @a, NULL starts and ends. Takes the registry lock. */
struct arena *reload_next_arena(struct arena *a);

/* @brief Everything that can be wrong with @a (NULL: with the model). @return 0 or != 0: no
 * memory, @out is incomplete. */
int reload_verify(const struct reload *r, const struct arena *a, struct slot_findings *out);
/* @brief The first finding that refuses a publication or fails a reload: an error, or a source
 * that is not as it must be. NULL: none. */
const struct slot_finding *findings_blocking(const struct slot_findings *f);
/* @return 0 or -ENOMEM, then a part is appended. */
int findings_append(struct slot_findings *to, const struct slot_findings *from);

/* @brief reload_commit() of a layer that nobody else commits. No lock held. */
int commit_run(const struct reload *r, struct layer_commit *l, uint64_t stream,
	       uint64_t *published_bytes);

/* @brief Fill *out from what the layers found and what the model shows now. */
void outcome_diagnose(const struct reload *r, bool aborted, struct reload_outcome *out);
/* @brief Flush the dependent caches, unless nothing has changed under them. */
void outcome_flush(uint64_t generation, struct reload_outcome *out);

#endif
