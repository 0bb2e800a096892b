/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suspects: words that a scan (scan.h) found in the memory behind a graph's parameters, and that
 * pointed into other live memory then. A pointer table looks so, and so does a number that happens
 * to be an address. So a suspect is no ref: it is kept beside the refs of its exec, no launch looks
 * at it, and no verdict rests on it. When its memory is freed, that is told, once (suspect-freed).
 *
 * Threads: any. One lock, a leaf; findings are handed out without it.
 */
#ifndef ARENA_SUSPECT_H
#define ARENA_SUSPECT_H

#include "arena/ledger.h"

/* Where it was found: the word at @table + @table_offset, where @table is what parameter @param of
 * node @node holds at @offset. */
struct suspect_place {
	uint64_t exec_serial, table;
	uint32_t table_offset, node, name;
	uint16_t param, offset;
};

/* One of the list of its exec. */
struct suspect;

extern _Atomic uint32_t suspect_count; /* whose memory was not freed yet */
static inline bool suspect_any(void)
{
	/* Relaxed: a free that races with the scan of a graph that refers to it is the program's
	 * race. */
	return __builtin_expect(load_relaxed(&suspect_count) != 0, 0);
}

/* @brief Put one that points to @value, in memory @v, in front of @list.
 * @return false: no memory or limit reached, or it is gone meanwhile. */
bool suspect_add(struct suspect **list, const struct suspect_place *at, uint64_t value,
		 const struct range_view *v);
/* @brief Forget a whole list, or those of @node in it. */
void suspect_forget(struct suspect *list);
void suspect_forget_node(struct suspect **list, uint32_t node);

/* @brief Does a suspect point into the block @r, which was freed? Then every exec is judged before
 * its next launch, which tells the frees that wait (block.h). Takes the holders lock. */
bool suspect_points(const struct range *r);
/* @brief @r, or a segment with blocks in it, was freed: tell, and know no more of it. Without
 * locks. @r is pinned. */
void suspect_freed(const struct range *r, uint32_t stack);

#endif
