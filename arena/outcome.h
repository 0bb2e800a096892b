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
	const char *doubt;		/* why it proves nothing; NULL: nobody said so */
};

/* @brief Did the reload do anything in the layer that leaves its values in doubt, if it fails
 * half way? Registry lock held. */
bool outcome_reached(const struct arena *a);
/*
 * @brief The first slot that the open reload did not restore; NULL: the layer is whole. A value is
 * restored when it was published, written at once, or new; what is bound, when it was bound
 * again, or a source of its layer was received. Registry lock held.
 */
const struct slot *outcome_unrestored(const struct arena *a);
/* @brief Has it slots by which that can be told? Registry lock held. */
bool outcome_restorable(const struct arena *a);
/*
 * @brief Values of @a that were put, and are neither live nor staged, in the open reload or before.
 * @param slot out: of the first; NULL: it could not be made. @param more out: how many others.
 * @return the first one's name, 0: none. Registry lock held.
 */
uint32_t outcome_lost(const struct arena *a, const struct slot **slot, uint32_t *more);

/*
 * @brief Have graphs that refer to slots of a layer judged stale (value-refused), if the reload
 * changed anything and found that layer's values wrong or incomplete (design rule 9), until a
 * reload that reached the layer found nothing of the kind. Takes both locks.
 * @param whole it passed for all.
 */
void outcome_withhold(const struct reload_outcome *out, bool whole);

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
/* @brief In an abort nothing is flushed: name those that nobody acknowledged. */
void outcome_stale(struct reload_outcome *out);

#endif
