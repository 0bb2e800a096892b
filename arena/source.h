/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources: one object per (layer, key) with both sides, the entry of the manifest and the
 * receipts of the open reload, or a doubt about earlier ones; it lives until it has none. Private
 * to manifest.c, whose lock guards every call.
 */
#ifndef ARENA_SOURCE_H
#define ARENA_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

struct source {
	uint32_t layer, key, role;	/* interned; layer 0: of none, role 0: of none */
	uint32_t got_layer;		/* of the newest receipt */
	bool doubted;			/* its newest receipts are of a reload that failed, and
					 * no slot tells whether they matter */
	bool expected;			/* in the manifest: */
	uint64_t parts, bytes;		/* 0: not told */
	uint64_t got_bytes, again;	/* received; parts that came once more */
	uint64_t *seen;			/* part numbers received, sorted */
	uint32_t seen_count, seen_cap;
	struct source *next, *next_of_layer, *next_of_key;
};

/* Lists; a new source is the first of each. */
struct source *source_first(void);
struct source *source_of_layer(uint32_t layer);
struct source *source_of_key(uint32_t key);
struct source *source_find(uint32_t layer, uint32_t key);
struct source *source_add(uint32_t layer, uint32_t key);	/* NULL: no memory */

/* @brief Room for one more part. @return 0 or -ENOMEM. */
int source_room(struct source *s);
/* @brief Note a part; there is room. */
void source_receive(struct source *s, uint32_t layer, uint64_t part, uint64_t bytes);
void source_forget_receipts(struct source *s);
/* @brief Free what is neither expected, nor received, nor doubted. */
void source_sweep(void);

#endif
