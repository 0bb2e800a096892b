/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lists behind keep.h; private to keep.c and keep_map.c. All under the registry lock.
 *
 * What is in them is really there in the driver. A mapping is in the list of its reservation,
 * whatever handle it is of and whether it was made under a tag or not.
 */
#ifndef ARENA_KEPT_H
#define ARENA_KEPT_H

#include "arena/keep.h"
#include "arena/tag.h"

struct mapping {
	struct mapping *next;
	struct keep_mapping m;
	struct slot *slot;	/* NULL: not made under a tag, or it did not fit */
	bool held;
};

struct reservation {
	struct reservation *next;
	const struct tag_sequence *q;
	uint32_t number;	/* in q */
	bool held;
	uint64_t base, bytes;
	struct mapping *mappings;
};

struct physical {
	struct physical *next;
	const struct tag_sequence *q;
	uint32_t number;	/* in q */
	uint32_t retained;	/* references that the driver counts, besides the held one */
	bool held;
	uint64_t handle;
	struct keep_physical p;
};

extern struct reservation *kept_reservations;

/* @return NULL: none that is kept. */
struct reservation *kept_reservation(uint64_t addr);
struct physical *kept_physical(uint64_t handle);

struct mapping *kept_mapping_new(void);	/* NULL: no memory */
void kept_mapping_drop(struct mapping *k);
/* @brief Take @k out of @r, and drop it. */
void kept_mapping_end(struct reservation *r, struct mapping *k);
/* @brief If nobody holds or maps @handle any more, it is not kept. @return it, for its release in
 * the driver; 0: it still is kept, or never was. */
uint64_t kept_physical_end(uint64_t handle);

#endif
