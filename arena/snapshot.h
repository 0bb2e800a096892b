/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots freeze the identity of every slot; verify compares and tells findings (design rules 1
 * and 4 to 7). What severity a finding has depends on who refers to the old memory: only a live
 * exec makes an error of it, and not if another one was captured under the current binding.
 *
 * Threads: any. Snapshots are taken and compared without a lock held.
 */
#ifndef ARENA_SNAPSHOT_H
#define ARENA_SNAPSHOT_H

#include "arena/registry.h"

struct arena_snapshot;

/* A slot finding as compared sets need it: "path: [kind] slot: detail". */
struct slot_finding {
	enum finding_kind kind;		/* MOVED, MISSING, REPLACED, RESPECIFIED, ... */
	enum severity severity;
	const struct slot *slot;	/* NULL: a source of the manifest */
	uint32_t path, name;		/* interned */
	uint64_t old_base, new_base;
	uint64_t old_generation, new_generation;
	struct arena_spec old_spec, new_spec;
	uint32_t old_stack, new_stack;	/* who allocated the memory there; 0: not known */
	uint32_t old_closed;		/* who freed the old one; 0: nobody */
	uint32_t detail;		/* interned text */
	uint32_t execs_count;		/* live execs that hold the old binding */
	bool inferred;			/* of no slot: infer.h paired what died and what came */
};
struct slot_findings {
	struct slot_finding *list;
	uint32_t count, cap;
};

/* @brief Append a copy. @return 0 or -ENOMEM, then nothing changed. */
int slot_findings_add(struct slot_findings *f, const struct slot_finding *one);
void slot_findings_free(struct slot_findings *f);
/* @brief Sorted by path, kind, slot and detail, without duplicates. Severity and the number of
 * execs are no part of what a finding says. Without memory for it the order stays as it is. */
void slot_findings_normalise(struct slot_findings *f);
/* @brief Append to @out what @a has and @b has not; both are normalised.
 * @return 0 or -ENOMEM. */
int slot_findings_minus(const struct slot_findings *a, const struct slot_findings *b,
			struct slot_findings *out);
/* @brief "path: [kind] slot: detail", in which old and new addresses and specs are told.
 * @return length as snprintf(). */
size_t slot_finding_text(const struct slot_finding *f, char *buf, size_t buf_bytes);

/*
 * @brief Every slot of every arena, as it is now; those that snapshot_keep() found wrong as they
 * were in @older (NULL: none), until they are so again or no graph needs it.
 * @return 0 or ARENA_E_NOMEM, with a message.
 */
int snapshot_take(const struct arena_snapshot *older, struct arena_snapshot **out);
/* @brief Note the slots of @s that errors in @found say are not what they were, for the next
 * snapshot_take(). @return are there any? */
bool snapshot_keep(const struct arena_snapshot *s, const struct slot_findings *found);
void snapshot_free(struct arena_snapshot *s);	/* may be NULL */
/* @brief Compare the slots of @a (NULL: of all arenas) with the snapshot; findings are appended.
 * @return 0 or ARENA_E_NOMEM, with a message. */
int snapshot_verify(const struct arena_snapshot *s, const struct arena *a,
		    struct slot_findings *out);
/* @brief How many misfits of tags there had been when it was taken (tag.h). */
uint64_t snapshot_misfits(const struct arena_snapshot *s);

#endif
