/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory for shadows: packed into blocks, one set of blocks an arena. A block whose shadows
 * have all been published is used again, by whatever arena, in stream order behind that
 * publication; so the extra memory is that of one layer however far the device lags behind.
 * Contents are undefined.
 *
 * Threads: any, without the registry lock, which guards everything here.
 */
#ifndef ARENA_SHADOW_H
#define ARENA_SHADOW_H

#include <stdbool.h>
#include <stdint.h>

struct order;
struct shadow_block;

struct shadow_set { struct shadow_block *blocks; };

/* @brief @bytes to be written on @stream. @return 0, -errno of the device, or -ENOMEM. */
int shadow_take(struct shadow_set *set, int32_t device, uint64_t bytes, uint64_t stream,
		uint64_t *addr);
/*
 * @brief Give @addr back. @param after the publication that read it; NULL: none did, and nobody
 * knows what is still being written to it.
 * @return false: @addr is not of @set.
 */
bool shadow_give(struct shadow_set *set, uint64_t addr, struct order *after);
/* @brief What is not in use goes back to the device; waits for it. */
void shadow_trim(void);

/* @brief Take the blocks of a dead context out of @set (NULL: the spare ones), into the list
 * @dead. Registry lock held. */
void shadow_take_dead(struct shadow_set *set, uint64_t context, struct shadow_block **dead);
bool shadow_is_dead(const struct shadow_block *dead, uint64_t addr);	/* in one of them? */
void shadow_bury(struct shadow_block *dead);				/* forget them */

#endif
